// Package logtest makes loggers for tests. It is only for this module.
package logtest

import (
	"log/slog"

	"go.uber.org/zap/exp/zapslog"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest"
)

// New returns a logger that writes to the log of t, of all levels.
func New(t zaptest.TestingT) *slog.Logger { return On(zaptest.NewLogger(t).Core()) }

// On returns a logger that writes to core, as those of the commands do.
func On(core zapcore.Core) *slog.Logger { return slog.New(zapslog.NewHandler(core)) }
