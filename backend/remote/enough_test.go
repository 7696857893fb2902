package remote

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"pmnbd/backend/backendtest"
	"pmnbd/persist"
	"pmnbd/rdma/rdmafake"
)

// dialPartlyEqual begins a life behind a crash, and waits until A and B are equal and the others are still being
// compared with them.
func (s pairs) dialPartlyEqual(t *testing.T, change func(*Config)) (*Device, *backendtest.Client) {
	t.Helper()
	d := s.dialImpatient(t, 1)
	c := backendtest.NewClient(t, d)
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(stripe, 1), 0), c.Flush()))
	s.die(t, d)
	cfg := s.config(t)
	cfg.ResyncRate, cfg.LegTimeout = chunkSize, 10*time.Second
	if change != nil {
		change(&cfg)
	}
	d, err := Dial(t.Context(), cfg)
	require.NoError(t, err)
	c = backendtest.NewClient(t, d)
	for d.equal() != 3 {
		for i := 2; i < len(s); i++ {
			s.network(i).Cut() // its comparison starts again
		}
		time.Sleep(5 * time.Second)
	}
	require.Equal(t, persist.Member(len(s))-1, s.record(0).F)
	return d, c
}

// While an equal member is away no generation of the equal members alone begins: it would need that member, and
// others of F can have everything first (mirror §4.4).
func TestEnoughWithoutOneThatIsAway(t *testing.T) {
	for name, legs := range map[string]int{"three members": 3, "four members": 4} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := fakesOf(t, legs, 2, rdmafake.Config{})
				d, c := s.dialPartlyEqual(t, nil)
				defer d.inVain()
				s.network(1).Down()
				synctest.Wait() // the loss is known
				flush := c.Flush()
				c.Submit(c.Write(0, backendtest.Pattern(block, 2), 0), flush)
				s.network(2).Cut() // the mirror looks what it can do
				time.Sleep(ages)
				require.True(t, flush.Completed(), "it waits for a member that is gone")
				require.NoError(t, c.Wait(flush))
				require.False(t, s.record(0).F.Has(1))
				s.up(1)
				time.Sleep(ages)
				require.Equal(t, persist.Member(legs)-1, d.equal())
				backendtest.AllBack(t, d)
				require.NoError(t, d.Close())
			})
		})
	}
}

// It begins once that member is back.
func TestEnoughWhenItIsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fakesOf(t, 4, 2, rdmafake.Config{})
		d, c := s.dialPartlyEqual(t, nil)
		defer d.inVain()
		s.network(1).Down()
		synctest.Wait()
		flush := c.Flush()
		c.Submit(c.Write(0, backendtest.Pattern(block, 2), 0), flush)
		s.network(2).Cut()
		time.Sleep(time.Second)
		_, pending := d.pending()
		require.False(t, pending)
		s.up(1)
		time.Sleep(time.Second)
		require.True(t, flush.Completed(), "C and D are compared for two minutes")
		require.NoError(t, c.Wait(flush))
		require.Equal(t, persist.Members(3), s.record(0).F)
		time.Sleep(ages)
		require.Equal(t, persist.Members(15), d.equal())
		backendtest.AllBack(t, d)
		require.NoError(t, d.Close())
	})
}

// If that member is lost once the generation has begun, those that it left out are taken back (mirror §3.3). Where M lets
// no majority begin, an operator sets a smaller M.
func TestEnoughIsLostInTheChange(t *testing.T) {
	for name, legs := range map[string]int{"three members": 3, "four members": 4} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := fakesOf(t, legs, 2, rdmafake.Config{})
				d, c := s.dialPartlyEqual(t, nil)
				defer d.inVain()
				release := s[1].sync.block()
				flush := c.Flush()
				c.Submit(flush)
				synctest.Wait() // the record {AB} is on A, and waits for the disk of B
				require.Equal(t, persist.Members(3), s.record(0).F)
				s.network(1).Down()
				release()
				if legs == 4 {
					time.Sleep(ages)
					require.False(t, flush.Completed())
					require.NoError(t, d.SetMinCopies(t.Context(), 1))
				}
				time.Sleep(ages)
				require.True(t, flush.Completed())
				require.NoError(t, c.Wait(flush))
				require.Equal(t, persist.Member(legs)-1-2, s.record(0).F)
				s.up(1)
				time.Sleep(ages)
				require.Equal(t, persist.Member(legs)-1, d.equal())
				backendtest.AllBack(t, d)
				require.NoError(t, d.Close())
			})
		})
	}
}

// A device that is closed does not wait for the comparison of others when no generation of the equal members begins
// either: one of them is away, or the arbiter does not answer.
func TestCloseWithoutEnough(t *testing.T) {
	for name, c := range map[string]struct {
		loses func(s pairs, a *fakeArbiter)
		want  error
	}{
		"a member is away":            {func(s pairs, _ *fakeArbiter) { s.network(1).Down() }, ErrUnequal},
		"the arbiter does not answer": {func(_ pairs, a *fakeArbiter) { a.cutOff(true) }, ErrUnequal},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := beating(t, 4, 2)
				a := newFakeArbiter()
				d, client := s.dialPartlyEqual(t, func(cfg *Config) { cfg.Arbiter = a })
				defer d.inVain()
				s.network(2).Cut()
				s.network(3).Cut()
				time.Sleep(time.Second)
				c.loses(s, a)
				time.Sleep(time.Second)
				flush := client.Flush()
				client.Submit(flush)
				began := time.Now()
				require.ErrorIs(t, d.Close(), c.want)
				require.Less(t, time.Since(began), time.Minute)
				require.True(t, flush.Completed())
				s.up(1)
			})
		})
	}
}

// It waits for the answer of the arbiter, however soon members are let go.
func TestCloseAwaitsTheArbiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := beating(t, 4, 2)
		d, c := s.dialPartlyEqual(t, func(cfg *Config) {
			cfg.Arbiter, cfg.LegTimeout = slowArbiter{newFakeArbiter(), 2500 * time.Millisecond}, time.Second
		})
		defer d.inVain()
		time.Sleep(10 * time.Second) // what it said is not fresh any more
		c.Submit(c.Flush())
		require.NoError(t, d.Close())
	})
}
