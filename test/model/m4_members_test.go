package model

import "fmt"

// The members of the mirror, and M, are a byte here, of which each record and each life has one.

func elect(members, m uint8) uint8 { return members<<4 | m }
func of(el uint8) uint8            { return el >> 4 }
func least(el uint8) uint8         { return el & 15 }

// majority reports whether a life that holds these legs may begin by majority.
func majority(el, held uint8) bool {
	return least(el)*2 > count(of(el)) && count(held&of(el))*2 > count(of(el))
}

// passesBy reports whether a start by majority need not hold any of f (mirror §4.9).
func passesBy(el, f uint8) bool { return majority(el, of(el)&^f) }

// passesBy is passesBy, unless that rule is dropped.
func (x *m4) passesBy(el, f uint8) bool { return passesBy(el, f) && !x.mut("change-passes-by") }

// before finds the members and M that a leg of F has, where those are others than the newest record's. A
// start that holds all of F sees it.
func (f *m4found) before(d *m4decision) {
	if d.m.f&^(f.reached&^f.gone) != 0 || f.mut == "start-in-a-change" {
		return
	}
	for l := range int(f.n) {
		if d.m.f&f.reached&bit(l) != 0 && f.r[l].el != d.m.el {
			d.before = f.r[l].el
		}
	}
}

// alter lets life i begin a change of the members, or of M: one at a time.
func (x *m4) alter(i int) {
	s0, p0 := x.s0, &x.s0.p[i]
	if s0.alters == 0 || !p0.act || p0.cg != 0 {
		return
	}
	members, m := of(p0.el), least(p0.el)
	begins := func(el, f uint8, what string) {
		n := *s0
		n.alters--
		p := &n.p[i]
		p.bel, p.el = p.el, el
		x.begin(p, f, 0)
		if !x.mut("newcomer-without-bits") {
			p.fill |= of(el) &^ members
		}
		p.fill &= of(el)
		p.eq &= of(el)
		if x.mut("change-at-once") { // it holds before it is active
			p.bel = 0
		}
		x.emit(label(i, "%s, begins generation %d%s", what, p.cg, names(f)), true, n)
	}
	for other := uint8(1); other <= count(members); other++ {
		if other != m && count(p0.f) >= other {
			begins(elect(members, other), p0.f, fmt.Sprintf("sets M = %d", other))
		}
	}
	for l := range x.n {
		f := p0.f &^ bit(l)
		switch {
		case members&bit(l) == 0:
			if s0.l[l].own == 0 && s0.l[l].r.g == 0 {
				begins(elect(members|bit(l), m), p0.f, "adds "+legName(l))
			}
		case count(members) > 2 && f&p0.eq != 0 && (count(f) >= m || x.mut("removed-below-min") && f != 0):
			begins(elect(members&^bit(l), m), f, "removes "+legName(l))
		}
	}
}

// tell lets life i end the membership of a leg that it holds, once the generation without it is active.
func (x *m4) tell(i int) {
	s0, p0 := x.s0, &x.s0.p[i]
	if !p0.act || p0.cg != 0 && !x.mut("told-early") {
		return
	}
	for l := range x.n {
		if of(p0.el)&bit(l) != 0 || !s0.holds(i, l) {
			continue
		}
		n := *s0
		p := &n.p[i]
		x.lose(&n, i, l)
		p.open, p.stale, p.fill = p.open&^bit(l), p.stale&^bit(l), p.fill&^bit(l)
		g := &n.l[l]
		g.r, g.own, g.life, g.clean, g.bits = rec{}, 0, 0, false, [nl]uint8{}
		x.emit(label(i, "%s is told that it is no member", legName(l)), false, n)
	}
}
