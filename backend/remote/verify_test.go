package remote

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"pmnbd/backend/backendtest"
	"pmnbd/rdma"
	"pmnbd/rdma/rdmafake"
)

// Verify finds the chunk that a member lost behind everybody's back, and just that. It copies only from
// the member that it is told to (mirror §5.7).
func TestVerify(t *testing.T) {
	for name, tt := range map[string]struct {
		legs  int
		rots  int
		at    int
		from  string
		names string // members with digests
	}{
		"the second of two":        {legs: 2, rots: 1, at: 3*verifyChunk + 17, names: "AB"},
		"the first of two":         {legs: 2, rots: 0, at: 0, names: "AB"},
		"the last byte":            {legs: 2, rots: 1, at: regionSize - 1, names: "AB"},
		"one of three":             {legs: 3, rots: 2, at: 5*verifyChunk + 1, names: "AC"},
		"the first of three":       {legs: 3, rots: 0, at: 5 * verifyChunk, names: "ABC"},
		"copied from the first":    {legs: 2, rots: 1, at: 7 * verifyChunk, from: "A", names: "AB"},
		"copied from the second":   {legs: 2, rots: 0, at: 7*verifyChunk - 1, from: "B", names: "AB"},
		"copied to two":            {legs: 3, rots: 1, at: stripe, from: "B", names: "ABC"},
		"copied from one of three": {legs: 3, rots: 1, at: stripe, from: "C", names: "BC"},
	} {
		t.Run(name, func(t *testing.T) {
			s := fakes(t, tt.legs, rdmafake.Config{})
			d := s.dial(t, 2)
			c := backendtest.NewClient(t, d)
			require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(2*stripe, 1), 0), c.Flush()))
			v, err := d.Verify(t.Context(), VerifyOptions{})
			require.NoError(t, err)
			require.Zero(t, v.Different)
			require.Empty(t, v.Differences)
			require.EqualValues(t, regionSize*(tt.legs-1), v.Compared)

			s[tt.rots].region.Data()[tt.at] ^= 1
			syncs := s[0].region.Syncs()
			v, err = d.Verify(t.Context(), VerifyOptions{From: tt.from})
			require.NoError(t, err)
			require.Equal(t, 1, v.Different)
			require.Len(t, v.Differences, 1)
			found := v.Differences[0]
			require.EqualValues(t, tt.at/verifyChunk*verifyChunk, found.Offset)
			require.EqualValues(t, verifyChunk, found.Length)
			names := ""
			for _, letter := range []string{"A", "B", "C"} {
				if found.Digests[letter] != "" {
					names += letter
				}
			}
			require.Equal(t, tt.names, names)
			require.Equal(t, tt.from != "", found.Copied)

			right := s[tt.rots].region.Data()[tt.at] ^ 1
			if tt.from != "" {
				right = s[int(tt.from[0]-'A')].region.Data()[tt.at]
			} else {
				require.Equal(t, syncs, s[0].region.Syncs(), "nothing was changed")
			}
			for i := range s {
				require.Equal(t, tt.from != "" || i != tt.rots, right == s[i].region.Data()[tt.at], "member %d", i)
			}
			v, err = d.Verify(t.Context(), VerifyOptions{})
			require.NoError(t, err)
			require.Equal(t, tt.from == "", v.Different == 1)
			require.Equal(t, len(s), d.Snapshot().Mirror.Copies)
			backendtest.AllBack(t, d)
			require.NoError(t, d.Close())
		})
	}
}

// Clients go on during a Verify. It never takes a write that is on its way for a difference.
func TestVerifyUnderLoad(t *testing.T) {
	for name, cfg := range map[string]rdmafake.Config{
		"the target's CPU places": {},
		"the adapter places":      {PlacesByDMA: true},
		"tiny queues":             {MaxSendWR: 2, MaxReads: 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := fakes(t, 2, cfg)
			d := s.dial(t, 1)
			l := newLoad(t, d, rand.Uint64())
			var stop atomic.Bool
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				for !stop.Load() {
					l.step(t)
				}
			}()
			for range 5 {
				v, err := d.Verify(t.Context(), VerifyOptions{})
				require.NoError(t, err)
				require.Empty(t, v.Differences)
			}
			s[1].region.Data()[regionSize-1] ^= 1 // may be overwritten at any moment
			_, err := d.Verify(t.Context(), VerifyOptions{From: "A"})
			require.NoError(t, err)
			stop.Store(true)
			<-ended
			require.NoError(t, d.Sync(t.Context()))
			require.Equal(t, string(s[0].region.Data()), string(s[1].region.Data()))
			require.Equal(t, string(l.shadow), string(s[1].region.Data()))
			backendtest.AllBack(t, d)
			require.NoError(t, d.Close())
		})
	}
}

// Nothing passes a DIGEST whose answer is to be believed: the target would sum what came later.
func TestNothingPassesAwait(t *testing.T) {
	l := &lane{stream: &stream{}}
	l.digests.n = 2
	require.False(t, l.buildCopyLocked(&item{kind: itemAwait}))
	l.digests.n = 0
	require.True(t, l.buildCopyLocked(&item{kind: itemAwait}))
}

// What is copied is durable before Verify says so.
func TestVerifyCopiesDurably(t *testing.T) {
	s := fakes(t, 2, rdmafake.Config{})
	d := s.dial(t, 1)
	s[1].region.Data()[0] ^= 1
	release := s[1].sync.blockData()
	defer release()
	verified := make(chan error, 1)
	go func() {
		_, err := d.Verify(context.Background(), VerifyOptions{From: "A"})
		verified <- err
	}()
	<-s[1].sync.began
	require.Empty(t, verified)
	release()
	require.NoError(t, <-verified)
	require.NoError(t, d.Close())
}

// A Verify that is cut short says so, and leaves nothing behind.
func TestVerifyIsCutShort(t *testing.T) {
	for name, cut := range map[string]func(s pairs, d *Device, cancel func()){
		"cancelled":          func(_ pairs, _ *Device, cancel func()) { cancel() },
		"a member is let go": func(s pairs, _ *Device, _ func()) { s.network(2).Down() },
		"the source is":      func(s pairs, _ *Device, _ func()) { s.network(0).Down() },
		"cancelled while a member is away": func(s pairs, _ *Device, cancel func()) {
			s.network(2).Down()
			time.AfterFunc(10*time.Second, cancel)
		},
		"the device closes": func(_ pairs, d *Device, _ func()) { go func() { _ = d.Close() }() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := fakes(t, 3, rdmafake.Config{})
				cfg := s.config(t)
				cfg.LegTimeout, cfg.ResyncRate = time.Minute, 1<<20
				d, err := Dial(t.Context(), cfg)
				require.NoError(t, err)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				said := 0
				v, err := d.Verify(ctx, VerifyOptions{Progress: func(v Verification) {
					require.LessOrEqual(t, v.Compared, v.Total)
					if said++; said == 2 {
						_, err := d.Verify(ctx, VerifyOptions{})
						require.ErrorContains(t, err, "another verification")
						cut(s, d, cancel)
					}
				}})
				require.ErrorIs(t, err, ErrNotVerified)
				require.Less(t, v.Compared, v.Total)
				s.network(0).Up()
				s.network(2).Up()
				if name != "the device closes" {
					s.inSync(t, d)
					d.core.commit.mu.Lock()
					require.False(t, d.core.copies.checks)
					d.core.commit.mu.Unlock()
					for _, g := range d.legs {
						require.Nil(t, g.lanes[0].copying)
					}
					backendtest.AllBack(t, d)
				}
				require.NoError(t, d.Close())
			})
		})
	}
}

// A Verify that is cut short while a chunk is read leaves no lane waiting for that.
func TestVerifyIsCutShortInACopy(t *testing.T) {
	for _, name := range []string{"while nobody asks", "before a FLUSH"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := fakes(t, 2, rdmafake.Config{})
				network, reads := s.network(0), make(chan struct{}, 10)
				s.tap(0, func(wr *rdma.WorkRequest) {
					if wr.Op == rdma.OpRead && wr.ID&tagMask == tagFetch {
						network.Freeze()
						reads <- struct{}{}
					}
				})
				d := s.dial(t, 2)
				c := backendtest.NewClient(t, d)
				s[1].region.Data()[stripe] ^= 1 // on lane 1: heartbeats post lane 0
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				cut := make(chan error, 1)
				go func() {
					_, err := d.Verify(ctx, VerifyOptions{From: "A"})
					cut <- err
				}()
				<-reads
				cancel()
				synctest.Wait()
				flush := c.Flush()
				if name == "before a FLUSH" {
					c.Submit(c.Write(stripe, backendtest.Pattern(block, 1), 0), flush)
				}
				synctest.Wait()
				require.Empty(t, cut)
				network.Thaw()
				require.Eventually(t, func() bool { return len(cut) == 1 }, patience, tick)
				require.ErrorIs(t, <-cut, ErrNotVerified)
				if name == "before a FLUSH" {
					require.NoError(t, c.Wait(flush))
				}
				backendtest.AllBack(t, d)
				require.NoError(t, d.Close())
			})
		})
	}
}

// A Verify needs two members in sync.
func TestVerifyRefuses(t *testing.T) {
	d := fake(t, rdmafake.Config{}).dial(t)
	_, err := d.Verify(t.Context(), VerifyOptions{})
	require.ErrorIs(t, err, ErrNoMirror)
	require.NoError(t, d.Close())

	s := fakes(t, 2, rdmafake.Config{})
	d = s.dialImpatient(t, 1)
	_, err = d.Verify(t.Context(), VerifyOptions{From: "C"})
	require.ErrorContains(t, err, "those in sync are AB")
	s.network(1).Down()
	c := backendtest.NewClient(t, d)
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0), c.Flush()))
	_, err = d.Verify(t.Context(), VerifyOptions{})
	require.ErrorContains(t, err, "only member A")
	s.network(1).Up()
	s.inSync(t, d)
	require.NoError(t, d.Close())
}
