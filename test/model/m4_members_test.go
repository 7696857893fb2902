package model

import "fmt"

// The members of the mirror, and M, are a byte here, of which each record and each life has one.

func elect(members, m uint8) uint8 { return members<<4 | m }
func of(el uint8) uint8            { return el >> 4 }
func least(el uint8) uint8         { return el & 15 }

// votes reports whether a life may begin by majority.
func votes(el uint8) bool { return least(el)*2 > count(of(el)) }

// majority reports whether a life that holds these legs may begin by majority.
func majority(el, held uint8) bool {
	return votes(el) && count(held&of(el))*2 > count(of(el))
}

// passesBy reports whether a start by majority need not hold any of f (mirror §4.9).
func passesBy(el, f uint8) bool { return majority(el, of(el)&^f) }

// passesBy is passesBy, unless that rule is dropped.
func (x *m4) passesBy(el, f uint8) bool { return passesBy(el, f) && !x.mut("change-passes-by") }

// before finds the members and M that a leg of F has, where those are others than the newest record's. A
// start that holds all of F sees it. Of two it is the one with fewer members (see cover).
func (f *m4found) before(d *m4decision) {
	if d.m.f&^(f.reached&^f.gone) != 0 || f.mut == "start-in-a-change" {
		return
	}
	for l := range int(f.n) {
		el := f.r[l].el
		if d.m.f&f.reached&bit(l) != 0 && el != d.m.el && votes(el) && (!votes(d.before) || count(of(el)) < count(of(d.before))) {
			d.before = el
		}
	}
}

// cover returns members and M by which as many starts can begin as by a or b. ok is false where that takes both
// of them. A member that b adds to a has no record before b is active, so it begins nothing by b.
func cover(a, b uint8) (el uint8, ok bool) {
	switch {
	case !votes(a):
		return b, true
	case !votes(b), of(a)&^of(b) == 0:
		return a, true
	}
	return 0, false
}

// canEnd reports whether a generation with legs f can become active although some of them are away: those can be
// let go.
func (x *m4) canEnd(p *m4life, f uint8) bool {
	if x.mut("needs-who-is-away") {
		return true
	}
	return f&^p.conn == 0 || x.without(p, f&p.conn)
}

// without reports whether a generation with legs f may replace the one that life p has.
func (x *m4) without(p *m4life, f uint8) bool {
	return !x.passesBy(p.bel, f) && (count(f) >= least(p.el) && f&p.eq != 0 || x.mut("below-min") && f != 0)
}

// doesWithout reports whether life p, with legs f, can let leg l go now.
func (x *m4) doesWithout(p *m4life, f uint8, l int) bool {
	f &^= bit(l)
	return x.without(p, f) && x.canEnd(p, f)
}

// alter lets life i begin a change of the members, or of M: one at a time. A smaller M may replace another change.
func (x *m4) alter(i int) {
	s0, p0 := x.s0, &x.s0.p[i]
	lost := x.lost(i)
	if s0.alters == 0 && !lost || !p0.act {
		return
	}
	members, m := of(p0.el), least(p0.el)
	begins := func(el, f uint8, what string) {
		n := *s0
		p := &n.p[i]
		before, ok := p.el, true
		if p0.cg != 0 {
			if before, ok = cover(p.bel, p.el); x.mut("chain-forgets") {
				before, ok = p.bel, true
			}
		}
		if !ok {
			return
		}
		fault := !lost || least(el) >= m
		if fault && n.alters == 0 {
			return
		}
		if fault {
			n.alters--
		}
		p.bel, p.el = before, el
		x.begin(p, f, int(p0.join))
		if !x.mut("newcomer-without-bits") {
			p.fill |= of(el) &^ members
		}
		p.fill &= of(el)
		p.eq &= of(el)
		if x.mut("change-at-once") { // it holds before it is active
			p.bel = 0
		}
		if !x.canEnd(p, f) {
			return
		}
		x.emit(label(i, "%s, begins generation %d%s", what, p.cg, names(f)), fault, n)
	}
	for other := uint8(1); other <= count(members); other++ {
		switch {
		case p0.cg != 0 && other < m && bit(int(p0.join))>>1&^p0.f == 0 && !x.mut("one-change-at-a-time"):
			begins(elect(members, other), p0.cf, fmt.Sprintf("sets M = %d instead", other))
		case p0.cg == 0 && other != m && count(p0.f) >= other:
			begins(elect(members, other), p0.f, fmt.Sprintf("sets M = %d", other))
		}
	}
	for l := range x.n {
		f := p0.f &^ bit(l)
		switch {
		case p0.cg != 0:
		case members&bit(l) == 0:
			if s0.l[l].own == 0 && s0.l[l].r.g == 0 && !s0.l[l].dead {
				begins(elect(members|bit(l), m), p0.f, "adds "+legName(l))
			}
		case count(members) > 2 && f&p0.eq != 0 && (count(f) >= m || x.mut("removed-below-min") && f != 0):
			begins(elect(members&^bit(l), m), f, "removes "+legName(l))
		}
	}
}

// lost reports whether life i waits for a leg that never comes back, so that the operator will set a smaller M.
func (x *m4) lost(i int) bool {
	p := &x.s0.p[i]
	return x.cfg.live && (p.f|p.cf)&x.s0.dead() != 0
}

// dead returns the legs that are destroyed.
func (s *m4state) dead() (legs uint8) {
	for l := range nl {
		if s.l[l].dead {
			legs |= bit(l)
		}
	}
	return legs
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
