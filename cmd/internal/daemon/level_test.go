package daemon

import (
	"bytes"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
)

func TestLevel(t *testing.T) {
	for flag, c := range map[string]struct{ written, toggled, back string }{
		"":      {"info warn error", "debug info warn error", "info warn error"},
		"debug": {"debug info warn error", "info warn error", "debug info warn error"},
		"warn":  {"warn error", "debug info warn error", "warn error"},
		"error": {"error", "debug info warn error", "error"},
	} {
		level := NewLevel()
		set := pflag.NewFlagSet("", pflag.ContinueOnError)
		set.Var(level, "log-level", "")
		if flag != "" {
			require.NoError(t, set.Parse([]string{"--log-level", flag}))
		}
		var out bytes.Buffer
		log := LogAt(&out, level)
		written := func() string {
			out.Reset()
			log.Debug("debug")
			log.Info("info")
			log.Warn("warn")
			log.Error("error")
			var all []string
			for line := range strings.Lines(out.String()) {
				_, rest, _ := strings.Cut(line, `"msg":"`)
				text, _, _ := strings.Cut(rest, `"`)
				all = append(all, text)
			}
			return strings.Join(all, " ")
		}
		require.Equal(t, c.written, written(), flag)
		out.Reset()
		level.toggle(log)
		require.Contains(t, out.String(), "the log level changes", flag)
		require.Equal(t, c.toggled, written(), flag)
		out.Reset()
		level.toggle(log)
		require.Contains(t, out.String(), "the log level changes", flag)
		require.Equal(t, c.back, written(), flag)
	}
	for _, wrong := range []string{"", "fatal", "INFO", "1"} {
		require.ErrorContains(t, NewLevel().Set(wrong), "use debug, info, warn or error")
	}
}

// SIGUSR1 changes the level, and does not end the process, afterwards too.
func TestToggle(t *testing.T) {
	level, said := NewLevel(), make(chan struct{})
	stop := OnToggle(zap.New(LogAt(&saying{said: said}, level).Core()), level)
	require.NoError(t, syscall.Kill(syscall.Getpid(), syscall.SIGUSR1))
	select {
	case <-said:
	case <-time.After(20 * time.Second):
		t.Fatal("nothing came of the signal")
	}
	stop()
	require.True(t, level.now.Enabled(zap.DebugLevel))
	require.NoError(t, syscall.Kill(syscall.Getpid(), syscall.SIGUSR1))
}

// A saying writer closes said with its first line.
type saying struct {
	once sync.Once
	said chan struct{}
}

func (w *saying) Write(b []byte) (int, error) {
	w.once.Do(func() { close(w.said) })
	return len(b), nil
}
