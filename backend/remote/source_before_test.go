package remote

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"pmnbd/backend/backendtest"
	"pmnbd/internal/mirror"
	"pmnbd/persist"
	"pmnbd/persist/wire"
	"pmnbd/rdma"
)

// readEarly is a place where one member has bytes that were acknowledged and not flushed: the others do not have them.
const readEarly = 6 << 20

// differs has member i, the source, have such bytes.
func (h *mirrorHost) differs(i int) {
	copy(h.pairs[i].region.Data()[readEarly:][:block], backendtest.Pattern(block, 99))
	copy(h.want[readEarly:], backendtest.Pattern(block, 99))
}

// losesSource has the run of d killed while A is its source, and A is away then.
func (h *mirrorHost) losesSource(d *Device) {
	h.kill(d)
	h.change(func(hd *header) { hd.Mirror.Equal = 1 })
	h.differs(0)
	h.network(0).Down()
}

// cutAt has the network of member i go down with the first message of a type that comes to its target.
func (h *mirrorHost) cutAt(i int, is func(msg []byte) bool) (cut *atomic.Bool) {
	network := h.network(i)
	cut = new(atomic.Bool)
	h.tap(i, func(wr *rdma.WorkRequest) {
		if wr.Op == rdma.OpSend && is(message(wr)) && !cut.Swap(true) {
			network.Down()
		}
	})
	h.cfg.Members[i].Provider = h.pairs[i].provider
	return cut
}

// message is what a Send posts.
func message(wr *rdma.WorkRequest) []byte {
	if wr.Local.Region != nil {
		return wr.Local.Region.Mem[wr.Local.Off:][:wr.Local.Len]
	}
	return wr.Inline
}

func isOf(typ wire.Type) func(msg []byte) bool {
	return func(msg []byte) bool {
		t, err := wire.TypeOf(msg)
		return err == nil && t == typ
	}
}

var isRecord = isOf(wire.TypeRecord)

func isOpen(msg []byte) bool { // and no probe
	var m wire.Open
	t, err := wire.TypeOf(msg)
	return err == nil && t == wire.TypeOpen && m.Decode(msg) == nil && m.Epoch != 0
}

// Clients have read from the source of a life that ends before the others have its bytes. The next run under the same
// window, to which they are attached still, reads from no other member (mirror §4.4).
func TestSourceOfTheLifeBefore(t *testing.T) {
	for name, end := range map[string]func(h *mirrorHost, d *Device){
		"killed": func(h *mirrorHost, d *Device) { h.kill(d) },
		"closed": func(h *mirrorHost, d *Device) { require.ErrorIs(h.t, d.Close(), ErrUnequal) },
	} {
		for when, tt := range map[string]struct {
			lose func(h *mirrorHost)
			wait time.Duration // as long the next run does not begin
		}{
			"it is away":                            {func(h *mirrorHost) { h.network(0).Down() }, time.Minute},
			"it is lost before the next generation": {func(h *mirrorHost) { h.cutAt(0, isRecord) }, 2 * ages},
		} {
			t.Run(name+", "+when, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					h := newMirrorHostOf(t, 3, 2)
					h.cfg.LocalClients, h.cfg.Takeover, h.cfg.LegTimeout = true, true, ages
					d, c := h.run()
					h.write(c, 0, block)
					require.NoError(t, c.Do(c.Flush()))
					h.kill(d)
					h.loseWindow()
					h.boot()
					h.differs(0)
					h.cfg.ResyncRate = 1
					d, c = h.run()
					h.readsAll(c)
					end(h, d)
					h.cfg.Takeover = false
					tt.lose(h)
					ctx, cancel := context.WithTimeout(t.Context(), tt.wait)
					defer cancel()
					_, err := Dial(ctx, h.cfg)
					require.ErrorIs(t, err, context.DeadlineExceeded)
					h.up(0)
					d, c = h.run()
					h.readsAll(c)
					h.kill(d)
				})
			})
		}
	}
}

// Nor does the one behind a start that ended before it had a generation.
func TestSourceBehindAStartInVain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newMirrorHostOf(t, 2, 2)
		d, c := h.run()
		h.write(c, 0, block)
		require.NoError(t, c.Do(c.Flush()))
		h.kill(d)
		h.change(func(hd *header) { hd.Mirror.Equal = 2 }) // as where B was the source
		h.differs(1)
		h.cfg.ResyncRate = 1
		d, c = h.run()
		h.readsAll(c)
		h.kill(d)
		cut := h.cutAt(1, isOpen)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := Dial(ctx, h.cfg)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.True(t, cut.Load())
		h.up(1)
		d, c = h.run()
		h.readsAll(c)
		h.kill(d)
	})
}

// It opens none of the others while it waits, because it would learn nothing by that (mirror §4.1).
func TestWaitForTheSourceOpensNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newMirrorHostOf(t, 3, 2)
		d, c := h.run()
		h.write(c, 0, block)
		require.NoError(t, c.Do(c.Flush()))
		h.losesSource(d)
		waits := func() (epochs [2]uint64) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			_, err := Dial(ctx, h.cfg)
			require.ErrorContains(t, err, "clients have read from there")
			return [2]uint64{h.pairs[1].region.Superblock().Epoch, h.pairs[2].region.Superblock().Epoch}
		}
		require.Equal(t, waits(), waits())
		h.up(0)
		d, c = h.run()
		h.readsAll(c)
		h.kill(d)
	})
}

// It waits no longer once another initiator has had the mirror: the source could not help then.
func TestWaitForTheSourceBesideAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newMirrorHostOf(t, 3, 2)
		d, c := h.run()
		h.write(c, 0, block)
		require.NoError(t, c.Do(c.Flush()))
		h.losesSource(d)
		dialed := make(chan error, 1)
		go func() {
			_, err := Dial(t.Context(), h.cfg)
			dialed <- err
		}()
		time.Sleep(time.Minute)
		require.Empty(t, dialed)
		other := h.record(1)
		other = mirror.Descend(&other, persist.Generation{Life: other.Life + 1, Count: 1, Nonce: [16]byte{9}}, h.all())
		for slot := 1; slot < 3; slot++ { // A was there with the other one, and is away again
			r := other
			r.Slot = uint8(slot)
			require.NoError(t, h.pairs[slot].region.SetRecord(r, 0))
		}
		time.Sleep(time.Minute)
		require.NotEmpty(t, dialed)
		err := <-dialed
		require.ErrorAs(t, err, new(*LossError))
		require.ErrorContains(t, err, "somebody else had")
		h.up(0)
	})
}

// If an operator says that no client is attached any more, it waits for --leg-timeout, and then reads from another
// member. What such a client has is another device then.
func TestSourceOfTheLifeBeforeIsGivenUp(t *testing.T) {
	for name, back := range map[string]time.Duration{"it stays away": time.Hour, "it comes back": time.Minute / 2} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newMirrorHostOf(t, 3, 2)
				h.cfg.LegTimeout = time.Minute
				d, c := h.run()
				h.write(c, 0, block)
				require.NoError(t, c.Do(c.Flush()))
				lineage := d.file.header().Lineage
				h.losesSource(d)
				h.cfg.AcceptLoss = true
				defer time.AfterFunc(back, func() { h.up(0) }).Stop()
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
				defer cancel()
				d, err := Dial(ctx, h.cfg)
				require.NoError(t, err)
				lost := back > h.cfg.LegTimeout
				require.Equal(t, lost, d.file.header().Lineage != lineage)
				c = backendtest.NewClient(t, d)
				r := c.Read(0, block, 0)
				require.NoError(t, c.Do(r))
				require.Equal(t, h.want[:block], r.Got)
				if !lost {
					h.readsAll(c)
				}
				h.kill(d)
				h.cfg.AcceptLoss = false
				d, _ = h.run() // what was accepted is not asked for again
				require.NoError(t, d.Sync(t.Context()))
				require.NoError(t, d.Close())
				h.up(0)
			})
		})
	}
}

// But not with it what clients wrote and nobody flushed: the window of the run before is adopted, however long the source
// is away. An operator gives that up by saying that members are gone for good, too (TestNeededMembersAreGoneForGood).
func TestWindowIsNotGivenUpWithTheSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newMirrorHostOf(t, 3, 2)
		h.cfg.LegTimeout = time.Minute
		d, c := h.run()
		h.write(c, 0, block)
		require.NoError(t, c.Do(c.Flush()))
		h.write(c, stripe, block)
		h.losesSource(d)
		h.cfg.AcceptLoss = true
		ctx, cancel := context.WithTimeout(t.Context(), ages)
		defer cancel()
		_, err := Dial(ctx, h.cfg)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		h.up(0)
		d, c = h.run()
		h.readsAll(c)
		h.kill(d)
	})
}

// It waits for nothing if a member says that the life before was closed: all that were in sync then have the same bytes.
func TestClosedMemberIsAsGoodAsTheSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newMirrorHostOf(t, 3, 2)
		h.cfg.LegTimeout = 1
		d, c := h.run()
		h.write(c, 0, block)
		h.network(2).Down()
		require.NoError(t, c.Do(c.Flush()))
		require.NoError(t, d.Close())
		h.network(1).Down()
		h.up(2)
		h.cfg.ResyncRate = 1
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := Dial(ctx, h.cfg)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.EqualValues(t, 1, h.left().Mirror.Equal, "it copies from A first")
		h.network(0).Down()
		h.up(1)
		h.cfg.ResyncRate = 0
		ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		d, err = Dial(ctx, h.cfg)
		require.NoError(t, err)
		h.readsAll(backendtest.NewClient(t, d))
		require.NoError(t, d.Close())
	})
}

// The disk of the source hangs before the first generation is active. Another member that has the record becomes the
// source, as if it were away.
func TestSourceHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := beating(t, 3, 2)
		cfg := s.config(t)
		cfg.SyncTimeout, cfg.LegTimeout = syncTimeout, time.Minute
		d, err := Dial(t.Context(), cfg)
		require.NoError(t, err)
		c := backendtest.NewClient(t, d)
		require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0), c.Flush()))
		s.die(t, d)
		var release func()
		s.tap(0, func(wr *rdma.WorkRequest) {
			if release == nil && wr.Op == rdma.OpSend && isRecord(message(wr)) {
				release = s[0].sync.block()
			}
		})
		cfg = s.config(t)
		cfg.SyncTimeout, cfg.LegTimeout, cfg.Takeover = syncTimeout, time.Minute, true
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
		defer cancel()
		d, err = Dial(ctx, cfg)
		require.NotNil(t, release)
		release()
		require.NoError(t, err)
		c = backendtest.NewClient(t, d)
		r := c.Read(0, block, 0)
		require.NoError(t, c.Do(r))
		require.Equal(t, backendtest.Pattern(block, 1), r.Got)
		d.inVain()
	})
}

// Two of three members are gone for good, and M is 2. The run ends, and an operator begins with what is left, as
// docs/mirror.md says: that run does not wait for them first, to go on where the other one ended.
func TestNeededMembersAreGoneForGood(t *testing.T) {
	for name, unflushed := range map[string]bool{"nothing is unflushed": false, "writes are unflushed": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newMirrorHostOf(t, 3, 2)
				h.cfg.LegTimeout = ages
				d, c := h.run()
				h.write(c, 0, block)
				require.NoError(t, c.Do(c.Flush()))
				h.network(1).Down()
				h.network(2).Down()
				if unflushed {
					require.NoError(t, c.Do(c.Write(stripe, backendtest.Pattern(block, 7), 0)))
				}
				lineage := d.file.header().Lineage
				h.kill(d)
				h.cfg.Degraded, h.cfg.AcceptLoss = true, true
				back := time.AfterFunc(3*ages, func() { h.up(2) }) // FLUSH needs two copies
				defer back.Stop()
				ctx, cancel := context.WithTimeout(t.Context(), 6*ages)
				defer cancel()
				d, err := Dial(ctx, h.cfg)
				require.NoError(t, err)
				c = backendtest.NewClient(t, d)
				r := c.Read(0, block, 0)
				require.NoError(t, c.Do(r))
				require.Equal(t, h.want[:block], r.Got)
				require.NotEqual(t, lineage, d.file.header().Lineage, "it went on with what the run before had")
				h.kill(d)
			})
		})
	}
}
