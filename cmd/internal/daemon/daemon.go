// Package daemon is what the two daemons share while they run: their log, how they say that
// they are ready and that they are ending, the signals that end them or make them read their
// keys again, and what they close when a start fails.
//
// It exists so that scripts, systemd and people meet the same habits in both. The package
// imports plain.
package daemon

import (
	"io"
	"log/slog"
	"math"
	"os"

	"go.uber.org/zap"
	"go.uber.org/zap/exp/zapslog"
	"go.uber.org/zap/zapcore"
	"golang.org/x/sys/unix"

	"pmnbd/internal/plain"
)

// A plainWriter writes the lines of a log. Peers have a say in their fields, and the encoder
// lets through some of what a terminal takes for commands.
type plainWriter struct{ io.Writer }

func (w plainWriter) Write(b []byte) (int, error) {
	if _, err := w.Writer.Write(plain.JSON(b)); err != nil {
		return 0, err
	}
	return len(b), nil
}

// Log makes the log on w, at the level info: lines for people if w is a terminal, JSON otherwise.
func Log(w io.Writer) *zap.Logger { return LogAt(w, NewLevel()) }

// LogAt is Log at a level that may change.
func LogAt(w io.Writer, level *Level) *zap.Logger {
	cfg := zap.NewProductionEncoderConfig()
	cfg.EncodeTime = zapcore.RFC3339TimeEncoder
	encoder := zapcore.NewJSONEncoder(cfg)
	if f, ok := w.(*os.File); ok {
		if _, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS); err == nil {
			cfg.EncodeLevel = zapcore.CapitalLevelEncoder
			encoder = zapcore.NewConsoleEncoder(cfg)
		}
	}
	return zap.New(zapcore.NewCore(encoder, zapcore.Lock(zapcore.AddSync(plainWriter{w})), level.now))
}

// Slog is log for the packages that take a logger of log/slog: their lines go to the same place.
func Slog(log *zap.Logger) *slog.Logger {
	return slog.New(zapslog.NewHandler(log.Core(), zapslog.AddStacktraceAt(math.MaxInt)))
}
