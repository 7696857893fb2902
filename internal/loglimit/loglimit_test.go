package loglimit

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

type clock struct{ now time.Time }

func (c *clock) Now() time.Time                         { return c.now }
func (c *clock) NewTicker(d time.Duration) *time.Ticker { return time.NewTicker(d) }

// observed returns a logger, its clock, and what it has written.
func observed() (*zap.Logger, *clock, *observer.ObservedLogs) {
	c := &clock{time.Unix(1<<30, 0)}
	core, logged := observer.New(zap.InfoLevel)
	return zap.New(core, zap.WithClock(c)), c, logged
}

func TestLimit(t *testing.T) {
	const period = 5 * time.Second
	log, clock, logged := observed()
	limited, start := New(log, 1, period), clock.now
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
		clock.now = start.Add(tt.at)
		limited.With(zap.String("peer", tt.name)).Warn(tt.name)
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
	log, _, logged := observed()
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
