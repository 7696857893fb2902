package model

import "fmt"

// arbiter stands for the arbiter in cw, the set of those that have a generation.
const arbiter = 1 << 7

// cut makes the barrier in flight fail.
func (p *m4life) cut() {
	p.bon, p.bto, p.back, p.cdur = false, 0, 0, 0
	p.second = m4second{known: p.second.known}
	if p.fl >= 2 {
		p.fl = 1
	}
}

func (p *m4life) endSync() {
	p.sy, p.todo, p.copied, p.cdur, p.cb, p.cv, p.cp, p.clr = 0, 0, 0, 0, 0, 0, 0, 0
	p.second.known = 0
}

func (p *m4life) fail(pc uint8) { *p = m4life{pc: pc} }

// begin begins a change of generation. The window's header names it from now on.
func (x *m4) begin(p *m4life, f uint8, join int) {
	if !x.mut("old-barrier-counts") {
		p.cut()
	}
	if !x.mut("unequal-leaves-with-its-bits") {
		p.fill |= p.f &^ p.eq &^ f // it leaves before it was equal
	}
	if p.cg != 0 && !x.mut("unequal-leaves-a-change") {
		p.fill |= p.cf &^ p.eq &^ f &^ (1 << p.join >> 1)
	}
	if !x.mut("contents-forgotten") {
		p.fill |= p.f & p.stale &^ f // or without its contents
	}
	if !x.mut("bits-of-a-leaver") {
		p.fill &= of(p.el)
	}
	p.cg, p.cf, p.cw, p.join = max(p.g, p.cg)+1, f, 0, uint8(join)
	if !x.mut("attempts-forgotten") {
		p.hist = x.shorten(p.hist)
		p.hist = put(p.hist, p.cg, p.me, p.cf)
	}
}

// replaceSource lets life i have another leg as its source, before its first generation is active.
func (x *m4) replaceSource(i int) {
	s0, p0 := x.s0, &x.s0.p[i]
	from := p0.cf
	if p0.act {
		from = p0.f
	}
	if !x.cfg.replaces || (p0.cg == 0 || p0.act) && !x.mut("source-once-served") {
		return
	}
	for l := range x.n {
		if from&^p0.eq&bit(l) == 0 || !s0.holds(i, l) || s0.l[l].gone || p0.stale&bit(l) != 0 {
			continue
		}
		if p0.only != 0 && p0.only&bit(l) == 0 && !x.mut("another-source-while-pending") {
			continue
		}
		n := *s0
		p := &n.p[i]
		p.eq = bit(l)
		p.fill |= of(p.el) &^ p.eq
		x.emit(fmt.Sprintf("%s: takes %s for the source", lifeName(i), legName(l)), false, n)
	}
}

// shorten makes room in a full lineage, before its newest generation moves into it: the oldest two
// neighbours of one life become one entry, with the legs of both. Where there are none, the oldest is
// forgotten.
func (x *m4) shorten(hist uint64) uint64 {
	tip := uint8(maxGeneration)
	for at(hist, tip) == 0 {
		tip--
	}
	if x.cfg.lineage == 0 || remembered(hist, tip) < x.cfg.lineage {
		return hist
	}
	older := uint8(0)
	for g := uint8(1); g < tip; g++ {
		if at(hist, g) == 0 {
			continue
		}
		if f := legsAt(hist, older) & legsAt(hist, g); older != 0 && at(hist, older) == at(hist, g) && f != 0 {
			return put(put(hist, g, at(hist, g), f), older, 0, 0)
		}
		older = g
	}
	for g := uint8(1); ; g++ {
		if at(hist, g) != 0 {
			return put(hist, g, 0, 0)
		}
	}
}

// activate ends a change of generation of life i: all of its legs have it.
func (x *m4) activate(s *m4state, i int) {
	p := &s.p[i]
	if int(s.actBy) <= i || x.cfg.force { // else it is late news: its legs have been taken
		if at(p.hist, s.actG) != s.actBy+1 && !x.cfg.force && x.cfg.lineage == 0 {
			s.bad = 4
		}
		s.actG, s.actF, s.actBy = p.cg, p.cf&^p.un, uint8(i)
	}
	p.g, p.mby, p.mf, p.f, p.act = p.cg, uint8(i), p.cf, p.cf, true
	p.hist = put(p.hist, p.cg, p.me, p.cf)
	if p.join != 0 {
		p.eq |= bit(int(p.join) - 1)
		p.endSync()
	}
	p.eq &= p.f
	if p.sy != 0 && of(p.el)&bit(int(p.sy)-1) == 0 && !x.mut("leaver-comes-back") {
		p.endSync()
	}
	if p.hg == 0 {
		p.hg, p.hf = p.g, p.f
	}
	p.cg, p.cf, p.cw, p.join, p.fill, p.bel = 0, 0, 0, 0, 0, 0
	p.only, p.read = 0, 0
}

// letGo lets life i begin a generation without a leg that is lost.
func (x *m4) letGo(i int) {
	s0, p0 := x.s0, &x.s0.p[i]
	if !p0.act && p0.cg == 0 {
		return
	}
	base := p0.f
	if p0.cg != 0 {
		base = p0.cf
	}
	for l := range x.n {
		if base&bit(l) == 0 || p0.conn&bit(l) != 0 {
			continue
		}
		f, lost := base&^bit(l), x.cfg.live && s0.l[l].dead
		if s0.changes == 0 && !lost || !x.doesWithout(p0, base, l) {
			continue
		}
		n := *s0
		p := &n.p[i]
		if !lost {
			n.changes--
		}
		if x.mut("drop-without-record") {
			p.f, p.eq = f, p.eq&^bit(l)
			p.cut()
			x.emit(label(i, "lets %s go", legName(l)), true, n)
			continue
		}
		join := int(p.join)
		if join == l+1 {
			join = 0
		}
		x.begin(p, f, join)
		p.eq &^= bit(l)
		x.emit(label(i, "lets %s go, begins generation %d%s", legName(l), p.cg, names(f)), p0.stale&bit(l) == 0 && !lost, n)
	}
}

// takeBack lets life i begin a generation with the legs again that the pending one is without, because that one
// needs a leg that is away. Whichever comes back first will do.
func (x *m4) takeBack(i int) {
	p0 := &x.s0.p[i]
	if p0.cg == 0 || x.canEnd(p0, p0.cf) || x.mut("never-taken-back") {
		return
	}
	if !x.mut("taken-back-from-few") && (p0.bel != 0 || !votes(p0.el)) {
		return // else a start may find all legs of one attempt, and none of another
	}
	back := p0.f & of(p0.el) &^ p0.cf
	if back == 0 {
		return
	}
	whole := back &^ p0.fill
	n := *x.s0
	p := &n.p[i]
	x.begin(p, p.cf|back, int(p.join))
	p.fill &^= back
	p.eq |= whole
	x.emit(label(i, "takes %s back, begins generation %d%s", names(back), p.cg, names(p.cf)), false, n)
}

// standIn lets life i begin a generation with a leg in F that lacks what its bits say, because F has one that is away and
// that it cannot do without. No record names the contents of the leg before it has everything.
func (x *m4) standIn(i int) {
	s0, p0 := x.s0, &x.s0.p[i]
	f := p0.f
	if p0.cg != 0 {
		f = p0.cf
	}
	rest, lost := f&p0.conn, x.lost(i)
	if !p0.act || s0.changes == 0 && !lost || rest == f || x.canEnd(p0, f) || rest&p0.eq == 0 || x.mut("nobody-stands-in") {
		return
	}
	if p0.cg != 0 && (p0.bel != 0 || !votes(p0.el)) && !x.mut("stands-in-for-few") {
		return // as takeBack
	}
	mine := rec{g: p0.g, by: p0.mby, f: p0.mf, hist: p0.hist}
	for l := range x.n {
		g0 := &s0.l[l]
		if of(p0.el)&^f&bit(l) == 0 || g0.dead || g0.own != uint8(i+1) && p0.open&bit(l) != 0 || g0.life > uint8(i) ||
			count(rest)+1 < least(p0.el) || !g0.r.torn && !behind(&g0.r, &mine, x.cfg.mut, x.cfg.full(&g0.r)) {
			continue
		}
		n := *s0
		p, g := &n.p[i], &n.l[l]
		if !lost {
			n.changes--
		}
		if g.own != uint8(i+1) {
			g.own, g.life = uint8(i+1), uint8(i)
			g.doubt = g.doubt || !g.clean
			g.clean = false
		}
		p.open |= bit(l)
		p.conn |= bit(l)
		p.stale &^= bit(l)
		p.pos[l] = p.cov
		p.endSync()
		join := p.join
		if rest&(1<<join>>1) == 0 {
			join = 0
		}
		x.begin(p, rest|bit(l), int(join))
		p.eq &= rest
		p.fill &^= bit(l)
		if !x.mut("stand-in-is-named") {
			p.un |= bit(l)
		}
		x.emit(label(i, "%s stands in, begins generation %d%s", legName(l), p.cg, names(p.cf)), !lost, n)
	}
}

// enough lets life i begin a generation of the equal legs alone, because a FLUSH waits.
func (x *m4) enough(i int) {
	p0 := &x.s0.p[i]
	if p0.act && p0.cg == 0 && p0.f&^p0.eq != 0 && count(p0.eq) >= least(p0.el) && p0.fl == 1 && p0.eq&^p0.conn == 0 {
		n := *x.s0
		x.begin(&n.p[i], p0.eq, 0)
		x.emit(label(i, "enough copies are equal, begins generation %d%s", n.p[i].cg, names(p0.eq)), false, n)
	}
}

// change takes a step of the change of generation that life i has begun.
func (x *m4) change(i int) {
	s0, p0 := x.s0, &x.s0.p[i]
	if p0.cg == 0 {
		return
	}
	early := x.mut("legs-before-arbiter")
	if x.cfg.arb && p0.cw&arbiter == 0 {
		x.arbitrate(i)
	}
	for l := range x.n {
		last := p0.cf&^p0.cw == bit(l)
		switch {
		case p0.cf&^p0.cw&bit(l) == 0 || !s0.holds(i, l):
		case x.cfg.arb && p0.cw&arbiter == 0 && !early:
		case p0.join == uint8(l+1) && !last && !x.mut("joiner-first"):
		case x.mut("joiner-first") && p0.join != 0 && p0.join != uint8(l+1) && p0.cw&bit(int(p0.join)-1) == 0:
		default:
			x.record(i, l)
		}
	}
	if p0.cw&^arbiter == p0.cf && (!x.cfg.arb || p0.cw&arbiter != 0 || early) || x.mut("active-at-one") && p0.cw != 0 {
		n := *s0
		x.activate(&n, i)
		x.emit(label(i, "generation %d%s is active", n.p[i].g, names(n.p[i].f)), false, n)
	}
}

// arbitrate gives the arbiter the generation that life i has begun, by compare and swap.
func (x *m4) arbitrate(i int) {
	n := *x.s0
	p := &n.p[i]
	switch {
	case n.aG == p.ag && n.aBy == p.aby || x.mut("no-compare"):
		n.aG, n.aBy, n.aF, n.aEl, n.aHist = p.cg, uint8(i), p.cf, p.el, p.hist
		fallthrough
	case n.aG == p.cg && n.aBy == uint8(i) && n.aF == p.cf:
		p.ag, p.aby = p.cg, uint8(i)
		p.cw |= arbiter
		x.emit(label(i, "generation %d%s at the arbiter", p.cg, names(p.cf)), false, n)
	default:
		p.fail(lFailed)
		x.emit(lifeName(i)+": the arbiter knows of somebody else: fails for good", false, n)
	}
}

// record writes the generation that life i has begun to leg l.
func (x *m4) record(i, l int) {
	if x.s0.p[i].fill&^of(x.s0.p[i].el) != 0 {
		return // its target refuses bits of a leg that is no member
	}
	n := *x.s0
	p, g := &n.p[i], &n.l[l]
	src := -1
	for y := range x.n {
		if p.eq&bit(y) != 0 && y != l {
			src = y
		}
	}
	for y := range x.n {
		switch {
		case p.cf&bit(y) != 0:
			g.bits[y] = 0
		case p.fill&bit(y) != 0:
			g.bits[y] = x.allb
		case p.join == uint8(l+1) && src >= 0 && !x.mut("joiner-without-bits"):
			g.bits[y] = n.l[src].bits[y]
		}
	}
	g.r = rec{g: p.cg, by: uint8(i), f: p.cf, hist: put(p.hist, p.cg, p.me, p.cf), el: p.el, un: p.un}
	for y := range x.n { // F is named with its contents ids, but for one that is being copied to
		named := (p.eq|1<<p.join>>1)&bit(y) != 0
		if p.cf&bit(y) != 0 && p.stale&bit(y) == 0 && named {
			n.l[y].gone = false
		}
	}
	p.cw |= bit(l)
	x.emit(label(i, "generation %d%s durable at %s", p.cg, names(p.cf), legName(l)), false, n)
}
