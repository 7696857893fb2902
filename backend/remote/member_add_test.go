package remote

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"pmnbd/persist/target"
	"pmnbd/rdma/rdmafake"
)

// CheckMember tells why the mirror would refuse a new member, before an old one leaves for it.
func TestCheckMember(t *testing.T) {
	ctx, set := context.Background(), uuid.UUID{0xee}
	s := fakesOf(t, 4, 1, rdmafake.Config{})
	d := s.dial(t, 1)
	fresh := pairs{newPair(t, rdmafake.New(rdmafake.Config{}), "fake:new", "", target.Config{})}
	cfg := fresh.config(t)
	at := cfg.Members[0]
	old, err := PrepareMember(ctx, cfg, set, regionSize, false)
	require.NoError(t, err)
	p, err := PrepareMember(ctx, cfg, set, regionSize, false)
	require.NoError(t, err)
	elsewhere, encrypted, member := at, at, s.config(t).Members[1]
	elsewhere.Addr, encrypted.Encrypted = "fake:none", true
	for name, c := range map[string]struct {
		t    Target
		p    Prepared
		says string // empty: it fits
	}{
		"it fits":                        {at, p, ""},
		"somebody had it since":          {at, old, "try again"},
		"nobody listens":                 {elsewhere, p, "is pmnbd-target serving there?"},
		"a clear connection":             {encrypted, p, errClear.Error()},
		"a member":                       {member, p, "is a member already"},
		"a member under another address": {at, Prepared{UUID: s[1].region.UUID(), Epoch: p.Epoch}, "is member B already"},
	} {
		t.Run(name, func(t *testing.T) {
			before := fresh[0].region.Superblock()
			err := d.CheckMember(ctx, c.t, c.p)
			if c.says == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, c.says)
			}
			require.Equal(t, before, fresh[0].region.Superblock())
			require.Equal(t, "ABCD", d.Snapshot().Mirror.F)
		})
	}
	_, err = d.AddMember(ctx, at, p)
	require.ErrorContains(t, err, "places are taken")
	told, err := d.RemoveMember(ctx, 1)
	require.NoError(t, err)
	require.NoError(t, told)
	slot, err := d.AddMember(ctx, at, p)
	require.NoError(t, err)
	require.Equal(t, 1, slot)
	require.NoError(t, d.Close())
	require.ErrorIs(t, d.CheckMember(ctx, at, p), errStopped)
}

// An order waits for the one before it for as long as its caller has patience, and the end of the device for none.
func TestAddBehindAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fakes(t, 2, rdmafake.Config{})
		d := s.dial(t, 1)
		network := rdmafake.New(rdmafake.Config{})
		cfg := pairs{newPair(t, network, "fake:new", "", target.Config{})}.config(t)
		p, err := PrepareMember(t.Context(), cfg, uuid.UUID{0xee}, regionSize, false)
		require.NoError(t, err)
		network.Pause()
		defer network.Resume()
		first := make(chan error, 1)
		go func() {
			_, err := d.AddMember(context.Background(), cfg.Members[0], p)
			first <- err
		}()
		synctest.Wait() // its target does not answer
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, d.CheckMember(ctx, cfg.Members[0], p), context.DeadlineExceeded)
		require.NoError(t, d.Close())
		require.Error(t, <-first)
	})
}

// A region is prepared, or is not, whichever answer of its target never comes.
func TestPrepareBesideASilentTarget(t *testing.T) {
	for silent := 1; ; silent++ {
		fell := false
		synctest.Test(t, func(t *testing.T) { fell = prepareSilenced(t, silent) })
		if !fell {
			require.Greater(t, silent, 3, "it has asked for nothing")
			return
		}
	}
}

// prepareSilenced prepares a region whose target falls silent when the initiator has been woken n times. It
// reports whether that came to pass.
func prepareSilenced(t *testing.T, n int) bool {
	var p *rdmafake.Provider
	var woken atomic.Int64
	var fell atomic.Bool
	p = rdmafake.New(rdmafake.Config{Woken: func(int, int) {
		if woken.Add(1) == int64(n) {
			fell.Store(true)
			p.Pause()
		}
	}})
	s := pairs{newPair(t, p, "fake:new", "", target.Config{})}
	cfg := s.config(t)
	began := time.Now()
	_, err := PrepareMember(context.Background(), cfg, uuid.UUID{0xee}, regionSize, true)
	require.Less(t, time.Since(began), time.Hour)
	if !fell.Load() {
		require.NoError(t, err)
	}
	p.Resume()
	return fell.Load()
}
