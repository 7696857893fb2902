package remote

import (
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"pmnbd/internal/logtest"
	"pmnbd/persist/target"
	"pmnbd/rdma/rdmafake"
)

// What Open is given decides before anything is asked of a target.
func TestOpenRefuses(t *testing.T) {
	state := WithStateDir(t.TempDir())
	for _, tt := range []struct {
		name, uri string
		options   []Option
		says      string
	}{
		{"no address", "log", nil, `"log" is not an address: use iwarp://HOST:PORT/REGION`},
		{"no region", "iwarp://h:1", nil, "names no region"},
		{"no state directory", "iwarp://h:1/log", nil, "needs a StateDir"},
		{"no provider", "rdma://h:1/log", []Option{state}, "rdma://h:1/log needs a provider of package rdma/verbs: use WithProvider"},
		{"encryption without a key", "iwarps://h/log", []Option{state}, "an encrypted connection without a key"},
		{"a key for an address", "iwarps://192.0.2.1:1/log", []Option{state, WithKey(func(string) []byte { return nil }), func(c *Config) { c.Target = "" }}, "a Config with keys needs the target's name"},
		{"a small window", "iwarp://h:1/log", []Option{state, WithWindow(1)}, "a window of 1 bytes"},
		{"many lanes", "iwarp://h:1/log", []Option{state, WithLanes(MaxLanes + 1)}, "17 lanes"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Open(t.Context(), tt.uri, tt.options...)
			require.ErrorContains(t, err, tt.says)
		})
	}
}

// Starts that name no id are one initiator if they have one state directory.
func TestOpen(t *testing.T) {
	p := newPair(t, rdmafake.New(rdmafake.Config{}), "target:7204", "", target.Config{})
	state := t.TempDir()
	var owners []uuid.UUID
	for _, dir := range []string{state, state, t.TempDir()} {
		d, err := Open(t.Context(), "rdma://target/log", WithProvider(p.provider), WithStateDir(dir), WithLanes(2),
			AllowVolatile(), WithLogger(logtest.New(t)))
		require.NoError(t, err)
		require.Len(t, d.Snapshot().Lanes, 2)
		owners = append(owners, d.Snapshot().Owner)
		require.NoError(t, d.Close())
	}
	require.NotZero(t, owners[0])
	require.Equal(t, owners[0], owners[1])
	require.NotEqual(t, owners[0], owners[2])
}
