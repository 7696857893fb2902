package model

import (
	"hash/maphash"
	"slices"
)

// An emitFn takes a successor state, the event that leads to it, and whether that event is a
// fault or a client's request. Liveness must not count on those.
type emitFn[S comparable] func(label string, fault bool, s S)

type model[S comparable] struct {
	init S
	succ func(s S, emit emitFn[S])
	bad  func(s *S) string // the promise that s breaks, or ""
	goal func(s *S) bool   // every request has completed in s; nil where that is not checked
}

type result struct {
	states   int
	bad      string   // the promise that is broken, or ""
	trace    []string // the shortest sequence of events that leads there
	complete bool     // every reachable state was visited
}

const stuck = "(6) stuck: a request can never complete without a further fault"

var seed = maphash.MakeSeed()

// A search visits the states of a model breadth first. It knows a state by a hash of 64 bits:
// of 10 million states two share one with a probability of 3e-6.
type search[S comparable] struct {
	model[S]
	seen     map[uint64]uint32
	states   []S
	parent   []uint32
	from, to []uint32 // steps without a fault
}

// explore visits every reachable state, at most limit of them.
func explore[S comparable](m model[S], limit int) result {
	x := search[S]{
		model: m, seen: map[uint64]uint32{maphash.Comparable(seed, m.init): 0},
		states: []S{m.init}, parent: []uint32{0},
	}
	for i := 0; i < len(x.states); i++ {
		if at, bad := x.visit(uint32(i)); bad != "" {
			return result{states: len(x.states), bad: bad, trace: x.trace(at)}
		}
		if len(x.states) >= limit {
			return result{states: len(x.states)}
		}
	}
	r := result{states: len(x.states), complete: true}
	if x.goal == nil {
		return r
	}
	if at := x.stuck(); at >= 0 {
		r.bad, r.trace = stuck, x.trace(uint32(at))
	}
	return r
}

// visit adds the successors of state i. It stops at the first one that breaks a promise.
func (x *search[S]) visit(i uint32) (at uint32, bad string) {
	x.succ(x.states[i], func(_ string, fault bool, n S) {
		if bad != "" {
			return
		}
		h := maphash.Comparable(seed, n)
		j, ok := x.seen[h]
		if !ok {
			j = uint32(len(x.states))
			x.seen[h] = j
			x.states = append(x.states, n)
			x.parent = append(x.parent, i)
			if bad = x.bad(&n); bad != "" {
				at = j
			}
		}
		if x.goal != nil && !fault && j != i {
			x.from = append(x.from, i)
			x.to = append(x.to, j)
		}
	})
	return at, bad
}

// stuck returns a state from which no steps without a fault lead to the goal (AG EF), or -1. It
// assumes no fairness, so it does not see a livelock that always has a way out.
func (x *search[S]) stuck() int {
	head := make([]uint32, len(x.states)+1) // the steps to each state, by their places in back
	for _, t := range x.to {
		head[t+1]++
	}
	for i := 1; i < len(head); i++ {
		head[i] += head[i-1]
	}
	back, next := make([]uint32, len(x.to)), slices.Clone(head)
	for k, t := range x.to {
		back[next[t]] = x.from[k]
		next[t]++
	}
	ok := make([]bool, len(x.states))
	var work []uint32
	for i := range x.states {
		if x.goal(&x.states[i]) {
			ok[i] = true
			work = append(work, uint32(i))
		}
	}
	for len(work) > 0 {
		t := work[len(work)-1]
		work = work[:len(work)-1]
		for _, f := range back[head[t]:head[t+1]] {
			if !ok[f] {
				ok[f] = true
				work = append(work, f)
			}
		}
	}
	return slices.Index(ok, false)
}

// trace returns the events that lead to state i.
func (x *search[S]) trace(i uint32) (events []string) {
	for i != 0 {
		event := ""
		x.succ(x.states[x.parent[i]], func(label string, _ bool, n S) {
			if event == "" && n == x.states[i] {
				event = label
			}
		})
		events = append(events, event)
		i = x.parent[i]
	}
	slices.Reverse(events)
	return events
}
