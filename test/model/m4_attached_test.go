package model

// A life can end in order and leave clients behind: those of a block device, or of a socket, wait for the next run.
// That one has the window, and with it what the life before has read from. A killed life goes on first, as the next run
// adopts its window: here it is the same life until that is through, and then it ends.

// source returns what the header of the window says that the clients of life p have read from.
func (p *m4life) source() uint8 {
	if p.pc == lRun && p.read != 0 {
		return p.eq // p serves nobody yet
	}
	return p.read
}

// leave ends life p, whose clients stay.
func (p *m4life) leave(pc uint8) { *p = m4life{pc: pc, read: p.eq, lb: p.lb} }

// again has the next run begin where p has not begun a generation.
func (p *m4life) again() {
	*p = m4life{pc: lOpening, read: p.source(), lb: p.lb}
	if p.read == 0 {
		p.lb = [nb]uint8{}
	}
}

// endsAttached lets life i end with a window that is drained. It closes nothing, because its legs are not equal, or because a
// generation is pending.
func (x *m4) endsAttached(i int) {
	s0, p0 := x.s0, &x.s0.p[i]
	if x.cfg.ends == 0 {
		return
	}
	if !p0.act && p0.cg == 0 && s0.kills > 0 {
		n := *s0
		n.kills--
		n.p[i].again()
		x.emit(lifeName(i)+": killed before it had a generation; the next run decides again", true, n)
	}
	if s0.ends == 0 || !p0.act || p0.bon || p0.cov != p0.last {
		return
	}
	what := ""
	switch f := p0.f & p0.eq; {
	case p0.cg != 0: // it began behind the last flush, when all were equal
		if p0.f&p0.cf&^p0.eq == 0 && p0.f&p0.fill == 0 {
			what = "drained while a generation is pending"
		}
	case p0.f&^p0.eq != 0 && count(f) < least(p0.el) && !x.regainsAny(i):
		what = "drained before its legs are equal"
	}
	if what == "" {
		return
	}
	n := *s0
	n.ends--
	n.p[i].leave(lEnded)
	x.emit(label(i, "%s, ends; its clients stay", what), true, n)
}

// readFromA has clients of the second life read from A what the first one wrote to A alone.
func (c m4cfg) readFromA() m4cfg {
	c.after = "WRITE v1|v1 placed at A|host crashes|N starts"
	for l := range int(c.n) {
		c.after += "|N: OPENs " + legName(l)
	}
	c.after += "|reads from {A}|durable at A"
	for l := 1; l < int(c.n) && c.m > 1; l++ {
		c.after += "|durable at " + legName(l)
	}
	c.after += "|is active|READ of block 0 from A: v1"
	return c
}

// regainsAny reports whether life i waits for a leg in F that lost its contents: only i knows what it lacks.
func (x *m4) regainsAny(i int) bool {
	for l := range x.n {
		if x.s0.p[i].f&bit(l) != 0 && x.regains(i, l) {
			return true
		}
	}
	return false
}

// startEnds lets life i, which has not begun, be killed.
func (x *m4) startEnds(i int) {
	if x.cfg.ends == 0 || x.s0.kills == 0 {
		return
	}
	n := *x.s0
	n.kills--
	n.p[i].again()
	if x.mut("start-in-vain-forgets") {
		n.p[i].read = 0
	}
	x.emit(lifeName(i)+": the start is killed; the next run begins anew", true, n)
}
