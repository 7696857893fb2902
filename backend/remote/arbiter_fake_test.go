package remote

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"pmnbd/backend/backendtest"
	"pmnbd/persist"
)

// A fakeArbiter is an arbiter in memory, whose leases end by the clock.
type fakeArbiter struct {
	lease time.Duration
	mu    sync.Mutex
	held  persist.Record
	terms []*fakeTerm
	swaps int
	asked int                        // how often somebody asked what is held
	swap  func(next *persist.Record) // is called before a Swap takes effect
	lost  bool                       // Swaps never arrive
	mute  error                      // of each Swap, whether it takes effect or not
}

// A fakeTerm is a Term. Its initiator reaches the arbiter unless it is cut off.
type fakeTerm struct {
	arbiter *fakeArbiter
	id      [16]byte
	cut     time.Time // since when the arbiter hears nothing of it; zero: it does
	over    bool
	ended   bool
	gained  uint64
}

func newFakeArbiter() *fakeArbiter { return &fakeArbiter{lease: 5 * time.Second} }

func (a *fakeArbiter) Join(ctx context.Context, _, id [16]byte, waits func(string)) (Term, error) {
	for {
		a.mu.Lock()
		t := &fakeTerm{arbiter: a, id: id, gained: 1}
		var left time.Duration
		for _, other := range a.terms {
			if l := other.leftLocked(); other.id != id {
				left = max(left, l)
			}
		}
		if left == 0 {
			for _, other := range a.terms {
				other.over = true
			}
			a.terms = append(a.terms, t)
		}
		a.mu.Unlock()
		if left == 0 {
			return t, nil
		}
		waits("another initiator has the mirror")
		select {
		case <-time.After(min(left, time.Second)):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// leftLocked is how long the arbiter keeps the mirror for t.
func (t *fakeTerm) leftLocked() time.Duration {
	switch {
	case t.over:
		return 0
	case t.cut.IsZero():
		return t.arbiter.lease
	}
	return max(0, t.arbiter.lease-time.Since(t.cut))
}

// againLocked gains a lease again that was lost, once nobody else has the mirror.
func (t *fakeTerm) againLocked() {
	if !t.over || t.ended || !t.cut.IsZero() {
		return
	}
	for _, other := range t.arbiter.terms {
		if other.leftLocked() > 0 {
			return
		}
	}
	t.over = false
	t.gained++
}

func (t *fakeTerm) Until() (until time.Time, gained uint64) {
	t.arbiter.mu.Lock()
	defer t.arbiter.mu.Unlock()
	t.againLocked()
	return time.Now().Add(t.leftLocked() - time.Second), t.gained
}

var errUnreachable = errors.New("the test has cut the arbiter off")

func (t *fakeTerm) Held(context.Context) (persist.Record, error) {
	t.arbiter.mu.Lock()
	defer t.arbiter.mu.Unlock()
	t.arbiter.asked++
	if !t.cut.IsZero() {
		return persist.Record{}, errUnreachable
	}
	return t.arbiter.held, nil
}

func (t *fakeTerm) Swap(_ context.Context, old, next persist.Record) (persist.Record, error) {
	a := t.arbiter
	a.mu.Lock()
	swap := a.swap
	a.mu.Unlock()
	if swap != nil {
		swap(&next)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.swaps++
	switch {
	case !t.cut.IsZero(), a.lost:
		return persist.Record{}, errUnreachable
	case a.held == old && !t.over:
		a.held = next
	}
	return a.held, a.mute
}

func (t *fakeTerm) End(context.Context, bool) error {
	t.arbiter.mu.Lock()
	defer t.arbiter.mu.Unlock()
	t.over, t.ended = true, true
	return nil
}

// cutOff keeps the arbiter from hearing anything of the initiator that joined last, or ends that.
func (a *fakeArbiter) cutOff(on bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.terms[len(a.terms)-1].cutLocked(on)
}

func (t *fakeTerm) cutLocked(on bool) {
	t.over = t.over || !on && t.leftLocked() == 0
	if t.cut = (time.Time{}); on {
		t.cut = time.Now()
	}
}

func (a *fakeArbiter) holds() persist.Record {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.held
}

// another has another initiator get the lease, begin a life, and go, before the initiator that joined last
// gains the lease again. It returns what the arbiter holds then.
func (a *fakeArbiter) another() persist.Record {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.held.Life, a.held.Count, a.held.Nonce = a.held.Life+1, 1, [16]byte{9}
	a.terms[len(a.terms)-1].gained++
	return a.held
}

// beforeSwap has f called before each Swap takes effect.
func (a *fakeArbiter) beforeSwap(f func(next *persist.Record)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.swap = f
}

// silent sets whether the answer of each Swap is lost.
func (a *fakeArbiter) silent(on bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mute = nil; on {
		a.mute = errUnreachable
	}
}

// An arbitrated is a mirror with an arbiter, in a bubble.
type arbitrated struct {
	pairs
	*fakeArbiter
	cfg Config
}

func newArbitrated(t *testing.T) *arbitrated { return newArbitratedOf(t, 2) }

func newArbitratedOf(t *testing.T, members int) *arbitrated {
	s := beating(t, members, 1)
	a := &arbitrated{s, newFakeArbiter(), s.config(t)}
	a.cfg.Arbiter, a.cfg.LegTimeout = a.fakeArbiter, time.Second
	return a
}

func (a *arbitrated) dial(t *testing.T) (*Device, *backendtest.Client) {
	t.Helper()
	d, err := Dial(context.Background(), a.cfg)
	require.NoError(t, err)
	return d, backendtest.NewClient(t, d)
}

// standby dials as another initiator does, which knows these members.
func (a *arbitrated) standby(t *testing.T, members ...int) (*Device, *backendtest.Client) {
	t.Helper()
	cfg := a.cfg
	cfg.ID, cfg.StateDir, cfg.WindowDir, cfg.Members = [16]byte{7}, t.TempDir(), "", nil
	for _, i := range members {
		cfg.Members = append(cfg.Members, a.cfg.Members[i])
	}
	d, err := Dial(context.Background(), cfg)
	require.NoError(t, err)
	return d, backendtest.NewClient(t, d)
}

// abandon ends a device as the death of its process does.
func abandon(d *Device) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = d.Shutdown(ctx) // what it says is about what was lost
}

// A slowArbiter takes its time for each answer.
type slowArbiter struct {
	*fakeArbiter
	takes time.Duration
}

func (a slowArbiter) Join(ctx context.Context, set, id [16]byte, waits func(string)) (Term, error) {
	term, err := a.fakeArbiter.Join(ctx, set, id, waits)
	return slowTerm{term, a.takes}, err
}

type slowTerm struct {
	Term
	takes time.Duration
}

func (t slowTerm) Held(ctx context.Context) (persist.Record, error) {
	time.Sleep(t.takes)
	return t.Term.Held(ctx)
}
