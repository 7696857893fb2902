package remote

import (
	"context"
	"errors"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pmnbd/backend/backendtest"
	"pmnbd/persist"
	"pmnbd/rdma/rdmafake"
)

// After a kill the next run of a mirror has all acknowledged writes, in their order, whether flushed or
// not, and all members have them. Nothing has to be copied: the life that went on knew which members are
// equal (mirror §4.5). The next run may have another shape, and be killed in turn.
func TestMirrorGoesOn(t *testing.T) {
	for name, legs := range map[string]int{"two legs": 2, "three legs": 3} {
		t.Run(name, func(t *testing.T) {
			h := newMirrorHost(t, legs)
			var lineage [16]byte
			for round := range 4 {
				h.cfg.Lanes, h.cfg.Window = 1+round%3, []uint64{16 << 20, 8 << 20}[round%2]
				h.cfg.AcceptLoss = round%2 == 1 // which changes nothing: there is no loss
				d, c := h.run()
				if round == 0 {
					lineage = d.lineage
				}
				require.Equal(t, lineage, [16]byte(d.lineage), "round %d", round)
				h.nothingCopied(d)
				h.has(h.all())
				h.readsAll(c)
				h.write(c, 5<<20, block)
				require.NoError(t, c.Do(c.Flush()))
				h.write(c, 6<<20, block)
				h.paused(func() {
					for i, off := range []int{0, 100, 1<<20 - 50, 50, 3 << 20, 0} {
						h.write(c, off, block+777*i)
					}
					clear(h.want[2<<20-1000:][:5000])
					require.NoError(t, c.Do(c.Zero(2<<20-1000, 5000)))
					h.kill(d)
				})
			}
			d, c := h.run()
			h.readsAll(c)
			require.NoError(t, d.Close())
			h.has(h.all())
		})
	}
}

// A run that ended cleanly leaves members that are all equal, and a window that holds no memory.
func TestMirrorAfterAClose(t *testing.T) {
	h := newMirrorHost(t, 3)
	d, c := h.run()
	lineage := d.lineage
	h.write(c, 0, block)
	require.NoError(t, d.Close())
	for range 2 {
		d, c = h.run()
		require.Equal(t, lineage, d.lineage)
		h.nothingCopied(d)
		h.readsAll(c)
		require.NoError(t, d.Close())
	}
	require.Equal(t, windowDrained, h.left().State)
}

// A run that was killed between the last barrier and CLOSE left equal members, too.
func TestMirrorKilledBeforeItClosed(t *testing.T) {
	h := newMirrorHost(t, 2)
	d, c := h.run()
	h.write(c, 0, block)
	require.NoError(t, c.Do(c.Flush()))
	h.kill(d)
	h.change(func(hd *header) { hd.State = windowDrained })
	d, c = h.run()
	h.nothingCopied(d)
	h.readsAll(c)
	require.NoError(t, d.Close())
}

// A generation that was pending when the run was killed is finished by the next one, which lets go
// of the same member.
func TestMirrorKilledInAChange(t *testing.T) {
	for name, back := range map[string]bool{"the member stays away": false, "the member is back": true} {
		t.Run(name, func(t *testing.T) {
			h := newMirrorHost(t, 3)
			h.cfg.LegTimeout = 1
			d, c := h.run()
			h.write(c, 0, block)
			require.NoError(t, c.Do(c.Flush()))
			release := h.pairs[0].sync.block() // A does not get the record
			h.network(2).Down()
			<-h.pairs[0].sync.began
			h.write(c, stripe, block)
			h.kill(d)
			release()
			left := h.left()
			require.True(t, left.Mirror.Pending)
			require.Equal(t, persist.Members(3), left.Mirror.Record.F)
			if back {
				h.network(2).Up()
			}
			d, c = h.run()
			h.readsAll(c)
			h.has(3)
			record := h.record(0)
			require.Contains(t, record.Lineage, left.Mirror.Record.Ancestor)
			if back {
				h.comesBack(d)
			} else {
				require.Equal(t, left.Mirror.Record.Ancestor, record.Lineage[0], "finished, and no other one begun instead")
				require.Equal(t, persist.Members(3), d.equal())
				require.Equal(t, persist.Members(3), record.F)
				require.Positive(t, h.pairs[0].region.BitsSet(2), "what C lacks")
			}
			require.NoError(t, d.Close())
			h.network(2).Up()
		})
	}
}

// A member that was away when the run was killed, and stays away, is let go by the life that goes
// on. Nobody reads from it when it is back.
func TestMirrorKilledWithALegAway(t *testing.T) {
	for _, away := range []int{0, 1} {
		t.Run(persist.Member(away).String(), func(t *testing.T) {
			h := newMirrorHost(t, 2)
			d, c := h.run()
			h.write(c, 0, block)
			require.NoError(t, c.Do(c.Flush()))
			h.network(away).Down()
			h.write(c, 0, 2*block)
			h.kill(d)
			h.cfg.LegTimeout = 1
			d, c = h.run()
			there := persist.Member(1 - away)
			require.Equal(t, there, d.equal())
			require.Equal(t, there, h.record(1-away).F)
			h.has(there)
			h.readsAll(c)
			require.Positive(t, h.pairs[1-away].region.BitsSet(away))
			h.kill(d)
			h.network(away).Up()
			d, c = h.run()
			h.readsAll(c)
			h.comesBack(d)
			require.NoError(t, d.Close())
		})
	}
}

// A member that is away only for a while gets what the window has.
func TestMirrorGoesOnWithAllLegs(t *testing.T) {
	h := newMirrorHost(t, 2)
	d, c := h.run()
	h.network(1).Down()
	h.write(c, 0, 2*block)
	h.kill(d)
	type started struct {
		d   *Device
		err error
	}
	dialed := make(chan started, 1)
	go func() {
		d, err := Dial(context.Background(), h.cfg)
		dialed <- started{d, err}
	}()
	require.Eventually(t, func() bool { return h.pairs[0].region.Superblock().Epoch > d.legs[0].granted.Epoch }, patience, tick)
	h.network(1).Up()
	s := <-dialed
	require.NoError(t, s.err)
	h.nothingCopied(s.d)
	h.has(3)
	require.NoError(t, s.d.Close())
}

// An adoption that was given up is taken up again, as often as it takes.
func TestMirrorKilledTwice(t *testing.T) {
	h := newMirrorHost(t, 2)
	d, c := h.run()
	h.paused(func() {
		h.write(c, 0, 3*block)
		h.kill(d)
	})
	for i := range h.pairs {
		release := h.pairs[i].sync.blockData()
		ctx, stop := context.WithCancel(context.Background())
		gaveUp := make(chan error, 1)
		go func() { _, err := Dial(ctx, h.cfg); gaveUp <- err }()
		require.Eventually(t, func() bool { return len(h.pairs[i].sync.began) > 0 }, patience, tick)
		stop()
		require.ErrorIs(t, <-gaveUp, context.Canceled)
		release()
		for len(h.pairs[i].sync.began) > 0 {
			<-h.pairs[i].sync.began
		}
		require.Equal(t, windowLive, h.left().State)
	}
	d, c = h.run()
	h.nothingCopied(d)
	h.readsAll(c)
	h.has(3)
	require.NoError(t, d.Close())
}

// Another initiator that had a member of F since ends the life for good: what was not flushed is lost.
func TestMirrorTakenSince(t *testing.T) {
	h := newMirrorHost(t, 2)
	d, c := h.run()
	h.write(c, 0, block)
	require.NoError(t, c.Do(c.Flush()))
	lineage, flushed := d.lineage, append([]byte(nil), h.want...)
	h.paused(func() {
		h.write(c, 0, block)
		h.kill(d)
	})
	o := h.other()
	h.refused("4096 acknowledged bytes were not flushed")
	require.NoError(t, o.Close())
	h.refused("4096 acknowledged bytes were not flushed")
	h.cfg.AcceptLoss = true
	d, c = h.run()
	h.want = flushed
	h.readsAll(c)
	require.NotEqual(t, lineage, d.lineage)
	require.NoError(t, d.Close())
	h.cfg.AcceptLoss = false
	d, _ = h.run()
	require.NoError(t, d.Close())
}

// A window that holds nothing any more is compared with the mirror all the same: clients that are
// still attached would find other contents.
func TestMirrorHadByAnother(t *testing.T) {
	h := newMirrorHost(t, 2)
	d, _ := h.run()
	require.NoError(t, d.Close())
	require.NoError(t, h.other().Close())
	h.refused("somebody else had the mirror on log at")
	h.cfg.AcceptLoss = true
	d, _ = h.run()
	require.NoError(t, d.Close())
}

// Without the window nobody knows what the members lack. One is the source, and all others lack
// everything (mirror §4.4).
func TestMirrorWithoutItsWindow(t *testing.T) {
	h := newMirrorHost(t, 3)
	d, c := h.run()
	h.write(c, 0, block)
	require.NoError(t, c.Do(c.Flush()))
	h.kill(d)
	h.loseWindow()
	h.refused("did not close the mirror on log at")
	h.refused("did not close the mirror on log at") // it left nothing behind
	h.cfg.AcceptLoss, h.cfg.Takeover = true, true   // the lease has tests of its own
	d, c = h.run()
	first := func(a persist.Ancestor) bool { return a.Life == 3 && a.Count == 1 }
	record := h.record(0)
	if !first(record.Ancestor) {
		record.Ancestor = record.Lineage[slices.IndexFunc(record.Lineage[:], first)]
	}
	require.Equal(t, persist.Members(1), record.F, "A is the source")
	h.readsAll(c)
	h.comesBack(d)
	require.NoError(t, d.Close())
}

// A start that needs a member which is not among its targets does not go on without it.
func TestMirrorGoesOnWithItsMembers(t *testing.T) {
	h := newMirrorHost(t, 3)
	d, c := h.run()
	h.write(c, 0, block)
	h.kill(d)
	members := h.cfg.Members
	h.cfg.Members = members[:2]
	_, err := Dial(context.Background(), h.cfg)
	require.ErrorIs(t, err, errNotListed)
	require.False(t, errors.As(err, new(*LossError)))
	h.cfg.Members = []Target{members[2], members[0], members[1]} // in another order
	d, c = h.run()
	h.nothingCopied(d)
	h.readsAll(c)
	require.NoError(t, d.Close())
}

// A member that this life reaches for the first time may grant an OPEN whose answer is lost. The life
// then has the member by RESUME: no OPEN of the same life is granted again.
func TestMirrorOpensALegLate(t *testing.T) {
	s := fakesOf(t, 3, 2, rdmafake.Config{})
	s.network(2).Down()
	d := s.dial(t, 1)
	c := backendtest.NewClient(t, d)
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0), c.Flush()))
	release := s[2].sync.block()
	s.network(2).Up()
	<-s[2].sync.began // OPEN raises the epoch
	s.network(2).Down()
	release()
	require.Eventually(t, func() bool { return s[2].region.Superblock().Life == 2 }, patience, tick)
	s.network(2).Up()
	require.Eventually(t, func() bool { return d.equal() == 7 }, patience, tick)
	require.Equal(t, backendtest.Pattern(block, 1), s[2].region.Data()[:block])
	require.NoError(t, d.Close())
}

// A member of F that is not equal yet is not equal after a kill either: nobody reads from it before
// it has been copied to.
func TestMirrorGoesOnUnequal(t *testing.T) {
	h := newMirrorHost(t, 2)
	d, c := h.run()
	h.write(c, 0, 4*block)
	require.NoError(t, c.Do(c.Flush()))
	h.kill(d)
	h.change(func(hd *header) { hd.Mirror.Equal = 2 }) // as where A was copied to
	clear(h.pairs[0].region.Data()[:block])            // and does not have this yet
	d, c = h.run()
	h.readsAll(c)
	h.comesBack(d)
	require.NoError(t, d.Close())
}

// A start that loses a member while it opens it tries again. It neither takes its own session for one
// that somebody did not close, nor copies anything.
func TestMirrorStartIsCut(t *testing.T) {
	for i := range 2 {
		t.Run(persist.Member(i).String(), func(t *testing.T) {
			h := newMirrorHost(t, 2)
			for range 2 { // without a window file, and with one
				release := h.pairs[i].sync.block()
				dialed := make(chan *Device, 1)
				go func() {
					d, err := Dial(context.Background(), h.cfg)
					assert.NoError(t, err)
					dialed <- d
				}()
				<-h.pairs[i].sync.began // OPEN raises the epoch
				h.network(i).Down()
				release()
				h.network(i).Up()
				d := <-dialed
				require.NotNil(t, d)
				h.nothingCopied(d)
				require.NoError(t, d.Close())
				for len(h.pairs[i].sync.began) > 0 {
					<-h.pairs[i].sync.began
				}
			}
		})
	}
}

// A life that was killed before its first generation was active goes on, too.
func TestMirrorKilledAtItsBeginning(t *testing.T) {
	h := newMirrorHost(t, 2)
	d, c := h.run()
	h.write(c, 0, block)
	require.NoError(t, d.Close())
	d, _ = h.run()
	h.kill(d)
	h.change(func(hd *header) { hd.Mirror.Pending, hd.Mirror.Active = true, 0 })
	d, c = h.run()
	h.nothingCopied(d)
	h.readsAll(c)
	require.NoError(t, d.Close())
}

// A start that could not open the members leaves nothing behind.
func TestMirrorStartLeavesNothing(t *testing.T) {
	synctest.Test(t, testMirrorStartLeavesNothing) // a start that comes to nothing in its time has made no directory yet
}

func testMirrorStartLeavesNothing(t *testing.T) {
	h := newMirrorHost(t, 2)
	h.network(1).Down()
	ctx, stop := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer stop()
	_, err := Dial(ctx, h.cfg)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	for _, dir := range []string{h.cfg.WindowDir, h.cfg.StateDir} {
		left, err := os.ReadDir(dir)
		require.NoError(t, err)
		require.Empty(t, left)
	}
	h.network(1).Up()
	d, _ := h.run()
	require.NoError(t, d.Close())
}

// A reboot of the host ends all clients that it had, so the lost window is no loss.
func TestMirrorAfterABoot(t *testing.T) {
	h := newMirrorHost(t, 2)
	h.cfg.LocalClients = true
	d, c := h.run()
	h.write(c, 0, block)
	require.NoError(t, c.Do(c.Flush()))
	h.kill(d)
	h.loseWindow()
	h.refused("did not close the mirror on log at")
	h.boot()
	h.cfg.LocalClients, h.cfg.Takeover = false, true // the lease has tests of its own
	h.refused("did not close the mirror on log at")
	h.cfg.LocalClients = true
	d, c = h.run()
	h.readsAll(c)
	h.comesBack(d)
	require.NoError(t, d.Close())
}
