package property

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"pmnbd/backend/remote"
	"pmnbd/persist"
)

// An arbiter is that of a mirror, in memory. Whoever wanted the mirror last has it, until that one ends.
type arbiter struct {
	mu    sync.Mutex
	held  persist.Record
	terms []*term
	turns uint64 // how often a term began or ended
}

type term struct{ arbiter *arbiter }

func (a *arbiter) Join(context.Context, [16]byte, [16]byte, func(string)) (remote.Term, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	t := &term{a}
	a.terms = append(a.terms, t)
	a.turns++
	return t, nil
}

// activeLocked reports whether t is the term of the one that has the mirror.
func (t *term) activeLocked() bool {
	terms := t.arbiter.terms
	return len(terms) > 0 && terms[len(terms)-1] == t
}

func (t *term) Held(context.Context) (persist.Record, error) {
	t.arbiter.mu.Lock()
	defer t.arbiter.mu.Unlock()
	return t.arbiter.held, nil
}

func (t *term) Swap(_ context.Context, old, next persist.Record) (persist.Record, error) {
	a := t.arbiter
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case !t.activeLocked():
		return persist.Record{}, errors.New("another process has the mirror")
	case a.held == old:
		a.held = next
	}
	return a.held, nil
}

func (t *term) Until() (until time.Time, gained uint64) {
	t.arbiter.mu.Lock()
	defer t.arbiter.mu.Unlock()
	if !t.activeLocked() {
		return until, t.arbiter.turns
	}
	return time.Now().Add(time.Hour), t.arbiter.turns
}

func (t *term) End(context.Context, bool) error {
	t.arbiter.mu.Lock()
	defer t.arbiter.mu.Unlock()
	t.arbiter.turns++
	t.arbiter.terms = slices.DeleteFunc(t.arbiter.terms, func(other *term) bool { return other == t })
	return nil
}

// asked is an arbiter as a process sees it. It does not hear what the process wants after its death: the
// window that is adopted says nothing of that.
type asked struct {
	remote.Arbiter
	by *process
}

var errDead = errors.New("the process is dead")

func (a asked) Join(ctx context.Context, set, id [16]byte, waits func(string)) (remote.Term, error) {
	if a.by.isDead() {
		return nil, errDead
	}
	t, err := a.Arbiter.Join(ctx, set, id, waits)
	return askedTerm{t, a.by}, err
}

type askedTerm struct {
	remote.Term
	by *process
}

func (t askedTerm) Swap(ctx context.Context, old, next persist.Record) (persist.Record, error) {
	if t.by.isDead() {
		return persist.Record{}, errDead
	}
	return t.Term.Swap(ctx, old, next)
}
