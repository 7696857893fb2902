package remote

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"pmnbd/backend"
	"pmnbd/backend/backendtest"
	"pmnbd/internal/mirror"
	"pmnbd/persist"
	"pmnbd/persist/region"
	"pmnbd/rdma/rdmafake"
)

// wipe has the region of leg i lose its contents, as region clear does.
func (s pairs) wipe(t testing.TB, i int) {
	require.NoError(t, s[i].region.Update(func(sb *region.Superblock) error {
		sb.Contents[0]++
		return nil
	}))
	clear(s[i].region.Data())
}

// A member of F that was of no use is asked again, after pauses that grow, if there would be too few copies
// without it. The device goes on when it is back: at once if it has its contents, else when it has got them
// again (mirror §3.6).
func TestNeededMemberIsAskedAgain(t *testing.T) {
	for name, c := range map[string]struct {
		cause error
		lost  bool
	}{
		"it has what it had":             {cause: &lastingError{errors.New("refused, for a test")}},
		"its region failed, was cleared": {cause: &BarrierError{}, lost: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := fakesOf(t, 2, 2, rdmafake.Config{})
				d := s.dialImpatient(t, 1)
				client := backendtest.NewClient(t, d)
				require.NoError(t, client.Do(client.Write(0, backendtest.Pattern(block, 1), 0), client.Flush()))
				d.legs[1].lanes[0].abort(c.cause)
				flush := client.Flush()
				client.Submit(client.Write(stripe, backendtest.Pattern(block, 2), 0), flush)
				if c.lost {
					epoch := s[1].region.Superblock().Epoch
					time.Sleep(10 * time.Minute)
					require.False(t, flush.Completed())
					asked := s[1].region.Superblock().Epoch - epoch
					require.Greater(t, asked, uint64(5), "it is not asked again")
					require.Less(t, asked, uint64(30), "the pauses do not grow")
					s.wipe(t, 1)
				}
				require.NoError(t, client.Wait(flush))
				require.Equal(t, persist.Members(3), d.equal())
				for off, want := range map[uint64]uint32{0: 1, stripe: 2} {
					for i := range s {
						require.Equal(t, backendtest.Pattern(block, want), s[i].region.Data()[off:off+block], "member %d at %d", i, off)
					}
				}
				for i := range s {
					r := s.record(i)
					require.Equal(t, persist.Members(3), r.F)
					require.Equal(t, s[1].region.Superblock().Contents, r.Members[1].Contents)
				}
				require.NoError(t, d.Close())
				d = s.dial(t, 1)
				require.Equal(t, persist.Members(3), d.equal(), "the end was clean")
				require.NoError(t, d.Close())
			})
		})
	}
}

// While such a member gets its contents no FLUSH succeeds, nobody reads from it, and its record and that of
// the other one name what it had: a start takes it for one without the data.
func TestRegainingMemberCountsNothing(t *testing.T) {
	synctest.Test(t, testRegainingMemberCountsNothing)
}

func testRegainingMemberCountsNothing(t *testing.T) {
	s := fakesOf(t, 2, 2, rdmafake.Config{})
	d := s.slowly(t, 1, 1)
	c := backendtest.NewClient(t, d)
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0), c.Flush()))
	before := s.record(1)
	s.network(0).Down()
	s.wipe(t, 0)
	s.network(0).Up()
	flush, read := c.Flush(), c.Read(0, block, 0)
	c.Submit(c.Write(stripe, backendtest.Pattern(block, 2), 0), flush)
	time.Sleep(time.Minute)
	require.False(t, flush.Completed())
	require.Equal(t, persist.Members(2), d.equal())
	require.NoError(t, c.Do(read))
	require.Equal(t, backendtest.Pattern(block, 1), read.Got)
	require.Equal(t, before, s.record(1))
	require.Equal(t, before.Members, s.record(0).Members)
	require.ErrorIs(t, d.Close(), ErrUnequal)
}

// A life that is killed while a member regains its contents goes on with that.
func TestKilledWhileAMemberRegains(t *testing.T) {
	h := newMirrorHostOf(t, 2, 2)
	h.cfg.ResyncRate = 1
	d, c := h.run()
	h.write(c, 0, 4*block)
	require.NoError(t, c.Do(c.Flush()))
	h.network(1).Down()
	h.wipe(t, 1)
	h.network(1).Up()
	require.Eventually(t, func() bool { return d.equal() == 1 }, patience, tick)
	h.write(c, stripe, 3*block)
	h.kill(d)
	h.cfg.ResyncRate = uint64(regionSize / (3 * unequalLook).Seconds()) // the replay looks in the middle of the copy
	d, c = h.run()
	h.readsAll(c)
	h.nothingCopied(d)
	h.has(h.all())
	require.NoError(t, d.Close())
	require.Equal(t, h.pairs[1].region.Superblock().Contents, new(h.record(0)).Members[1].Contents)
}

// A mirror that has lost the contents of its last equal member fails, however few copies would remain without
// it: nobody can bring the data back (mirror §4.5). From then on no target is asked to grant anything.
func TestLastEqualMemberLosesItsContents(t *testing.T) {
	for name, c := range map[string]struct {
		legs      int
		minCopies uint8
		first     persist.Members // they are let go, or lose their contents, before A does
		refused   bool            // A's region fails first
	}{
		"the others were let go":          {legs: 2, minCopies: 1, first: 2},
		"behind a failure of its region":  {legs: 2, minCopies: 1, first: 2, refused: true},
		"M needs one that is half copied": {legs: 2, minCopies: 2, first: 2},
		"all others are half copied":      {legs: 3, minCopies: 3, first: 6},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := fakesOf(t, c.legs, c.minCopies, rdmafake.Config{})
				d := s.slowly(t, 1, 1)
				client := backendtest.NewClient(t, d)
				require.NoError(t, client.Do(client.Write(0, backendtest.Pattern(block, 1), 0), client.Flush()))
				for i := 1; i < c.legs; i++ {
					s.network(i).Down()
					if c.minCopies > 1 {
						s.wipe(t, i)
						s.network(i).Up()
					}
				}
				require.Eventually(t, func() bool { return d.equal() == 1 }, patience, tick)
				if c.refused {
					d.legs[0].lanes[0].abort(&BarrierError{})
				}
				s.network(0).Down()
				synctest.Wait() // until then a FLUSH with nothing to flush succeeds
				s.wipe(t, 0)
				s.network(0).Up()
				read, flush := client.Read(0, block, 0), client.Flush()
				client.Submit(read, flush)
				time.Sleep(time.Minute)
				require.Equal(t, StateFailed, d.Snapshot().State)
				require.ErrorIs(t, d.core.failed(), mirror.ErrNoneEqual)
				require.ErrorIs(t, client.Wait(read), backend.ErrFailed)
				require.ErrorIs(t, client.Wait(flush), backend.ErrFailed)
				epoch := s[0].region.Superblock().Epoch
				time.Sleep(time.Hour)
				require.Equal(t, epoch, s[0].region.Superblock().Epoch, "it is asked again")
				backendtest.AllBack(t, d)
				require.Error(t, d.Close())
			})
		})
	}
}

// A life that is killed meanwhile ends in the next run, as a loss.
func TestKilledBeforeTheLastEqualMemberLosesItsContents(t *testing.T) {
	h := newMirrorHost(t, 2)
	h.cfg.LegTimeout = 1
	d, c := h.run()
	h.network(1).Down()
	h.write(c, 0, block)
	require.NoError(t, c.Do(c.Flush()))
	h.write(c, stripe, block)
	h.kill(d)
	h.wipe(t, 0)
	_, err := Dial(t.Context(), h.cfg)
	require.ErrorAs(t, err, new(*LossError))
	require.ErrorContains(t, err, "its contents were lost")
	h.network(1).Up()
}
