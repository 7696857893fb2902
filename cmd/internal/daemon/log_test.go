package daemon

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
)

// What peers say reaches a reader of the log as text, and a program as it was said.
func TestLogIsPlain(t *testing.T) {
	const hostile = "\x1b[2J\u009b31m\x7f\u202e"
	var out bytes.Buffer
	Log(&out).Info("a client left", zap.Error(errors.New(hostile)), zap.String("name", hostile))
	require.Equal(t, 1, strings.Count(out.String(), "\n"))
	require.Equal(t, -1, strings.IndexFunc(out.String(), func(r rune) bool { return !unicode.IsPrint(r) && r != '\n' }), "%q", out.String())
	var line map[string]any
	require.NoError(t, json.Unmarshal(out.Bytes(), &line))
	require.Equal(t, hostile, line["error"])
	require.Equal(t, hostile, line["name"])
}

// Lines of packages that log with log/slog look like those of the commands.
func TestSlog(t *testing.T) {
	body := func(out *bytes.Buffer) string { // without the time
		_, rest, found := strings.Cut(out.String(), `"msg":`)
		require.True(t, found, out.String())
		level, _, _ := strings.Cut(out.String(), ",")
		return level + rest
	}
	cause := errors.New("cause")
	var ours, theirs bytes.Buffer
	log := Log(&ours).With(zap.String("client", "c"))
	other := Slog(Log(&theirs)).With(slog.String("client", "c"))
	other.Debug("not written")
	require.Empty(t, theirs.String())
	for _, both := range []func(){
		func() {
			log.Info("entered", zap.Uint64("size", 1<<60), zap.Int("lanes", -2), zap.Bool("proven", true))
			other.Info("entered", slog.Uint64("size", 1<<60), slog.Int("lanes", -2), slog.Bool("proven", true))
		},
		func() {
			log.Warn("left", zap.NamedError("cause", cause), zap.Duration("after", 1500*time.Millisecond))
			other.Warn("left", slog.Any("cause", cause), slog.Duration("after", 1500*time.Millisecond))
		},
		func() {
			log.Error("failed", zap.Error(cause))
			other.Error("failed", slog.Attr{}, slog.Any("error", cause))
		},
	} {
		ours.Reset()
		theirs.Reset()
		both()
		require.Equal(t, body(&ours), body(&theirs))
	}
}
