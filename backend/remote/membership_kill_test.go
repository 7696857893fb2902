package remote

import (
	"context"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"pmnbd/persist"
	"pmnbd/persist/target"
	"pmnbd/rdma/rdmafake"
)

// killedIn kills a run in a change of the members or of M, which not all of F have durably, and returns
// the next run, which has finished the change.
func (h *mirrorHost) killedIn(slow int, change func(d *Device) error) *Device {
	h.t.Helper()
	d, c := h.run()
	h.write(c, 0, block)
	require.NoError(h.t, c.Do(c.Flush()))
	h.write(c, stripe, block)
	release := h.pairs[slow].sync.block()
	ended := make(chan error, 1)
	go func() { ended <- change(d) }()
	<-h.pairs[slow].sync.began
	h.kill(d)
	require.Error(h.t, <-ended)
	release()
	left := h.left()
	require.True(h.t, left.Mirror.Pending)
	require.NotZero(h.t, left.Mirror.Before)
	d, c = h.run()
	h.readsAll(c)
	for i := range 2 {
		r := h.record(i)
		require.Equal(h.t, left.Mirror.Record.Present(), r.Present())
		require.Equal(h.t, left.Mirror.Record.MinCopies, r.MinCopies)
		require.Contains(h.t, r.Lineage, left.Mirror.Record.Ancestor)
	}
	return d
}

// A life that was killed while it removed a member, or changed M, finishes that (mirror §4.5, §4.9).
func TestMirrorKilledInARemoval(t *testing.T) {
	for _, slow := range []int{0, 1} {
		t.Run(persist.Member(slow).String(), func(t *testing.T) {
			h := newMirrorHost(t, 3)
			d := h.killedIn(slow, func(d *Device) error {
				_, err := d.RemoveMember(context.Background(), 2)
				return err
			})
			require.Equal(t, persist.Members(3), d.equal())
			sb := h.pairs[2].region.Superblock()
			require.Zero(t, sb.Record, "it was told that it is out")
			require.True(t, sb.Clean)
			require.NoError(t, d.Close())
			require.Equal(t, sb, h.pairs[2].region.Superblock(), "nobody writes to it")
		})
		t.Run(persist.Member(slow).String()+", M", func(t *testing.T) {
			h := newMirrorHost(t, 3)
			d := h.killedIn(slow, func(d *Device) error { return d.SetMinCopies(context.Background(), 2) })
			require.Equal(t, h.all(), d.equal())
			require.NoError(t, d.Close())
		})
	}
}

// One that was killed before it had told a removed member does so in its next run.
func TestMirrorKilledBeforeAFarewell(t *testing.T) {
	h := newMirrorHost(t, 3)
	d, c := h.run()
	h.write(c, 0, block)
	require.NoError(t, c.Do(c.Flush()))
	h.network(2).Pause()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = d.RemoveMember(context.Background(), 2) // the kill ends it
	}()
	require.Eventually(t, func() bool {
		d.core.commit.mu.Lock()
		defer d.core.commit.mu.Unlock()
		v := &d.core.copies.view
		return !v.Pending && v.Active == 3
	}, patience, tick)
	h.write(c, stripe, block)
	h.kill(d)
	<-ended
	h.network(2).Resume()
	require.NotZero(t, h.record(2))
	d, c = h.run()
	h.readsAll(c)
	require.Zero(t, h.record(2))
	require.NoError(t, d.Close())
}

// One that was killed while it added a member finishes that, too, and copies everything to the member,
// if the start names its target.
func TestMirrorKilledInAnAddition(t *testing.T) {
	for name, slow := range map[string]int{"before A has the record": 0, "before B has it": 1} {
		t.Run(name, func(t *testing.T) {
			h := newMirrorHost(t, 2)
			fresh := pairs{newPair(t, rdmafake.New(rdmafake.Config{}), "fake:new", "", target.Config{})}
			cfg := fresh.config(t)
			p, err := PrepareMember(context.Background(), cfg, uuid.UUID{0xee}, regionSize, false)
			require.NoError(t, err)
			add := func(d *Device) error {
				_, err := d.AddMember(context.Background(), cfg.Members[0], p)
				return err
			}
			d := h.killedIn(slow, func(d *Device) error {
				h.cfg.Members = append(h.cfg.Members, cfg.Members[0]) // of the next run
				return add(d)
			})
			h.pairs = append(h.pairs, fresh[0])
			h.comesBack(d)
			require.NoError(t, d.Close())
		})
	}
	t.Run("before the member has its record", func(t *testing.T) {
		h := newMirrorHost(t, 2)
		fresh := pairs{newPair(t, rdmafake.New(rdmafake.Config{}), "fake:new", "", target.Config{})}
		cfg := fresh.config(t)
		p, err := PrepareMember(context.Background(), cfg, uuid.UUID{0xee}, regionSize, false)
		require.NoError(t, err)
		d, c := h.run()
		h.write(c, 0, block)
		release := fresh[0].sync.block()
		_, err = d.AddMember(context.Background(), cfg.Members[0], p)
		require.NoError(t, err)
		<-fresh[0].sync.began // OPEN raises the epoch
		h.kill(d)
		release()
		h.cfg.Members = append(h.cfg.Members, cfg.Members[0])
		h.pairs = append(h.pairs, fresh[0])
		d, _ = h.run()
		h.comesBack(d)
		require.NoError(t, d.Close())
	})
}

// A region that somebody else had after it was looked at is not taken, and neither is one that is too
// small, holds data, or is a member.
func TestAddMemberIsRefused(t *testing.T) {
	ctx, set := context.Background(), uuid.UUID{0xee}
	s := fakesOf(t, 2, 1, rdmafake.Config{})
	d := s.dial(t, 1)
	fresh := pairs{newPair(t, rdmafake.New(rdmafake.Config{}), "fake:new", "", target.Config{})}
	cfg := fresh.config(t)
	_, err := PrepareMember(ctx, cfg, set, regionSize*2, false)
	require.ErrorContains(t, err, "of one size")
	p, err := PrepareMember(ctx, cfg, set, regionSize, false)
	require.NoError(t, err)
	_, err = PrepareMember(ctx, cfg, set, regionSize, false) // as somebody else
	require.NoError(t, err)
	_, err = d.AddMember(ctx, cfg.Members[0], p)
	require.ErrorContains(t, err, "try again")
	fresh[0].region.Data()[3<<20] = 1
	_, err = PrepareMember(ctx, cfg, set, regionSize, false)
	require.ErrorAs(t, err, new(*DataError))
	require.True(t, fresh[0].region.Superblock().Clean)
	_, err = PrepareMember(ctx, cfg, set, regionSize, true)
	require.NoError(t, err)
	require.NoError(t, d.Close())
	_, err = PrepareMember(ctx, s[:1].config(t), set, regionSize, false)
	require.ErrorAs(t, err, new(*DataError))
	_, err = PrepareMember(ctx, s[:1].config(t), uuid.UUID{1}, regionSize, true)
	require.ErrorContains(t, err, "is a member of mirror")
	p, err = PrepareMember(ctx, s[:1].config(t), set, regionSize, true)
	require.NoError(t, err)
	require.Zero(t, s.record(0))
	require.Equal(t, s[0].region.Superblock().Epoch, p.Epoch)
}

// A discard that was interrupted can be run again. The next start copies everything to the member.
func TestDiscard(t *testing.T) {
	for name, half := range map[string]bool{"at once": false, "in two goes": true} {
		t.Run(name, func(t *testing.T) {
			ctx := context.Background()
			s := fakesOf(t, 2, 1, rdmafake.Config{})
			for i := range s {
				s.network(1 - i).Down()
				cfg := s.config(t)
				cfg.Degraded = true
				d, err := Dial(ctx, cfg)
				require.NoError(t, err)
				require.NoError(t, d.Close())
				s.network(1 - i).Up()
			}
			_, err := Dial(ctx, s.config(t))
			require.ErrorAs(t, err, new(*MirrorError))
			x, err := FindDiscard(ctx, s.config(t), 1)
			require.NoError(t, err)
			require.Equal(t, "A", x.Member)
			require.Equal(t, "B", x.KeptBy)
			require.Empty(t, x.Also)
			if half {
				c, o, err := x.open(ctx)
				require.NoError(t, err)
				require.NoError(t, x.leg.renounce(ctx, &c, o.Epoch))
				require.NoError(t, c.conn.Close())
				require.NoError(t, x.Close())
				require.Zero(t, s.record(0))
				x, err = FindDiscard(ctx, s.config(t), 1)
				require.NoError(t, err)
			}
			require.NoError(t, x.Do(ctx))
			require.NoError(t, x.Close())
			require.True(t, s.record(0).Torn)
			s[0].region.Data()[0] ^= 1 // whatever it has
			d := s.dial(t, 1)
			require.Eventually(t, func() bool { return d.equal() == 3 }, patience, tick)
			require.True(t, string(s[0].region.Data()) == string(s[1].region.Data()))
			require.NoError(t, d.Close())
			_, err = FindDiscard(ctx, s.config(t), 1)
			require.ErrorContains(t, err, "did not go its own way")
		})
	}
}
