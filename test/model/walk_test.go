package model

import (
	"math/rand/v2"
	"os"
	"testing"
)

// walk takes random ways through a model that is too large to be explored, in this many steps. Every
// step has the same chance, but the walk skips three of four faults and requests, so that something
// happens between them.
func walk[S comparable](m model[S], seed uint64, steps int) (r result) {
	type step struct {
		event string
		s     S
	}
	rng := rand.New(rand.NewPCG(seed, 4))
	var next []step
	for r.states < steps {
		s := m.init
		r.trace = r.trace[:0]
		for len(r.trace) < 400 && r.states < steps {
			next = next[:0]
			m.succ(s, func(event string, fault bool, n S) {
				if !fault || rng.IntN(4) == 0 {
					next = append(next, step{event, n})
				}
			})
			if len(next) == 0 {
				m.succ(s, func(event string, _ bool, n S) { next = append(next, step{event, n}) })
			}
			if len(next) == 0 {
				break
			}
			x := next[rng.IntN(len(next))]
			s, r.trace = x.s, append(r.trace, x.event)
			r.states++
			if r.bad = m.bad(&s); r.bad != "" {
				return r
			}
		}
	}
	return r
}

// TestWalk walks through mirrors with everything in them.
func TestWalk(t *testing.T) {
	steps, seed := 4_000, uint64(1)
	if os.Getenv("PMNBD_MODEL") == "all" {
		steps, seed = 2_000_000, rand.Uint64()
	}
	two := m4cfg{n: 2, m: 1, nb: 2, maxv: 4, lives: 3, takeover: true, drops: 3, kills: 2, powers: 2, crashes: 1, closes: 1, flushes: 4, reads: 4, changes: 3}
	three, arbiter := two, two
	three.n, three.m = 3, 2
	arbiter.arb, arbiter.closes = true, 0
	one := m4cfg{n: 3, m: 1, nb: 2, maxv: 4, lives: 3, crashes: 2, drops: 3, kills: 1, powers: 2, deaths: 1, flushes: 4, reads: 4, changes: 3}
	volatile := m4cfg{n: 3, m: 2, nb: 2, maxv: 4, lives: 3, volatile: true, crashes: 2, drops: 2, kills: 1, powers: 2, flushes: 4, reads: 4, changes: 3}
	stay := m4cfg{n: 3, m: 2, nb: 2, maxv: 4, lives: 3, crashes: 1, ends: 2, closes: 1, drops: 3, kills: 3, powers: 2, flushes: 4, reads: 6, changes: 3, replaces: true}
	for _, c := range []struct {
		name string
		cfg  m4cfg
	}{
		{"X1 two legs", two}, {"X2 three legs", three}, {"X3 three legs, one copy will do", one},
		{"X4 volatile", volatile}, {"X5 arbiter", arbiter}, {"X6 clients stay", stay},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := walk(m4model(c.cfg), seed, steps)
			if r.bad == "" {
				return
			}
			for i, event := range r.trace {
				t.Logf("%2d  %s", i+1, event)
			}
			t.Errorf("breaks %q, seed %d", r.bad, seed)
		})
	}
}
