package remote

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"pmnbd/persist/target"
	"pmnbd/rdma"
	"pmnbd/rdma/rdmafake"
)

// givenUp expects that a start is given up before it serves anybody.
func (h *host) givenUp(patience time.Duration) {
	h.t.Helper()
	ctx, stop := context.WithTimeout(context.Background(), patience)
	defer stop()
	_, err := Dial(ctx, h.cfg)
	require.Error(h.t, err)
	require.NotErrorAs(h.t, err, new(*LossError))
}

// A start of a mirror that opened a member and served nobody leaves a window that says so. One behind it that opens
// nothing keeps that window: else the third would take the members for those of a run whose window is lost.
func TestStartsOfAMirrorInVain(t *testing.T) {
	var s pairs
	for range 2 { // their leases are short: the third start waits until they are over
		s = append(s, newPair(t, rdmafake.New(rdmafake.Config{}), "", "", target.Config{Heartbeat: 100 * time.Millisecond, Lease: time.Second}))
	}
	s.join(t, 2)
	cfg := s.config(t)
	cfg.WindowDir = inMemory(t)
	h := &host{&farm{t: t}, cfg}
	release := s[1].sync.block() // it answers a probe, and grants nothing
	defer release()
	h.givenUp(3 * time.Second)
	require.NotZero(t, s[0].region.Superblock().Life, "it was opened")
	s.network(1).Down()
	release()
	h.givenUp(time.Second)
	s.network(1).Up()
	d, _ := h.run()
	require.NoError(t, d.Close())
}

// On an answersOnce the network is lost once the target has answered the first question of a start.
type answersOnce struct {
	rdma.Provider
	n int
}

func (p *answersOnce) OpenDomain(ctx context.Context, addr string) (rdma.Domain, error) {
	if p.n++; p.n > 1 {
		return nil, rdma.ErrLost
	}
	return p.Provider.OpenDomain(ctx, addr)
}

// The same holds for a region alone, which only a RESUME tells apart.
func TestStartsInVain(t *testing.T) {
	h := newHost(t)
	d, _ := h.run()
	h.kill(d)
	h.rewrite(func(hd *header) { hd.Opened, hd.Epoch, hd.ContentsID = 0, hd.Epoch-1, [16]byte{} }) // before it noted the grant
	network := h.cfg.Provider
	h.cfg.Provider = &answersOnce{Provider: network}
	h.givenUp(time.Second)
	h.cfg.Provider = network
	d, _ = h.run()
	require.NoError(t, d.Close())
}

// Another initiator had the region since the first of these starts, which served nobody. The next one is refused, and
// removes that window: the third would take it for one whose clients are to find what they left.
func TestStartInVainBesideAnother(t *testing.T) {
	h := newHost(t)
	d, _ := h.run()
	h.kill(d)
	h.rewrite(func(hd *header) { hd.Opened, hd.Epoch, hd.ContentsID = 0, hd.Epoch-1, [16]byte{} }) // before it noted the grant
	lasts, err := filepath.Glob(filepath.Join(h.cfg.StateDir, "*.last"))
	require.NoError(t, err)
	require.Len(t, lasts, 1)
	require.NoError(t, os.Remove(lasts[0]))
	cfg := h.cfg
	cfg.ID, cfg.StateDir, cfg.WindowDir, cfg.Takeover = [16]byte{7}, t.TempDir(), inMemory(t), true
	other, err := Dial(t.Context(), cfg)
	require.NoError(t, err)
	_, err = Dial(t.Context(), h.cfg)
	require.ErrorAs(t, err, new(*RefusedError))
	require.NoError(t, other.Close())
	d, _ = h.run()
	require.NoError(t, d.Close())
}
