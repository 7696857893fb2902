package main

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"pmnbd/persist/target"
)

// The log says how far the flush is that settles doubt, while an owner waits for it. Nobody waits for that of a
// region that is free, and one that has failed gets no further.
func TestDoubtInTheLog(t *testing.T) {
	core, lines := observer.New(zap.InfoLevel)
	doubt := func(name string, change func(*target.RegionSnapshot)) target.RegionSnapshot {
		r := target.RegionSnapshot{Name: name, Size: 1 << 30, Doubt: true, Held: true, DoubtLeft: 3 << 20}
		change(&r)
		return r
	}
	sayDoubt(zap.New(core), []target.RegionSnapshot{
		doubt("waits", func(*target.RegionSnapshot) {}),
		doubt("sound", func(r *target.RegionSnapshot) { r.Doubt = false }),
		doubt("free", func(r *target.RegionSnapshot) { r.Held = false }),
		doubt("failed", func(r *target.RegionSnapshot) { r.Failed = true }),
	})
	require.Equal(t, 1, lines.Len())
	line := lines.All()[0]
	require.Contains(t, line.Message, "settling doubt")
	require.Equal(t, map[string]any{"region": "waits", "left_bytes": uint64(3 << 20), "of_bytes": uint64(1 << 30)}, line.ContextMap())
}
