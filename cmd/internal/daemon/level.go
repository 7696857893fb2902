package daemon

import (
	"os"
	"os/signal"
	"syscall"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"pmnbd/cmd/internal/flags"
)

// A Level is the least level of lines that a log writes. It can change while the process runs. NewLevel
// makes one. It is a pflag.Value.
type Level struct {
	now   zap.AtomicLevel
	start zapcore.Level // that of the flag
}

// NewLevel returns the level info.
func NewLevel() *Level { return &Level{now: zap.NewAtomicLevel()} }

// String is the level as the flag takes it.
func (l *Level) String() string {
	if l == nil {
		return ""
	}
	return l.start.String()
}

// Set reads debug, info, warn or error.
func (l *Level) Set(s string) error {
	switch s {
	case "debug", "info", "warn", "error":
	default:
		return flags.Usagef("%q is not a level: use debug, info, warn or error", s)
	}
	if err := l.start.Set(s); err != nil {
		return err
	}
	l.now.SetLevel(l.start)
	return nil
}

// UnmarshalText reads a level in a configuration file.
func (l *Level) UnmarshalText(text []byte) error { return l.Set(string(text)) }

// Type names the flag's argument in help.
func (l *Level) Type() string { return "debug|info|warn|error" }

// toggle goes to debug, or from there back to the level of the flag, or to info if that is debug. It
// says so while the level is debug, so that the line is written.
func (l *Level) toggle(log *zap.Logger) {
	next := zapcore.DebugLevel
	if l.now.Level() == zapcore.DebugLevel {
		if next = l.start; next == zapcore.DebugLevel {
			next = zapcore.InfoLevel
		}
	}
	if next == zapcore.DebugLevel {
		l.now.SetLevel(next)
	}
	log.Info("SIGUSR1: the log level changes", zap.Stringer("level", next))
	l.now.SetLevel(next)
}

// OnToggle changes the level of log for each SIGUSR1: to debug, and back. stop ends that; it leaves
// the signal without effect.
func OnToggle(log *zap.Logger, level *Level) (stop func()) {
	c := make(chan os.Signal, 1)
	end, ended := make(chan struct{}), make(chan struct{})
	signal.Notify(c, syscall.SIGUSR1)
	go func() {
		defer close(ended)
		for {
			select {
			case <-c:
				level.toggle(log)
			case <-end:
				return
			}
		}
	}()
	return func() {
		signal.Ignore(syscall.SIGUSR1)
		close(end)
		<-ended
	}
}
