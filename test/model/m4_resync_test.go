package model

// resync lets life i take a leg back, and copy to it.
func (x *m4) resync(i int) {
	p0 := &x.s0.p[i]
	switch {
	case p0.cg != 0:
	case p0.sy == 0:
		for l := range x.n {
			x.meet(i, l)
		}
	default:
		to := int(p0.sy) - 1
		if p0.cb == 0 && x.s0.holds(i, to) {
			x.copyRead(i, to)
		}
		if p0.cb != 0 && x.s0.holds(i, to) && (p0.pos[to] == p0.cp || x.mut("no-hold-back")) {
			x.copyWrite(i, to)
		}
		x.synced(i, to)
		for l := range x.n { // the product copies to several at a time
			if l != to && p0.cb == 0 && x.regains(i, l) {
				x.meet(i, l)
			}
		}
	}
}

// source returns a leg that life i may copy from, or -1.
func (x *m4) source(i int) int { return x.sourceBut(i, -1) }

// sourceBut is source for a copy to leg l, which may still count as equal.
func (x *m4) sourceBut(i, l int) int {
	src := -1
	for y := range x.n {
		if y != l && x.s0.p[i].eq&bit(y) != 0 && x.s0.holds(i, y) {
			src = y
		}
	}
	return src
}

// mayMeet reports whether life i can have a session on leg l, which is not equal, and begin to copy.
func (x *m4) mayMeet(i, l int) bool {
	s0, p0 := x.s0, &x.s0.p[i]
	inF := p0.f&bit(l) != 0
	if x.regains(i, l) {
		return s0.l[l].own == uint8(i+1) && x.sourceBut(i, l) >= 0
	}
	if p0.eq&bit(l) != 0 || s0.l[l].dead || of(p0.el)&bit(l) == 0 || p0.act && inF && !s0.holds(i, l) {
		return false
	}
	if s0.l[l].gone || (p0.stale|p0.un)&bit(l) != 0 {
		if inF {
			return false
		}
		for y := range x.n {
			if p0.f&bit(y) != 0 && !s0.holds(i, y) {
				return false
			}
		}
	}
	// A life that opened it only RESUMEs, and a younger life may have it.
	return (s0.l[l].own == uint8(i+1) || p0.open&bit(l) == 0) && s0.l[l].life <= uint8(i) && x.source(i) >= 0
}

// regains reports whether leg l is in F of life i, has lost its contents, and cannot be let go, because too
// few copies would remain, or answer. It stays in F, is equal no more, and everything is copied to it.
func (x *m4) regains(i, l int) bool {
	s0, p0 := x.s0, &x.s0.p[i]
	if p0.un&p0.f&bit(l) != 0 { // it stands in for another one
		return p0.act && p0.eq&bit(l) == 0 && !s0.l[l].dead && p0.eq != 0
	}
	lost := s0.l[l].gone || p0.stale&bit(l) != 0
	return lost && p0.act && p0.f&bit(l) != 0 && !s0.l[l].dead && p0.eq&^bit(l) != 0 && !x.doesWithout(p0, p0.f, l)
}

// needed reports whether the generation that life i has begun needs leg l, which lost its contents.
func (x *m4) needed(i, l int) bool {
	p0 := &x.s0.p[i]
	return p0.cf&bit(l) != 0 && p0.eq&^bit(l) != 0 && !x.doesWithout(p0, p0.cf, l)
}

// meet lets life i take leg l back, if nothing active is known there that it does not know of.
func (x *m4) meet(i, l int) {
	if !x.mayMeet(i, l) {
		return
	}
	s0, p0 := x.s0, &x.s0.p[i]
	r := &s0.l[l].r
	mine := rec{g: p0.g, by: p0.mby, f: p0.mf, hist: p0.hist}
	same := behind(r, &mine, x.cfg.mut, x.cfg.full(r))
	passedOver := x.cfg.force && (r.torn || s0.l[l].gone)
	if !same && !p0.act && !passedOver && older(&mine, r, x.cfg.mut) { // what it began with is not the newest
		n := *s0
		p := &n.p[i]
		read := p.source()
		*p = m4life{pc: lOpening, open: p.open, conn: p.conn, cleanAt: p.cleanAt, me: p.me, read: read, lb: p.lb}
		if read == 0 {
			p.lb = [nb]uint8{}
		}
		x.emit(label(i, "%s knows more, decides again", legName(l)), false, n)
		return
	}
	same = same || r.torn
	if !same && !x.cfg.force && s0.newest(i) {
		n := *s0
		n.bad = 8
		x.emit(label(i, "takes %s for one that went its own way", legName(l)), false, n)
	}
	if !same && !x.mut("no-lineage") {
		return
	}
	n := *s0
	if !same && n.flushedBy&bit(int(r.by)) != 0 && r.f == bit(l) {
		n.bad = 6
	}
	x.beginSync(&n, i, l)
	x.emit(label(i, "%s is back, resync of blocks %02b from %s", legName(l), n.p[i].todo, legName(x.source(i))), false, n)
}

// beginSync opens leg l for life i, if it has no session, and begins to copy what it lacks.
func (x *m4) beginSync(n *m4state, i, l int) {
	p, g := &n.p[i], &n.l[l]
	mine := rec{g: p.g, by: p.mby, f: p.mf, hist: p.hist, torn: true, el: p.el}
	if x.regains(i, l) && !x.mut("regained-is-equal") {
		p.eq &^= bit(l)
		p.cut()
		p.endSync()
	}
	all, inF := p.stale&bit(l) != 0 || g.gone || p.un&bit(l) != 0 || !behind(&g.r, &mine, x.cfg.mut, x.cfg.full(&g.r)), p.f&bit(l) != 0
	if g.own != uint8(i+1) {
		g.own, g.life = uint8(i+1), uint8(i)
		if !g.clean {
			g.doubt = true
		}
		g.clean = false
	}
	p.open |= bit(l)
	p.conn |= bit(l)
	p.stale &^= bit(l)
	p.pos[l] = p.cov
	p.sy = uint8(l + 1)
	p.todo = n.l[x.sourceBut(i, l)].bits[l]
	if inF || !p.act {
		p.todo = x.allb
	}
	if all {
		p.todo = x.allb
		if p.act && !inF || x.mut("contents-named-early") { // no record names it in F: with the bits, its new contents id is noted
			g.gone = false
			p.un &^= bit(l)
			for y := range x.n {
				if p.f&bit(y) != 0 {
					n.l[y].r.un &^= bit(l)
				}
			}
		}
		for y := range x.n {
			if p.f&bit(y) != 0 && !x.mut("contents-forgotten") {
				n.l[y].bits[l] = x.allb
			}
		}
	}
	if x.mut("clear-on-rejoin") {
		p.todo = 0
	}
	switch { // before the first byte its record says that it is half copied
	case p.mf&bit(l) != 0: // nothing that was flushed is overwritten
	case x.mut("torn-serves"):
		g.r.torn = true
	default:
		mine.un = p.un
		g.r = mine
	}
}

// copyRead lets life i read a block that leg to lacks, from an equal leg.
func (x *m4) copyRead(i, to int) {
	s0, p0 := x.s0, &x.s0.p[i]
	for b := range int(x.cfg.nb) {
		if p0.todo&^p0.copied&bit(b) == 0 {
			continue
		}
		for l := range x.n {
			from := p0.eq&bit(l) != 0
			if x.mut("any-source") {
				from = l != to && p0.conn&bit(l) != 0
			}
			if !from || !s0.holds(i, l) || p0.pos[l] < p0.pos[to] {
				continue
			}
			n := *s0
			p := &n.p[i]
			p.cb, p.cv, p.cp = uint8(b+1), n.l[l].mem[b], p.pos[l]
			if !n.zombie(i) && p.cv < n.gfl[b] && !x.cfg.force {
				n.bad = 5
			}
			x.emit(label(i, "resync reads v%d of block %d from %s", p.cv, b, legName(l)), false, n)
		}
	}
}

// copyWrite lets life i write the block that it has read, at the same place of the order.
func (x *m4) copyWrite(i, to int) {
	n := *x.s0
	p := &n.p[i]
	b := p.cb - 1
	n.l[to].mem[b] = p.cv
	p.copied |= bit(int(b))
	if x.mut("clear-before-durable") {
		p.todo &^= bit(int(b))
		p.copied &^= bit(int(b))
	}
	p.cb, p.cv, p.cp = 0, 0, 0
	x.emit(label(i, "resync writes block %d to %s", b, legName(to)), false, n)
}

// unsettled reports whether life i copies to a leg that is in doubt. What it has, beside the copies, may not be durable.
func (x *m4) unsettled(i int) bool {
	to := int(x.s0.p[i].sy) - 1
	return to >= 0 && x.s0.holds(i, to) && x.s0.l[to].doubt && !x.mut("doubt-is-taken-in")
}

// synced ends the resync of leg to when no bit is left, and it has acknowledged a barrier if it was in doubt.
func (x *m4) synced(i, to int) {
	p0 := &x.s0.p[i]
	done := p0.todo == 0 && p0.copied == 0 && !x.unsettled(i)
	if !p0.act {
		done = p0.todo&^p0.copied == 0
	}
	if !done || p0.cb != 0 || p0.bon || !x.s0.holds(i, to) {
		return
	}
	n := *x.s0
	p := &n.p[i]
	switch {
	case !p.act:
		n.l[to].dur, n.l[to].doubt = n.l[to].mem, false
		p.eq |= bit(to)
		p.endSync()
		if count(p.eq) >= least(p.el) && !x.passesBy(p.bel, p.eq) {
			p.fill = of(p.el) &^ p.eq
			x.begin(p, p.eq, 0)
		}
		x.emit(label(i, "%s is equal", legName(to)), false, n)
	case (n.l[to].gone || p.un&bit(to) != 0) && p.f&bit(to) != 0: // it has everything again, and a generation says so
		if stood := p.un & bit(to); n.changes > 0 || stood != 0 {
			if stood == 0 {
				n.changes--
			}
			x.begin(p, p.f, to+1)
			p.un &^= bit(to)
			x.emit(label(i, "%s has everything again, begins generation %d%s", legName(to), p.cg, names(p.cf)), false, n)
		}
		return
	case p.f&bit(to) != 0:
		p.eq |= bit(to)
		p.endSync()
		x.emit(label(i, "%s is equal", legName(to)), false, n)
	case n.changes > 0 && (of(p.el)&bit(to) != 0 || x.mut("leaver-comes-back")):
		n.changes--
		x.begin(p, p.f|bit(to), to+1)
		x.emit(label(i, "%s lacks nothing, begins generation %d%s", legName(to), p.cg, names(p.cf)), false, n)
	}
}
