package loglimit

import (
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"pmnbd/internal/logtest"
)

// observed is a logger, and what it has written.
func observed() (*slog.Logger, *observer.ObservedLogs) {
	core, logged := observer.New(zap.InfoLevel)
	return logtest.On(core), logged
}

func TestLimit(t *testing.T) {
	const period = 5 * time.Second
	log, logged := observed()
	limited, start := New(log, 1, period), time.Unix(1<<30, 0)
	for _, tt := range []struct {
		name    string
		at      time.Duration
		ok      bool
		leftOut int64
	}{
		{"the first", 0, true, 0},
		{"at once", 0, false, 0},
		{"just before the time", period - 1, false, 0},
		{"at the time", period, true, 2},
		{"counted anew", 2*period - 1, false, 0},
		{"much later", 100 * period, true, 1},
		{"none left out", 200 * period, true, 0},
	} {
		line := slog.NewRecord(start.Add(tt.at), slog.LevelWarn, tt.name, 0)
		require.NoError(t, limited.With("peer", tt.name).Handler().Handle(t.Context(), line))
		lines := logged.TakeAll()
		if !tt.ok {
			require.Empty(t, lines, tt.name)
			continue
		}
		require.Len(t, lines, 1, tt.name)
		fields := lines[0].ContextMap()
		require.Equal(t, tt.name, fields["peer"])
		leftOut, _ := fields["left_out"].(int64)
		require.Equal(t, tt.leftOut, leftOut, tt.name)
	}
}

func TestPerMessage(t *testing.T) {
	log, logged := observed()
	limited := PerMessage(log, 2, time.Second)
	for range 5 {
		limited.Debug("not enabled")
		limited.Info("entered")
		limited.Warn("left")
	}
	require.Len(t, logged.FilterMessage("entered").All(), 2)
	require.Len(t, logged.FilterMessage("left").All(), 2)
	require.Equal(t, 4, logged.Len())
	log.Info("entered")
	require.Equal(t, 5, logged.Len(), "the logger itself has no limit")
}
