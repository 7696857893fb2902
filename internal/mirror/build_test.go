package mirror

import (
	"fmt"
	"slices"
	"strings"

	"pmnbd/persist"
)

// set is the UUID of the mirror of these tests.
var set = [16]byte{0xee}

// members makes a set of letters: "AC".
func members(letters string) (m persist.Members) {
	for _, c := range letters {
		m |= persist.Member(int(c - 'A'))
	}
	return m
}

func uuid(slot int) [16]byte     { return [16]byte{byte(slot) + 1, 'u'} }
func contents(slot int) [16]byte { return [16]byte{byte(slot) + 1, 'c'} }

// ancestor makes a generation of "2.1{AB}". A life has one nonce, but for "2'.1{AB}", which is
// another life of the same number.
func ancestor(text string) persist.Ancestor {
	var a persist.Ancestor
	head, f, _ := strings.Cut(strings.TrimSuffix(text, "}"), "{")
	plain := strings.ReplaceAll(head, "'", "")
	if _, err := fmt.Sscanf(plain, "%d.%d", &a.Life, &a.Count); err != nil {
		panic(err)
	}
	a.Nonce, a.F = [16]byte{byte(a.Life), byte(len(head) - len(plain))}, members(f)
	return a
}

// record makes the record of a mirror with n members that went through these generations, oldest
// first: "1.1{AB} 1.2{A}". Before the first one was that of its creation, unless it is "created".
func record(n, minCopies int, history string) persist.Record {
	r := persist.Record{Set: set, MinCopies: uint8(minCopies)}
	for slot := range n {
		r.Members[slot] = persist.Membership{UUID: uuid(slot), Contents: contents(slot), Epoch: 5}
	}
	if text, ok := strings.CutPrefix(history, "created "); ok {
		r.Ancestor = ancestor(text)
		return r
	}
	for i, text := range strings.Fields(history) {
		a := ancestor(text)
		if i == 0 {
			r.Ancestor = a
			r.Lineage[0] = persist.Ancestor{Generation: persist.Generation{Count: 1}, F: 1<<n - 1}
			continue
		}
		r = Descend(&r, a.Generation, a.F)
	}
	return r
}

// A mirrorOf makes legs: "A held 1.1{AB} 1.2{A}", and "B probed 1.1{AB} 1.2{A}", which is torn.
type mirrorOf struct {
	n, m  int
	async string // the members that follow
}

func (x mirrorOf) leg(text string) Leg {
	words := strings.Fields(text)
	slot := int(words[0][0] - 'A')
	l := Leg{Name: strings.ToLower(words[0]) + ".example", Contents: contents(slot), Epoch: 5}
	var history []string
	follows := false
	for _, w := range words[1:] {
		switch w {
		case "away":
			return Leg{}
		case "refused":
			l.Reach = Refused
		case "probed":
			l.Reach = Probed
		case "held":
			l.Reach = Held
		case "clean":
			l.Clean = true
		case "failed":
			l.Failed = true
		case "bad":
			l.Bad = true
		case "lost":
			l.Contents = [16]byte{9}
		case "restored":
			l.Epoch = 4
		case "follows":
			follows = true
		default:
			history = append(history, w)
		}
	}
	if history == nil {
		return l // a region that is no member
	}
	l.Record = record(x.n, x.m, strings.Join(history, " "))
	l.Record.Slot = uint8(slot)
	l.Record.Async = members(x.async)
	if l.Record.Torn = l.Torn() && !follows; follows {
		l.Record.Follows = persist.Point{Barrier: 7, At: 1}
	}
	l.Life = l.Record.Life
	return l
}

func (x mirrorOf) legs(texts ...string) (legs []Leg) {
	for _, t := range texts {
		legs = append(legs, x.leg(t))
	}
	return legs
}

// permuted returns all orders of legs.
func permuted(legs []Leg) [][]Leg {
	if len(legs) < 2 {
		return [][]Leg{slices.Clone(legs)}
	}
	var all [][]Leg
	for i := range legs {
		rest := slices.Delete(slices.Clone(legs), i, i+1)
		for _, p := range permuted(rest) {
			all = append(all, append(p, legs[i]))
		}
	}
	return all
}
