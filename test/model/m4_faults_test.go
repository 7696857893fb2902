package model

import "fmt"

// lose makes life i lose its session on leg l.
func (x *m4) lose(s *m4state, i, l int) {
	p := &s.p[i]
	if p.conn&bit(l) == 0 {
		return
	}
	p.conn &^= bit(l)
	if !x.mut("old-barrier-counts") || p.back&bit(l) != 0 {
		if p.second.on && x.mut("cut-off-alone") {
			x.cutFirst(p)
		} else {
			p.cut()
		}
	}
	if p.sy == uint8(l+1) {
		p.endSync()
	}
	p.cb, p.cv, p.cp = 0, 0, 0
}

// sessions lets life i lose sessions, learn of another owner, and RESUME.
func (x *m4) sessions(i int) {
	s0, p0 := x.s0, &x.s0.p[i]
	for l := range x.n {
		if p0.conn&bit(l) != 0 && s0.l[l].own != uint8(i+1) {
			n := *s0
			n.p[i].fail(lFailed)
			x.emit(label(i, "learns that %s has another owner: fails for good", legName(l)), false, n)
			n = *s0
			x.lose(&n, i, l)
			x.emit(label(i, "hears no more of %s", legName(l)), false, n)
		}
		if p0.conn&bit(l) != 0 && s0.drops > 0 {
			n := *s0
			n.drops--
			x.lose(&n, i, l)
			x.emit(label(i, "connection to %s lost", legName(l)), true, n)
		}
		if p0.conn&bit(l) == 0 && p0.open&bit(l) != 0 && (p0.f|p0.eq|p0.cf)&bit(l) != 0 && !s0.l[l].dead {
			x.resume(i, l)
		}
	}
}

// resume lets life i RESUME its session on leg l, and replay.
func (x *m4) resume(i, l int) {
	n := *x.s0
	p := &n.p[i]
	switch {
	case n.l[l].own != uint8(i+1):
		p.fail(lFailed)
		x.emit(label(i, "RESUME refused by %s: fails for good", legName(l)), false, n)
	case p.stale&bit(l) != 0:
		if (p.f|p.cf)&^bit(l) == 0 || p.eq == bit(l) {
			if !p.act && p.cg == 0 && x.cfg.ends > 0 {
				p.again()
			} else {
				p.fail(lFailed)
			}
			x.emit(label(i, "the contents of %s are not what was read: fails for good", legName(l)), false, n)
		} else if x.needed(i, l) && !x.mut("regains-in-a-change") {
			p.conn |= bit(l)
			p.pos[l] = p.cov
			p.stale &^= bit(l)
			if !x.mut("regained-is-equal") {
				p.eq &^= bit(l)
			}
			if p.join == uint8(l+1) && !x.mut("lost-joiner-is-equal") {
				p.join = 0
			}
			x.emit(label(i, "RESUMEs at %s, which lost its contents, for the pending generation", legName(l)), false, n)
		} // else it is let go
	default:
		p.conn |= bit(l)
		p.pos[l] = p.cov
		if x.mut("no-replay") {
			p.pos[l] = p.last
		}
		x.emit(label(i, "RESUMEs at %s", legName(l)), false, n)
	}
}

// ends lets life i be killed, crash with its host, or begin to close.
func (x *m4) ends(i int) {
	s0, p0 := x.s0, &x.s0.p[i]
	if s0.kills > 0 {
		n := *s0
		n.kills--
		p := &n.p[i]
		p.conn, p.cw = 0, 0
		p.cut()
		p.endSync()
		if x.mut("header-late") {
			p.g, p.f, p.eq, p.cg, p.cf, p.join = p.hg, p.hf, p.hf, 0, 0, 0
		}
		if x.mut("source-forgotten") {
			p.eq = p.f
		}
		x.emit(label(i, "killed; the next run adopts the window"), true, n)
	}
	if s0.crashes > 0 {
		n := *s0
		n.crashes--
		n.p[i].fail(lCrashed)
		x.emit(label(i, "its host crashes, the window is lost"), true, n)
	}
	if s0.closes == 0 || !p0.act || p0.cg != 0 || p0.fl != 0 || p0.bon || !x.equal(i) || p0.f&^p0.conn != 0 ||
		p0.cov != p0.last && !x.mut("close-without-barrier") {
		return
	}
	for l := range x.n {
		if p0.f&bit(l) != 0 && (s0.l[l].doubt || !s0.holds(i, l)) {
			return
		}
	}
	n := *s0
	n.closes--
	p := &n.p[i]
	for b := range int(x.cfg.nb) {
		if !x.mut("close-without-barrier") {
			n.gfl[b] = max(n.gfl[b], p.lb[b])
		}
	}
	p.pc = lClosing
	x.emit(label(i, "drained, closes"), true, n)
}

// close lets life i, which is drained, CLOSE legs and exit.
func (x *m4) close(i int) {
	for l := range x.n {
		if x.s0.p[i].f&bit(l) != 0 && x.s0.holds(i, l) {
			n := *x.s0
			n.l[l].clean = true
			n.l[l].own = 0
			n.p[i].conn &^= bit(l)
			x.emit(label(i, "CLOSE at %s", legName(l)), false, n)
		}
	}
	n := *x.s0
	if x.cfg.ends > 0 {
		n.p[i].leave(lClosed)
	} else {
		n.p[i].fail(lClosed)
	}
	x.emit(label(i, "exits"), false, n)
}

// target lets leg l lose power, or be destroyed.
func (x *m4) target(l int) {
	s0 := x.s0
	if s0.l[l].dead {
		return
	}
	if s0.powers > 0 {
		for keep := range uint8(1 << x.cfg.nb) {
			x.power(l, keep)
		}
	}
	if s0.deaths > 0 {
		n := *s0
		n.deaths--
		n.l[l].dead = true
		for i := range n.p {
			x.lose(&n, i, l)
		}
		x.emit(legName(l)+" is destroyed", true, n)
	}
}

// power makes leg l lose power, and keep these blocks of what was not flushed. Volatile legs keep
// nothing.
func (x *m4) power(l int, keep uint8) {
	n := *x.s0
	g := &n.l[l]
	same := x.cfg.volatile && keep != 0
	for b := range int(x.cfg.nb) {
		if keep&bit(b) == 0 {
			g.mem[b] = g.dur[b]
		} else if g.mem[b] == g.dur[b] {
			same = true
		}
		g.dur[b] = g.mem[b]
	}
	if same {
		return
	}
	if x.cfg.volatile {
		g.mem, g.dur, g.gone = [nb]uint8{}, [nb]uint8{}, true
	}
	if g.doubt && x.cfg.ends > 0 {
		g.gone = true // its contents id is another one
	}
	n.powers--
	for i := range n.p {
		if (g.doubt || g.gone) && (g.own == uint8(i+1) || n.p[i].open&bit(l) != 0) {
			n.p[i].stale |= bit(l)
		}
		x.lose(&n, i, l)
	}
	x.emit(fmt.Sprintf("%s loses power, comes back with %v", legName(l), g.mem), true, n)
}
