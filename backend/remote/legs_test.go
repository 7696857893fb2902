package remote

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"pmnbd/backend"
	"pmnbd/backend/backendtest"
	"pmnbd/persist"
	"pmnbd/persist/target"
	"pmnbd/rdma/rdmafake"
)

// A pairs is targets with a region each, on networks of their own.
type pairs []*pair

// fakes makes a mirror of n members that goes on with one.
func fakes(t testing.TB, n int, cfg rdmafake.Config) pairs { return fakesOf(t, n, 1, cfg) }

func fakesOf(t testing.TB, n int, minCopies uint8, cfg rdmafake.Config) (s pairs) {
	for range n {
		s = append(s, fake(t, cfg))
	}
	s.join(t, minCopies)
	return s
}

// beating is fakesOf with heartbeats.
func beating(t testing.TB, n int, minCopies uint8) (s pairs) {
	for range n {
		s = append(s, newPair(t, rdmafake.New(rdmafake.Config{}), "", "", target.Config{Heartbeat: 2 * time.Second, Lease: 10 * time.Second}))
	}
	s.join(t, minCopies)
	return s
}

// join makes the regions the members of a mirror, as pmnbd mirror create does. Its creation is over:
// the lineage has a generation.
func (s pairs) join(t testing.TB, minCopies uint8) {
	r := persist.Record{Set: [16]byte{0xee}, MinCopies: minCopies}
	r.Generation = persist.Generation{Life: 1, Count: 2, Nonce: [16]byte{1}}
	r.Lineage[0] = persist.Ancestor{Generation: persist.Generation{Life: 1, Count: 1, Nonce: [16]byte{1}}, F: persist.Member(len(s)) - 1}
	for slot, p := range s {
		sb := p.region.Superblock()
		r.F |= persist.Member(slot)
		r.Members[slot] = persist.Membership{UUID: p.region.UUID(), Contents: sb.Contents, Epoch: sb.Epoch}
	}
	for slot, p := range s {
		r.Slot = uint8(slot)
		require.NoError(t, p.region.SetRecord(r, 0))
	}
}

func (s pairs) config(t testing.TB) Config {
	cfg := s[0].config(t)
	cfg.Provider, cfg.Addr, cfg.Region, cfg.LossTimeout, cfg.LegTimeout = nil, "", "", 0, time.Hour
	for _, p := range s {
		cfg.Members = append(cfg.Members, Target{Provider: p.provider, Addr: p.addr, Region: "log"})
	}
	return cfg
}

func (s pairs) dial(t testing.TB, lanes int) *Device {
	cfg := s.config(t)
	cfg.Lanes = lanes
	d, err := Dial(context.Background(), cfg)
	require.NoError(t, err)
	return d
}

func (s pairs) network(i int) *rdmafake.Provider { return s[i].provider.(*rdmafake.Provider) }

// A device on several legs is a device.
func TestConformanceOfSeveralLegs(t *testing.T) {
	for name, c := range map[string]struct {
		rdmafake.Config
		legs, lanes int
	}{
		"two legs":                 {legs: 2, lanes: 1},
		"three legs, two lanes":    {legs: 3, lanes: 2},
		"tiny queues, four legs":   {rdmafake.Config{MaxSendWR: 2, MaxReads: 1}, 4, 3},
		"acks overtake, two lanes": {rdmafake.Config{AnswersFirst: true}, 2, 2},
	} {
		t.Run(name, func(t *testing.T) {
			backendtest.Run(t, func(t *testing.T) backend.Device { return fakes(t, c.legs, c.Config).dial(t, c.lanes) })
		})
	}
}

// A leg that is lost stops FLUSHes. READs come from another leg, and writes are taken. Then it has
// what the others have, in their order.
func TestLegComesBack(t *testing.T) {
	for _, lost := range []int{0, 1} {
		t.Run(string(rune('A'+lost)), func(t *testing.T) {
			s := fakes(t, 2, rdmafake.Config{})
			d := s.dial(t, 2)
			c := backendtest.NewClient(t, d)
			require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0)))
			s.network(lost).Down()
			require.Eventually(t, func() bool { return d.Snapshot().State == StateWaiting }, patience, tick)
			require.NoError(t, c.Do(c.Write(100, backendtest.Pattern(block, 2), 0), c.Write(stripe, backendtest.Pattern(block, 3), 0)))
			flush := c.Flush()
			c.Submit(flush)
			read := c.Read(0, 100+block, 0)
			require.NoError(t, c.Do(read), "it comes from the other leg")
			want := append(backendtest.Pattern(block, 1)[:100:100], backendtest.Pattern(block, 2)...)
			require.Equal(t, want, read.Got)
			require.False(t, flush.Completed(), "a leg does not have it")
			s.network(lost).Up()
			require.NoError(t, c.Wait(flush))
			for _, p := range s {
				require.Equal(t, want, p.region.Data()[:len(want)])
				require.Equal(t, backendtest.Pattern(block, 3), p.region.Data()[stripe:][:block])
			}
			require.NoError(t, c.Do(c.Read(0, block, 0)))
			backendtest.AllBack(t, d)
			require.NoError(t, d.Close())
			for _, p := range s {
				require.True(t, p.region.Superblock().Clean)
			}
		})
	}
}

// READs that a leg had not answered when it was lost are answered by another.
func TestReadsMoveToAnotherLeg(t *testing.T) {
	s := fakes(t, 3, rdmafake.Config{MaxReads: 1})
	d := s.dial(t, 2)
	c := backendtest.NewClient(t, d)
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(8*block, 1), 0), c.Flush()))
	s.network(0).Pause()
	var reads []*backendtest.Request
	for i := range 8 {
		reads = append(reads, c.Read(uint64(i*block), block, 0))
	}
	c.Submit(reads...)
	require.NoError(t, c.Do(c.Write(block, backendtest.Pattern(block, 2), 0)))
	behind := c.Read(block, block, 0)
	c.Submit(behind)
	require.False(t, behind.Completed())
	s.network(0).Down()
	require.NoError(t, c.Wait(append(reads, behind)...))
	for i, r := range reads {
		if i != 1 { // it may be answered behind the write
			require.Equal(t, backendtest.Pattern(8*block, 1)[i*block:][:block], r.Got, "read %d", i)
		}
	}
	require.Equal(t, backendtest.Pattern(block, 2), behind.Got)
	s.network(0).Resume()
	s.network(0).Up()
	require.NoError(t, c.Do(c.Flush()))
	backendtest.AllBack(t, d)
	require.NoError(t, d.Close())
}

// A leg that was not reached when the life began has no connection to post on, however much is written.
func TestWritesWithoutALeg(t *testing.T) {
	s := fakesOf(t, 3, 2, rdmafake.Config{})
	s.network(2).Down()
	d := s.dial(t, 2)
	c := backendtest.NewClient(t, d)
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(2*stripe, 1), 0), c.Flush()))
	s.network(2).Up()
	backendtest.AllBack(t, d)
	require.NoError(t, d.Close())
}

// Two members of one mirror are two regions.
func TestTwoMembersAreTwoRegions(t *testing.T) {
	s := fakes(t, 2, rdmafake.Config{})
	_, err := Dial(context.Background(), pairs{s[0], s[0]}.config(t))
	require.ErrorContains(t, err, "one region")
}

// A target whose region is no member takes no member's slot.
func TestStrangerTakesNoSlot(t *testing.T) {
	s := fakes(t, 3, rdmafake.Config{})
	d := s.dialImpatient(t, 1)
	c := backendtest.NewClient(t, d)
	s.network(1).Down()
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0), c.Flush()))
	require.NoError(t, d.Close())
	s[1] = fake(t, rdmafake.Config{}) // the region was made anew
	d = s.dialImpatient(t, 1)
	require.NoError(t, d.Sync(t.Context()))
	for _, i := range []int{0, 2} {
		require.Equal(t, persist.Members(5), s.record(i).F)
		require.Equal(t, i, d.legs[i].slot)
	}
	require.NoError(t, d.Close())
}
