package remote

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"pmnbd/backend/backendtest"
	"pmnbd/persist"
	"pmnbd/rdma"
	"pmnbd/rdma/rdmafake"
)

// A device whose FLUSHes wait for a resync of hours does not wait for it when it is closed. Its writes
// are on all members of F, and the next life compares these in full.
func TestCloseBeforeMembersAreEqual(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fakesOf(t, 2, 2, rdmafake.Config{})
		d := s.dialImpatient(t, 1)
		c := backendtest.NewClient(t, d)
		require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(stripe, 1), 0), c.Flush()))
		s.die(t, d)
		d = s.slowly(t, 1, 1)
		c = backendtest.NewClient(t, d)
		time.Sleep(time.Second) // the barrier of the first chunk is over, and hours pass before that of the second
		flush := c.Flush()
		c.Submit(c.Write(0, backendtest.Pattern(block, 2), 0), flush)
		time.Sleep(time.Minute)
		require.False(t, flush.Completed())
		began := time.Now()
		require.ErrorIs(t, d.Close(), ErrUnequal)
		require.Less(t, time.Since(began), time.Minute)
		require.True(t, flush.Completed())
		for i := range s {
			require.Equal(t, backendtest.Pattern(block, 2), s[i].region.Data()[:block], "member %d", i)
			require.Equal(t, persist.Members(3), s.record(i).F)
			require.False(t, s[i].region.Superblock().Clean, "nobody may take them for equal")
		}
		d = s.dialImpatient(t, 1)
		require.Equal(t, persist.Members(1), d.equal())
		s.inSync(t, d)
		require.NoError(t, d.Close())
	})
}

// A run that adopts the window of one whose members were not equal does not wait for a resync either.
func TestAdoptionBeforeMembersAreEqual(t *testing.T) {
	h := newMirrorHostOf(t, 2, 2)
	d, c := h.run()
	h.write(c, 0, 4*block)
	require.NoError(t, c.Do(c.Flush()))
	h.paused(func() {
		h.write(c, stripe, 3*block)
		h.kill(d)
	})
	h.change(func(hd *header) { hd.Mirror.Equal = 2 }) // as where A was copied to
	clear(h.pairs[0].region.Data()[:block])            // and does not have this yet
	h.cfg.ResyncRate = 1
	d, c = h.run()
	require.Equal(t, persist.Members(2), d.equal(), "the source is the one that clients read from")
	h.readsAll(c)
	h.has(2)
	h.kill(d)
	require.Equal(t, persist.Members(3), h.left().Mirror.Active)
	h.cfg.ResyncRate = 0
	d, c = h.run()
	h.readsAll(c)
	h.comesBack(d)
	require.NoError(t, d.Close())
	require.Equal(t, windowDrained, h.left().State)
}

// An adoption ends with its equal members in sync, where enough of them are: it waits until the one that is away is back,
// and until the arbiter has answered. Else clients would wait for a comparison.
func TestAdoptionWithEnoughEqual(t *testing.T) {
	for name, c := range map[string]struct {
		away, connects, answers time.Duration
		written                 bool
	}{
		"a member is away for a second":     {away: time.Second},
		"the same, with writes":             {away: time.Second, written: true},
		"it takes time to connect":          {connects: 150 * time.Millisecond},
		"the arbiter takes time":            {answers: 150 * time.Millisecond},
		"the same, with writes in a window": {answers: 150 * time.Millisecond, written: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newMirrorHostOf(t, 3, 2)
				if c.answers != 0 {
					h.cfg.Arbiter = slowArbiter{newFakeArbiter(), c.answers}
				}
				h.cfg.LegTimeout = 10 * time.Second
				d, client := h.run()
				h.write(client, 0, 4*block)
				require.NoError(t, client.Do(client.Flush()))
				h.paused(func() {
					if c.written {
						h.write(client, stripe, 3*block)
					}
					h.kill(d)
				})
				h.change(func(hd *header) { hd.Mirror.Equal = 3 }) // C was being compared
				h.cfg.ResyncRate = 1
				for i := range h.cfg.Members {
					m := &h.cfg.Members[i]
					m.Provider = wrapped{m.Provider, func(conn rdma.Conn) rdma.Conn {
						time.Sleep(c.connects)
						return conn
					}}
				}
				if c.away != 0 {
					h.network(1).Down()
					time.AfterFunc(c.away, func() { h.up(1) })
				}
				d, client = h.run()
				flush := client.Flush()
				client.Submit(flush)
				time.Sleep(time.Minute)
				require.True(t, flush.Completed(), "it waits until C has been compared")
				require.NoError(t, client.Wait(flush))
				require.Equal(t, persist.Members(3), d.equal())
				h.readsAll(client)
				h.kill(d)
			})
		})
	}
}
