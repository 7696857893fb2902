package arbiter

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"

	"pmnbd/backend/remote"
	"pmnbd/internal/etcdtest"
	"pmnbd/persist"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	set        = [16]byte{0xee}
	one, other = [16]byte{1}, [16]byte{2}
)

// sample is a record that uses every field.
func sample() persist.Record {
	r := persist.Record{Set: set, MinCopies: 1, Arbiter: true, Async: 4, Slot: 1}
	r.Ancestor = persist.Ancestor{Generation: persist.Generation{Life: 3, Count: 2, Nonce: [16]byte{3}}, F: 2}
	for slot := range 3 {
		r.Members[slot] = persist.Membership{UUID: [16]byte{byte(slot), 'u'}, Contents: [16]byte{byte(slot), 'c'}, Epoch: 1<<63 + uint64(slot)}
	}
	for i := range r.Lineage {
		r.Lineage[i] = persist.Ancestor{Generation: persist.Generation{Life: 2, Count: 99 - uint64(i), Nonce: [16]byte{2}}, F: 3}
	}
	return r
}

func TestDocument(t *testing.T) {
	r := sample()
	b, err := encodeRecord(&r)
	require.NoError(t, err)
	require.Less(t, len(b), maxDocument/4)
	back, err := decodeRecord(b)
	require.NoError(t, err)
	require.Equal(t, r, back)
	for name, spoil := range map[string]func(*persist.Record){
		"no arbiter":        func(r *persist.Record) { r.Arbiter = false },
		"torn":              func(r *persist.Record) { r.Torn = true },
		"another slot":      func(r *persist.Record) { r.Slot = 0 },
		"how far it got":    func(r *persist.Record) { r.Follows.Barrier = 1 },
		"a gap in the line": func(r *persist.Record) { r.Lineage[3] = persist.Ancestor{} },
	} {
		r := sample()
		spoil(&r)
		_, err := encodeRecord(&r)
		require.ErrorIs(t, err, errDocument, name)
	}
	for name, text := range map[string]string{
		"nothing": "", "no JSON": "3.2", "another version": `{"version":2}`, "no record": `{"version":1}`,
		"a slot too many": `{"version":1,"mirror":"ee000000-0000-0000-0000-000000000000","in_sync":"E"}`,
	} {
		_, err := decodeRecord([]byte(text))
		require.ErrorIs(t, err, errDocument, name)
	}
}

func FuzzDocument(f *testing.F) {
	r := sample()
	b, err := encodeRecord(&r)
	require.NoError(f, err)
	f.Add(b)
	f.Add([]byte(`{"version":1}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := decodeRecord(b)
		if err != nil {
			return
		}
		again, err := encodeRecord(&r)
		if err != nil {
			return // it was not in order
		}
		back, err := decodeRecord(again)
		require.NoError(t, err)
		require.Equal(t, r, back)
	})
}

// lease runs in real time, in etcd. It is long: a busy machine may keep a test from renewing it for seconds.
const lease = 3 * MinLease

// open makes a client of s.
func open(t *testing.T, s *etcdtest.Server, standby bool) *Etcd {
	e, err := New(Config{Endpoints: []string{s.Addr}, Prefix: "/test", Lease: lease, Standby: standby})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	return e
}

func nobody(why string) { panic("it waits: " + why) }

// left is for how long nobody else can have the mirror.
func left(t remote.Term) time.Duration {
	until, _ := t.Until()
	return time.Until(until)
}

// The record changes by compare and swap, and for the one that has the mirror alone.
func TestSwap(t *testing.T) {
	s := etcdtest.Start(t)
	ctx := context.Background()
	e := open(t, s, false)
	first, err := e.Join(ctx, set, one, nobody)
	require.NoError(t, err)
	require.Less(t, left(first), lease-lease/20, "etcd may count less")
	held, err := first.Held(ctx)
	require.NoError(t, err)
	require.Zero(t, held)
	r := sample()
	held, err = first.Swap(ctx, persist.Record{}, r)
	require.NoError(t, err)
	require.Equal(t, r, held)
	next := r
	next.Count++
	held, err = first.Swap(ctx, next, next)
	require.NoError(t, err)
	require.Equal(t, r, held, "it held something else")
	held, err = first.Held(ctx)
	require.NoError(t, err)
	require.Equal(t, r, held)

	_, err = e.Join(ctx, set, other, nobody)
	require.ErrorContains(t, err, "has the mirror since")
	require.ErrorContains(t, err, "--standby")
	// The next run of the same initiator need not wait. What the one before still sends has no effect.
	second, err := e.Join(ctx, set, one, nobody)
	require.NoError(t, err)
	_, err = first.Swap(ctx, r, next)
	require.ErrorContains(t, err, "lease in etcd is over")
	held, err = second.Swap(ctx, r, next)
	require.NoError(t, err)
	require.Equal(t, next, held)
	held, err = second.Swap(ctx, next, persist.Record{})
	require.NoError(t, err)
	require.Zero(t, held)
	held, err = second.Held(ctx)
	require.NoError(t, err)
	require.Zero(t, held, "it was to forget that")
	require.NoError(t, first.End(ctx, false))
	require.NoError(t, second.End(ctx, true))
	third, err := e.Join(ctx, set, other, nobody)
	require.NoError(t, err, "it was given back")
	require.NoError(t, third.End(ctx, true))
	again, err := e.Join(ctx, set, other, nobody)
	require.NoError(t, err, "a start that gave it back joins again")
	held, err = again.Swap(ctx, persist.Record{}, next)
	require.NoError(t, err)
	require.Equal(t, next, held)
	require.NoError(t, again.End(ctx, true))
}

// A standby gets the mirror when the lease of the active one ends, and not before that one says so itself.
func TestStandby(t *testing.T) {
	s := etcdtest.Start(t)
	ctx := context.Background()
	active, standby := open(t, s, true), open(t, s, true)
	first, err := active.Join(ctx, set, one, nobody)
	require.NoError(t, err)
	said := make(chan string, 8)
	joined := make(chan remote.Term, 1)
	go func() {
		term, err := standby.Join(ctx, set, other, func(why string) { said <- why })
		require.NoError(t, err)
		joined <- term
	}()
	require.Contains(t, <-said, "standby: ")
	granted, _ := first.Until()
	lapsed := false
	require.Eventually(t, func() bool {
		until, _ := first.Until()
		lapsed = lapsed || time.Until(until) < 0
		return until.Sub(granted) > lease || lapsed || len(joined) > 0
	}, time.Minute, 10*time.Millisecond, "it is kept alive")
	require.False(t, lapsed)
	require.Empty(t, joined)
	require.NoError(t, first.End(ctx, false)) // as if the process had been killed
	require.LessOrEqual(t, left(first), time.Duration(0))
	second := <-joined
	require.Positive(t, left(second))
	require.NoError(t, second.End(ctx, true))

	ctx, cancel := context.WithCancel(ctx)
	third, err := active.Join(ctx, set, one, nobody)
	require.NoError(t, err)
	_, err = standby.Join(ctx, set, other, func(string) { cancel() })
	require.ErrorIs(t, err, context.Canceled)
	require.NoError(t, third.End(context.Background(), true))
}

// While etcd is away a term ends by the clock, and comes back with etcd if nobody has taken the mirror.
func TestEtcdAway(t *testing.T) {
	s := etcdtest.Start(t)
	ctx := context.Background()
	e := open(t, s, false)
	term, err := e.Join(ctx, set, one, nobody)
	require.NoError(t, err)
	s.Kill()
	require.Eventually(t, func() bool { return left(term) < 0 }, time.Minute, 10*time.Millisecond)
	asking, cancel := context.WithTimeout(ctx, time.Second)
	_, err = term.Held(asking)
	cancel()
	require.Error(t, err)
	s.Run(t)
	require.Eventually(t, func() bool { return left(term) > 0 }, time.Minute, 10*time.Millisecond)
	held, err := term.Swap(ctx, persist.Record{}, sample())
	require.NoError(t, err)
	require.Equal(t, sample(), held)
	require.NoError(t, term.End(ctx, true))
}

// A term whose lease another initiator has had meanwhile says so, and shows what that one has left. So does one
// whose lease came back at once: it cannot tell (mirror §4.7).
func TestLeaseGainedAgain(t *testing.T) {
	for name, taken := range map[string]bool{"another has had the mirror": true, "nobody has": false} {
		t.Run(name, func(t *testing.T) {
			s := etcdtest.Start(t)
			ctx := context.Background()
			e, raw := open(t, s, false), open(t, s, false)
			term, err := e.Join(ctx, set, one, nobody)
			require.NoError(t, err)
			want := sample()
			_, err = term.Swap(ctx, persist.Record{}, want)
			require.NoError(t, err)
			_, gained := term.Until()
			require.Equal(t, uint64(1), gained)

			active := e.key(set, "active")
			key, err := raw.client.Get(ctx, active)
			require.NoError(t, err)
			if taken { // its key does not go with the lease
				_, err = raw.client.Put(ctx, active, `{"host":"another"}`)
				require.NoError(t, err)
			}
			_, err = raw.client.Revoke(ctx, clientv3.LeaseID(key.Kvs[0].Lease))
			require.NoError(t, err)
			if taken {
				require.Eventually(t, func() bool { return left(term) < 0 }, time.Minute, 10*time.Millisecond)
				want.Life++
				document, err := encodeRecord(&want)
				require.NoError(t, err)
				_, err = raw.client.Put(ctx, e.key(set, "record"), string(document))
				require.NoError(t, err)
				_, err = raw.client.Delete(ctx, active)
				require.NoError(t, err)
			}
			require.Eventually(t, func() bool {
				until, gained := term.Until()
				return gained == 2 && time.Until(until) > 0
			}, time.Minute, 10*time.Millisecond)
			held, err := term.Held(ctx)
			require.NoError(t, err)
			require.Equal(t, want, held)
			require.NoError(t, term.End(ctx, true))
		})
	}
}

// A host with a copy of the state directory has the same id, and takes the mirror from nobody. A host that was
// booted waits until the lease of its former boot is over.
func TestSameInitiatorElsewhere(t *testing.T) {
	s := etcdtest.Start(t)
	ctx := context.Background()
	e, elsewhere := open(t, s, false), open(t, s, false)
	elsewhere.boot = [16]byte{9}
	first, err := e.Join(ctx, set, one, nobody)
	require.NoError(t, err)
	said := ""
	_, err = elsewhere.Join(ctx, set, one, func(why string) { said = why })
	require.ErrorContains(t, err, "this initiator's own id")
	require.Contains(t, said, "own id")
	held, err := first.Swap(ctx, persist.Record{}, sample())
	require.NoError(t, err)
	require.Equal(t, sample(), held)
	_, gained := first.Until()
	require.Equal(t, uint64(1), gained)

	require.NoError(t, first.End(ctx, false)) // as if the host had crashed
	booted, err := elsewhere.Join(ctx, set, one, func(string) {})
	require.NoError(t, err)
	require.NoError(t, booted.End(ctx, true))
}
