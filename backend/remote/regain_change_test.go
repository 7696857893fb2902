package remote

import (
	"bytes"
	"context"
	"math/bits"
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
	"pmnbd/rdma/rdmafake"
)

// changes begins a change of d's mirror, which stays pending while a member of F is away.
func (d *Device) changes(t *testing.T, change func(v *mirror.View) (mirror.View, error)) {
	t.Helper()
	k := d.core.copies
	k.core.commit.mu.Lock()
	defer k.core.commit.mu.Unlock()
	next, err := change(&k.view)
	require.NoError(t, err)
	k.changeLocked(next)
	k.rouse()
}

// up has leg i reach its target again.
func (s pairs) up(i int) {
	p := s[i].provider
	if w, ok := p.(wrapped); ok {
		p = w.Provider
	}
	p.(*rdmafake.Provider).Up()
}

// pending is the newest generation of d, and whether it is pending.
func (d *Device) pending() (persist.Ancestor, bool) {
	d.core.commit.mu.Lock()
	defer d.core.commit.mu.Unlock()
	return d.core.copies.view.Record.Ancestor, d.core.copies.view.Pending
}

// A member that loses its contents while a generation is pending that needs it gets the record all the same.
// The generation becomes active, and then everything is copied to the member: nothing waits for ever (mirror §3.6).
func TestContentsLostWhileAGenerationIsPending(t *testing.T) {
	for name, c := range map[string]struct {
		legs   int
		away   int // it loses its contents
		f      persist.Members
		change func(v *mirror.View) (mirror.View, error)
	}{
		"a member is added": {2, 1, 3, func(v *mirror.View) (mirror.View, error) { return v.Add(3, [16]byte{3}, 1) }},
		"M grows":           {3, 2, 7, func(v *mirror.View) (mirror.View, error) { return v.SetMinCopies(3) }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := fakesOf(t, c.legs, 2, rdmafake.Config{})
				cfg := s.config(t)
				cfg.Lanes = 1
				d, err := Dial(t.Context(), cfg)
				require.NoError(t, err)
				goesOn(t, s, d, func() {
					s.network(c.away).Down()
					time.Sleep(time.Minute)
					d.changes(t, c.change)
				}, c.f)
			})
		})
	}
}

// One that loses its contents again before it has the record that names them is copied to again.
func TestContentsLostBeforeARecordNamesThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fakesOf(t, 2, 2, rdmafake.Config{})
		network := s.network(1)
		var armed atomic.Bool
		s.tap(1, func(wr *rdma.WorkRequest) {
			if wr.Op != rdma.OpSend || wr.Local.Region == nil {
				return
			}
			if typ, err := wire.TypeOf(wr.Local.Region.Mem[wr.Local.Off:][:wr.Local.Len]); err == nil && typ == wire.TypeRecord && armed.Swap(false) {
				network.Down()
			}
		})
		cfg := s.config(t)
		cfg.Lanes = 1
		d, err := Dial(t.Context(), cfg)
		require.NoError(t, err)
		goesOn(t, s, d, func() {
			network.Down()
			s.wipe(t, 1)
			armed.Store(true)
			network.Up()
			time.Sleep(time.Minute)
			require.False(t, armed.Load())
		}, 3)
	})
}

// A life that is killed meanwhile goes on with the change, and with the copy.
func TestKilledWhileAMemberRegainsInAChange(t *testing.T) {
	h := newMirrorHostOf(t, 3, 2)
	d, c := h.run()
	h.write(c, 0, 4*block)
	require.NoError(t, c.Do(c.Flush()))
	h.network(2).Down()
	d.changes(t, func(v *mirror.View) (mirror.View, error) { return v.SetMinCopies(3) })
	h.write(c, stripe, 3*block)
	h.kill(d)
	require.True(t, h.left().Mirror.Pending)
	h.wipe(t, 2)
	h.network(2).Up()
	d, c = h.run()
	h.readsAll(c)
	h.nothingCopied(d)
	h.has(h.all())
	require.NoError(t, d.Close())
	r := h.record(0)
	require.Equal(t, h.all(), r.F)
	require.EqualValues(t, 3, r.MinCopies)
	require.Equal(t, h.pairs[2].region.Superblock().Contents, r.Members[2].Contents)
}

// goesOn has the last member of F lose its contents while the generation that pending begins waits for it.
func goesOn(t *testing.T, s pairs, d *Device, pending func(), f persist.Members) {
	defer func() { // where nothing goes on
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = d.Shutdown(ctx)
	}()
	client := backendtest.NewClient(t, d)
	require.NoError(t, client.Do(client.Write(0, backendtest.Pattern(block, 1), 0), client.Flush()))
	pending()
	newest, is := d.pending()
	require.True(t, is)
	require.Equal(t, f, newest.F)
	flush := client.Flush()
	client.Submit(client.Write(stripe, backendtest.Pattern(block, 2), 0), flush)
	last := bits.Len8(uint8(f)) - 1
	s.wipe(t, last)
	s.up(last)
	time.Sleep(ages)
	require.True(t, flush.Completed(), "nothing goes on")
	require.NoError(t, client.Wait(flush))
	require.Equal(t, f, d.equal())
	for i := range s {
		s.up(i)
	}
	time.Sleep(ages)
	require.Equal(t, persist.Member(len(s))-1, d.equal())
	for off, want := range map[uint64]uint32{0: 1, stripe: 2} {
		for i := range s {
			require.True(t, bytes.Equal(backendtest.Pattern(block, want), s[i].region.Data()[off:off+block]), "member %d at %d", i, off)
		}
	}
	require.NoError(t, d.Close())
}
