package remote

import (
	"context"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/backend/backendtest"
	"pmnbd/persist"
	"pmnbd/rdma/rdmafake"
)

// A mirrorHost has the runs of one initiator of a mirror, one after the other. want is what its clients
// have written.
type mirrorHost struct {
	*host
	pairs
	want []byte
	seed uint32
}

func newMirrorHost(t *testing.T, legs int) *mirrorHost { return newMirrorHostOf(t, legs, 1) }

func newMirrorHostOf(t *testing.T, legs int, minCopies uint8) *mirrorHost {
	s := fakesOf(t, legs, minCopies, rdmafake.Config{})
	cfg := s.config(t)
	cfg.WindowDir = inMemory(t)
	return &mirrorHost{&host{&farm{t: t}, cfg}, s, make([]byte, regionSize), 0}
}

// write has the device acknowledge a write. Nothing flushes it.
func (h *mirrorHost) write(c *backendtest.Client, off, n int) {
	h.t.Helper()
	h.seed++
	data := backendtest.Pattern(n, h.seed)
	copy(h.want[off:], data)
	require.NoError(h.t, c.Do(c.Write(uint64(off), data, 0)))
}

// paused runs f while no target hears anything.
func (h *mirrorHost) paused(f func()) {
	for i := range h.pairs {
		h.network(i).Pause()
	}
	f()
	for i := range h.pairs {
		h.network(i).Resume()
	}
}

// readsAll expects that the device has all that clients wrote.
func (h *mirrorHost) readsAll(c *backendtest.Client) {
	h.t.Helper()
	for off := 0; off < regionSize; off += 1 << 20 {
		r := c.Read(uint64(off), 1<<20, 0)
		require.NoError(h.t, c.Do(r))
		require.True(h.t, string(h.want[off:off+1<<20]) == string(r.Got), "from %d", off)
	}
}

// has expects that the regions of these members have all that clients wrote.
func (h *mirrorHost) has(members persist.Members) {
	h.t.Helper()
	for i, p := range h.pairs {
		if members.Has(i) {
			require.True(h.t, string(h.want) == string(p.region.Data()), "member %v", persist.Member(i))
		}
	}
}

// equal are the members that the device reads from.
func (d *Device) equal() persist.Members {
	c := &d.core.commit
	c.mu.Lock()
	defer c.mu.Unlock()
	return d.core.copies.view.Equal
}

// comesBack expects that the members which were away get all that they lack.
func (h *mirrorHost) comesBack(d *Device) {
	h.t.Helper()
	require.Eventually(h.t, func() bool { return d.equal() == h.all() }, patience, tick)
	require.NoError(h.t, d.Sync(context.Background()))
	h.has(h.all())
}

// all has every member.
func (h *mirrorHost) all() persist.Members { return persist.Member(len(h.pairs)) - 1 }

// nothingCopied expects that nobody takes a member for one that lacks anything.
func (h *mirrorHost) nothingCopied(d *Device) {
	h.t.Helper()
	require.Equal(h.t, h.all(), d.equal())
	for i, p := range h.pairs {
		require.Equal(h.t, h.all(), h.record(i).F)
		for other := range h.pairs {
			if other != i {
				require.Zero(h.t, p.region.BitsSet(other), "of %v on %v", persist.Member(other), persist.Member(i))
			}
		}
	}
}

// left is the header of the window file that the last run left.
func (h *mirrorHost) left() (is header) {
	h.change(func(hd *header) { is = *hd })
	return is
}

// change changes the header of the window file.
func (h *mirrorHost) change(change func(*header)) {
	h.t.Helper()
	f, err := openWindowFile(h.cfg.WindowDir, h.cfg.ID, [16]byte{0xee})
	require.NoError(h.t, err)
	f.update(change)
	require.NoError(h.t, f.Close())
}

// other opens the mirror as another initiator, with the region of every member taken over.
func (h *mirrorHost) other() *Device {
	h.t.Helper()
	cfg := h.cfg
	cfg.ID, cfg.StateDir, cfg.WindowDir, cfg.Takeover = [16]byte{7}, h.t.TempDir(), "", true
	d, err := Dial(context.Background(), cfg)
	require.NoError(h.t, err)
	return d
}

func (h *mirrorHost) loseWindow() { require.NoError(h.t, os.Remove(h.file())) }
