package remote

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/backend"
	"pmnbd/backend/backendtest"
	"pmnbd/persist/region/regiontest"
	"pmnbd/persist/wire"
)

var adr = regiontest.ADR

// newMarkedHost makes a host whose target advances the mark at every heartbeat of a session that
// made something durable.
func newMarkedHost(t *testing.T) *host {
	h := newHost(t)
	h.stop()
	h.marks = true
	h.start(h.path, adr)
	return h
}

// flushed writes and flushes a block, and waits until the target has told a higher mark.
func (h *host) flushed(d *Device, c *backendtest.Client, seed uint32) {
	h.t.Helper()
	before := d.legs[0].mark.Load()
	require.NoError(h.t, c.Do(c.Write(0, backendtest.Pattern(block, seed), 0), c.Flush()))
	require.Eventually(h.t, func() bool { return d.legs[0].mark.Load() > before }, patience, tick)
}

// copied returns what the region's file holds.
func (h *host) copied() []byte {
	h.t.Helper()
	b, err := os.ReadFile(h.path)
	require.NoError(h.t, err)
	return b
}

// restore stops the target, puts a copy in the region's place, and starts the target.
func (h *host) restore(b []byte) {
	h.t.Helper()
	h.stop()
	require.NoError(h.t, os.WriteFile(h.path, b, 0o600))
	h.start(h.path, adr)
}

// A region that was restored from a copy made within the session has the session's epoch and
// owner, but an older mark. The device serves nothing of it, and replays nothing into it.
func TestRestoredInSession(t *testing.T) {
	h := newMarkedHost(t)
	d, c := h.run()
	h.flushed(d, c, 1)
	copied := h.copied()
	h.flushed(d, c, 2)
	h.provider.Pause()
	require.NoError(t, c.Do(c.Write(block, backendtest.Pattern(block, 3), 0))) // in the window alone
	h.restore(copied)
	h.provider.Resume()
	r := c.Read(0, block, 0)
	err := c.Do(r)
	require.ErrorIs(t, err, backend.ErrFailed)
	require.ErrorContains(t, err, "region restored from a copy: it has mark 1, and had mark 2")
	require.Equal(t, StateFailed, d.Snapshot().State)
	requireFailed(t, c)
	require.Equal(t, make([]byte, block), h.region.Data()[block:2*block], "nothing was replayed")
	require.Error(t, d.Close())
	h.refused("region restored from a copy")
}

// The next run knows the mark from the window file, however the previous run ended.
func TestRestoredBetweenRuns(t *testing.T) {
	for _, tt := range []struct {
		name string
		end  func(h *host, d *Device)
		why  string
	}{
		{"adoption", (*host).kill, "region restored from a copy: it has mark 2, and had mark 3"},
		{"a drained start", func(h *host, d *Device) { require.NoError(h.t, d.Close()) }, "restored from a copy since this initiator left it: it has mark 2, and had mark 4"},
		{"a drained start, and a start since that ended before OPEN", func(h *host, d *Device) {
			require.NoError(h.t, d.Close())
			h.rewrite(unsent)
		}, "restored from a copy since this initiator left it: it has mark 2, and had mark 4"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := newMarkedHost(t)
			d, c := h.run()
			h.flushed(d, c, 1)
			h.flushed(d, c, 2)
			copied := h.copied()
			h.flushed(d, c, 3)
			tt.end(h, d)
			h.restore(copied)
			h.refused(tt.why)
			h.refused(tt.why)
			h.cfg.AcceptLoss = true
			d, c = h.run()
			require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 9), 0), c.Flush()))
			require.NoError(t, d.Close())
			h.cfg.AcceptLoss = false
			d, _ = h.run()
			require.NoError(t, d.Close())
		})
	}
}

// CLOSE advances the mark by itself. So a copy made within the session is older than what the
// session left, even if everything was flushed and marked by then.
func TestRestoredAfterClose(t *testing.T) {
	h := newMarkedHost(t)
	d, c := h.run()
	h.flushed(d, c, 1)
	copied := h.copied()
	require.NoError(t, d.Close())
	left := h.region.Superblock().Mark
	require.Equal(t, d.legs[0].mark.Load(), left)
	h.restore(copied)
	h.refused("restored from a copy since this initiator left it")
}

// A copy from before the session can reach the session's epoch and mark again, by another owner.
func TestRestoredAndHadByAnother(t *testing.T) {
	t.Run("a drained start", func(t *testing.T) { restoredAndHad(t, func(*host) {}) })
	t.Run("a drained start, and a start since that ended before OPEN", func(t *testing.T) {
		restoredAndHad(t, func(h *host) { h.rewrite(unsent) })
	})
}

func restoredAndHad(t *testing.T, ended func(h *host)) {
	h := newHost(t)
	d, _ := h.run()
	require.NoError(t, d.Close())
	copied := h.copied()
	d, c := h.run()
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0), c.Flush()))
	require.NoError(t, d.Close())
	left := h.region.Superblock()
	h.restore(copied)
	mine := h.cfg
	h.cfg.ID, h.cfg.StateDir, h.cfg.WindowDir = [16]byte{7}, t.TempDir(), inMemory(t)
	d, _ = h.run()
	require.NoError(t, d.Close())
	h.cfg = mine
	ended(h)
	has := h.region.Superblock()
	require.Equal(t, [2]uint64{left.Epoch, left.Mark}, [2]uint64{has.Epoch, has.Mark})
	h.refused("somebody else had region")
}

// Somebody can put a copy back after the probe and before OPEN.
func TestGrantedWithAnOlderMark(t *testing.T) {
	h := newHost(t)
	f, err := openWindowFile(h.cfg.WindowDir, h.cfg.ID, h.region.UUID())
	require.NoError(t, err)
	d := &Device{cfg: h.cfg, log: h.cfg.Log, file: f, claims: make([]*claim, 1)}
	d.claims[0], err = claimRegion(h.cfg.StateDir, h.cfg.ID, h.region.UUID())
	require.NoError(t, err)
	f.update(func(h *header) { h.Mark = 5 })
	var lost *LossError
	require.ErrorAs(t, d.noteGrant(&wire.Opened{Mark: 4}), &lost)
	require.EqualValues(t, 5, f.header().Mark)
	d.cfg.AcceptLoss = true
	require.NoError(t, d.noteGrant(&wire.Opened{Mark: 4}))
	require.EqualValues(t, 4, f.header().Mark)
	require.NoError(t, d.release())
}

// The mark that a run knows, and the one in its window file, only rise.
func TestMarkNeverFalls(t *testing.T) {
	h := newHost(t)
	d, _ := h.run()
	for _, told := range []uint64{7, 3, 7, 9} {
		d.legs[0].marked(told)
	}
	require.EqualValues(t, 9, d.legs[0].mark.Load())
	require.EqualValues(t, 9, d.file.header().Mark)
	h.kill(d)
}
