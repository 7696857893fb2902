package model

import "fmt"

// clients lets clients of life i write, flush and read.
func (x *m4) clients(i int) {
	s0, p0 := x.s0, &x.s0.p[i]
	if !x.serving(i) {
		return
	}
	if s0.next <= x.cfg.maxv {
		for b := range int(x.cfg.nb) {
			n := *s0
			p := &n.p[i]
			v := n.next
			n.next++
			n.vown[v], n.vblk[v] = uint8(i), uint8(b)
			p.last, p.lb[b] = v, v
			x.emit(label(i, "WRITE v%d to block %d, acknowledged early", v, b), true, n)
		}
	}
	if p0.fl == 0 && s0.flushes > 0 {
		n := *s0
		n.flushes--
		n.p[i].fl, n.p[i].fsnap = 1, p0.lb
		x.emit(label(i, "FLUSH received (client knows %v)", p0.lb), true, n)
	}
	if s0.reads == 0 {
		return
	}
	for l := range x.n {
		may := p0.eq&bit(l) != 0
		if x.mut("read-from-any") {
			may = (p0.f|p0.eq)&bit(l) != 0
		}
		if x.mut("read-while-syncing") {
			may = may || p0.sy == uint8(l+1)
		}
		if !may || !s0.holds(i, l) || p0.pos[l] < p0.last {
			continue
		}
		for b := range int(x.cfg.nb) {
			x.read(i, l, b)
		}
	}
}

// serving reports whether life i serves: it has an active generation of its own.
func (x *m4) serving(i int) bool { return x.s0.p[i].act || x.mut("post-before-active") }

// read lets a client of life i read block b from leg l.
func (x *m4) read(i, l, b int) {
	n := *x.s0
	p := &n.p[i]
	n.reads--
	v := n.l[l].mem[b]
	if !n.zombie(i) && v < n.gfl[b] && !x.cfg.force {
		n.bad = 5
	}
	if v < p.lb[b] && !x.cfg.force {
		n.bad = 2
	}
	p.lb[b] = max(p.lb[b], v)
	x.emit(label(i, "READ of block %d from %s: v%d", b, legName(l), v), true, n)
}

// place sends the window of life i to every leg, in one order.
func (x *m4) place(i int) {
	s0, p0 := x.s0, &x.s0.p[i]
	for l := range x.n {
		if !x.serving(i) || !s0.holds(i, l) || (p0.f|p0.eq|p0.cf)&bit(l) == 0 && p0.sy != uint8(l+1) {
			continue
		}
		v := p0.pos[l] + 1
		for v < s0.next && s0.vown[v] != uint8(i) {
			v++
		}
		if v >= s0.next {
			continue
		}
		if p0.cb != 0 && p0.sy == uint8(l+1) && v > p0.cp && !x.mut("no-hold-back") {
			continue // a copy is under way: the queue stops behind it
		}
		n := *s0
		n.p[i].pos[l] = v
		if swapped := x.mut("order-per-leg") && l == 1 && v == 2 && s0.vown[1] == uint8(i) && s0.vblk[1] == s0.vblk[2]; !swapped {
			n.l[l].mem[s0.vblk[v]] = v // the mutant: the other connection was first here
		}
		x.emit(label(i, "v%d placed at %s", v, legName(l)), false, n)
	}
}

// part returns the legs that take part in a barrier of life i.
func (p *m4life) part() uint8 {
	if p.sy != 0 && p.conn&bit(int(p.sy)-1) != 0 {
		return p.f | bit(int(p.sy)-1)
	}
	return p.f
}

// equal reports whether all of F is equal, so that a FLUSH may succeed.
func (x *m4) equal(i int) bool {
	p := &x.s0.p[i]
	return p.f&^p.eq == 0 || x.mut("unequal-counts")
}

// barriers lets life i begin a barrier, legs acknowledge it, and life i complete it.
func (x *m4) barriers(i int) {
	s0, p0 := x.s0, &x.s0.p[i]
	equal := x.equal(i)
	if p0.act && !p0.bon && p0.cg == 0 && (p0.fl == 1 && equal || p0.cov < p0.last || p0.copied != 0 || p0.todo == 0 && x.unsettled(i)) {
		n := *s0
		p := &n.p[i]
		p.bon, p.bto, p.back = true, p.last, 0
		if p.fl == 1 && equal {
			p.fl = 2
		}
		x.emit(lifeName(i)+": barrier begins", false, n)
	}
	if !p0.bon || p0.cg != 0 && !x.mut("old-barrier-counts") {
		return
	}
	for l := range x.n {
		if p0.part()&bit(l) != 0 && p0.back&bit(l) == 0 && s0.holds(i, l) && p0.pos[l] >= p0.bto {
			x.barrierAt(i, l)
		}
	}
	x.another(i)
	need := p0.part()
	if x.mut("ack-by-one-leg") && p0.back != 0 {
		need = p0.back
	}
	if p0.back&need == need && p0.back != 0 {
		x.barrierDone(i)
	}
}

// barrierAt executes the barrier of life i at leg l: bits for those outside F of its record, then
// the flush, then the acknowledgement.
func (x *m4) barrierAt(i, l int) {
	n := *x.s0
	p, g := &n.p[i], &n.l[l]
	var blocks uint8
	for v := p.cov + 1; v <= p.bto; v++ {
		if n.vown[v] == uint8(i) {
			blocks |= bit(int(n.vblk[v]))
		}
	}
	flush := blocks
	if g.doubt {
		if !x.mut("doubt-ignored") {
			flush = x.allb
		}
		g.doubt = false
	}
	if p.sy == uint8(l+1) {
		flush |= p.copied
		p.cdur = p.copied
	}
	if p.f&bit(l) != 0 {
		if p.sy != 0 && !x.mut("clear-behind-the-ranges") {
			g.bits[p.sy-1] &^= p.clr
		}
		for y := range x.n {
			if of(g.r.el)&^g.r.f&bit(y) != 0 && !x.mut("bits-not-set") {
				g.bits[y] |= blocks
			}
		}
		if p.sy != 0 && x.mut("clear-behind-the-ranges") {
			g.bits[p.sy-1] &^= p.clr
		}
	}
	for b := range int(x.cfg.nb) {
		if flush&bit(b) != 0 {
			g.dur[b] = g.mem[b]
		}
	}
	p.back |= bit(l)
	x.emit(label(i, "barrier of blocks %02b durable at %s, acknowledged", blocks, legName(l)), false, n)
}

// barrierDone completes the barrier of life i, and a FLUSH that was in it.
func (x *m4) barrierDone(i int) {
	n := *x.s0
	p := &n.p[i]
	p.cov = p.bto
	event := label(i, "barrier done on %s", names(p.back))
	if p.fl == 2 {
		p.fl = 0
		n.flushedBy |= bit(i)
		for b := range int(x.cfg.nb) {
			n.gfl[b] = max(n.gfl[b], p.fsnap[b])
		}
		event += fmt.Sprintf(", FLUSH answered: %v is promised", n.gfl)
	}
	if p.sy != 0 && p.back&bit(int(p.sy)-1) != 0 {
		p.todo &^= p.cdur
		p.copied &^= p.cdur
		p.clr = x.allb &^ p.todo
	} else {
		p.clr = 0
	}
	p.bon, p.bto, p.back, p.cdur = false, 0, 0, 0
	x.shift(p)
	x.emit(event, false, n)
}
