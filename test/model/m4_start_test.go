package model

import "fmt"

// An m4found is a situation that a start meets: what it found on the legs that it holds.
type m4found struct {
	n, m       uint8
	r          [nl]rec
	reached    uint8 // legs with a session
	held       uint8 // the same, but for mutant no-fence, which only reads records
	gone       uint8 // legs without the contents that are recorded
	clean      uint8 // legs that were closed
	force, arb bool
	aRec       rec   // the arbiter's record
	full       uint8 // legs that may have forgotten something
	read       uint8 // what clients have read from that are attached; 0: there are none
	mut        string
}

// An m4decision is what a start makes of that.
type m4decision struct {
	found    bool // there is a record
	split    bool // a leg went its own way
	ok       bool // a life may begin
	m        rec  // the newest record
	cand     uint8
	cleanEnd bool
	before   uint8 // the members and M of a record that may be the active one
	sources  uint8 // of cand, those that may become the source
	waits    bool  // for what clients have read from
}

// older orders generations by life first. A life's number is larger than any that it found on a leg
// that it opened.
func older(a, b *rec, mut string) bool {
	if mut == "numbers-alone" {
		return a.g < b.g
	}
	return a.by < b.by || a.by == b.by && a.g < b.g
}

// behind reports whether leg r knows nothing that became active and m does not know of. What only r
// knows must be refuted: a later life on m's way held a leg of its set, and did not find it there.
// full says that r may have forgotten something.
func behind(r, m *rec, mut string, full bool) bool {
	for g := r.g; g > 0; g-- {
		by := at(r.hist, g)
		if by != 0 && knows(m.hist, g, by, mut) {
			return true
		}
		if by != 0 && (!refutes(m.hist, by, legsAt(r.hist, g)) || mut == "nothing-is-refuted") {
			return false
		}
	}
	return !full
}

// knows reports whether hist has generation g, or a later one of the same life. A life is one
// process at a time, so that stands for g, too.
func knows(hist uint64, g, by uint8, mut string) bool {
	if mut == "only-what-is-remembered" {
		return at(hist, g) == by
	}
	for ; g <= maxGeneration; g++ {
		if at(hist, g) == by {
			return true
		}
	}
	return false
}

// full reports whether a record has all the generations that it can remember.
func (cfg *m4cfg) full(r *rec) bool {
	return cfg.lineage != 0 && remembered(r.hist, r.g) >= cfg.lineage
}

// remembered returns how many generations before g are in hist.
func remembered(hist uint64, g uint8) (n uint8) {
	for g--; g > 0; g-- {
		if at(hist, g) != 0 {
			n++
		}
	}
	return n
}

// refutes reports whether a life later than by began a generation with a leg of f.
func refutes(hist uint64, by, f uint8) bool {
	for g := uint8(1); g <= maxGeneration; g++ {
		if at(hist, g) > by && legsAt(hist, g)&f != 0 {
			return true
		}
	}
	return false
}

// passedOver reports whether a start by force ignores what leg l says, because it has nothing that
// its own record promises.
func (f *m4found) passedOver(l int) bool {
	return f.force && (f.r[l].torn && f.mut != "torn-serves" || (f.gone|f.r[l].un)&bit(l) != 0)
}

// newest finds the newest record. Legs that are torn, or lost their contents, count, too.
func (f *m4found) newest(d *m4decision) {
	for l := range int(f.n) {
		o := &f.r[l]
		switch {
		case f.reached&bit(l) == 0 || o.g == 0 || f.passedOver(l):
		case !d.found || older(&d.m, o, f.mut):
			d.m, d.found, d.split = *o, true, false
		case d.m.g == o.g && d.m.by != o.by && f.mut == "numbers-alone":
			d.split = true
		}
	}
	if f.arb && f.reached != 0 {
		d.m, d.found = f.aRec, true
	}
}

// decide does what Decide of internal/mirror does (mirror §4.2, §4.3).
func (f *m4found) decide() (d m4decision) {
	f.newest(&d)
	if !d.found {
		return d
	}
	have := f.reached &^ f.gone &^ d.m.un & of(d.m.el)
	for l := range int(f.n) {
		if f.r[l].g == 0 && f.mut != "counts-without-a-record" { // it was to be added
			have &^= bit(l)
		}
	}
	d.cand = d.m.f & have & f.held
	d.ok = d.m.f&^have == 0 ||
		majority(d.m.el, have) && d.cand != 0 ||
		f.force && d.cand != 0
	f.before(&d)
	for l := range int(f.n) {
		o := &f.r[l]
		switch {
		case f.reached&bit(l) == 0 || o.g == 0 || f.passedOver(l):
		case o.torn: // it cannot have gone its own way
		case !behind(o, &d.m, f.mut, f.full&bit(l) != 0):
			d.split = true
		}
		if f.reached&bit(l) != 0 && o.torn && !older(o, &d.m, f.mut) && f.mut != "torn-serves" {
			d.cand &^= bit(l)
		}
	}
	switch {
	case f.mut == "start-with-any":
		d.cand, d.ok = have, have != 0
	case f.arb, f.mut == "start-without-proof":
		d.ok = d.cand != 0
	}
	d.ok = d.ok && d.cand != 0 && (!d.split || f.mut == "split-ignored")
	for l := range int(f.n) {
		if d.cand&f.clean&bit(l) != 0 && (f.r[l].g == d.m.g && f.r[l].by == d.m.by || f.mut == "clean-of-any-generation") {
			d.cleanEnd = true
		}
	}
	f.attached(&d)
	return d
}

// attached has the start wait for what clients have read from that are attached still: the other legs may have older data.
func (f *m4found) attached(d *m4decision) {
	d.sources = d.cand
	if f.read&d.m.f == 0 || d.cleanEnd || f.mut == "another-source" {
		return
	}
	if d.sources &= f.read; d.sources == 0 && f.force {
		d.sources = d.cand
	}
	d.waits = d.ok && d.sources == 0
	d.ok = d.ok && !d.waits
}

// start lets life i start, open legs, and begin.
func (x *m4) start(i int) {
	p0, prev := &x.s0.p[i], x.s0.p[i-1].pc
	if p0.pc == lNone && x.s0.starts > 0 && (x.cfg.takeover && prev != lNone || prev == lCrashed || prev == lFailed || prev == lClosed || prev == lEnded) {
		n := *x.s0
		n.starts--
		n.p[i] = m4life{pc: lOpening}
		if before := &n.p[i-1]; before.read != 0 && (prev == lEnded || prev == lClosed) {
			n.p[i].read, n.p[i].lb = before.read, before.lb
			*before = m4life{pc: before.pc}
		}
		x.emit(lifeName(i)+" starts", true, n)
	}
	if p0.pc != lOpening {
		return
	}
	for l := range x.n {
		g0 := &x.s0.l[l]
		if p0.conn&bit(l) != 0 || g0.dead || p0.open&bit(l) != 0 && g0.own != uint8(i+1) || g0.life > uint8(i) {
			continue
		}
		n := *x.s0
		p, g := &n.p[i], &n.l[l]
		p.open |= bit(l)
		p.conn |= bit(l)
		p.stale &^= bit(l)
		if g.clean {
			p.cleanAt |= bit(l)
		} else {
			g.doubt = true
		}
		g.own, g.life, g.clean = uint8(i+1), uint8(i), false
		x.emit(label(i, "OPENs %s, which says generation %d%s", legName(l), g.r.g, names(g.r.f)), false, n)
	}
	x.startEnds(i)
	x.decide(i)
}

// found returns the situation that life i meets.
func (x *m4) found(i int) m4found {
	s := x.s0
	p := &s.p[i]
	f := m4found{n: x.cfg.n, m: x.cfg.m, clean: p.cleanAt, force: x.cfg.force, arb: x.cfg.arb, mut: x.cfg.mut, read: p.read}
	for l := range x.n {
		if p.open&bit(l) != 0 && s.holds(i, l) || x.mut("no-fence") && !s.l[l].dead {
			f.reached |= bit(l)
			f.r[l] = s.l[l].r
			if x.cfg.full(&f.r[l]) {
				f.full |= bit(l)
			}
			if s.l[l].gone && !x.mut("gone-counts") {
				f.gone |= bit(l)
			}
		}
		if s.holds(i, l) {
			f.held |= bit(l)
		}
	}
	if x.cfg.arb {
		f.aRec = rec{g: s.aG, by: s.aBy, f: s.aF, hist: s.aHist, el: s.aEl}
	}
	return f
}

// decide lets life i begin, if it may.
func (x *m4) decide(i int) {
	f := x.found(i)
	d := f.decide()
	if !d.found {
		return
	}
	if x.cfg.meets != nil {
		x.cfg.meets(f)
	}
	if d.split && !x.cfg.force && x.s0.newest(i) {
		n := *x.s0
		n.bad = 8
		x.emit(lifeName(i)+": sees a split brain", false, n)
	}
	if !d.ok {
		return
	}
	if d.cleanEnd {
		x.serve(i, &f, &d, d.cand)
		return
	}
	for l := range x.n {
		if d.sources&bit(l) != 0 {
			x.serve(i, &f, &d, bit(l))
		}
	}
}

// serve begins life i, which reads from the legs of eq.
func (x *m4) serve(i int, f *m4found, d *m4decision, eq uint8) {
	n := *x.s0
	m := &d.m
	for l := range x.n {
		o := &n.l[l].r
		if x.cfg.force && d.split && m.f&^f.reached == 0 && n.flushedBy&bit(int(o.by)) != 0 && at(m.hist, o.g) != o.by+1 {
			n.bad = 7
		}
		if eq&bit(l) != 0 && o.torn && !older(o, m, x.cfg.mut) {
			n.bad = 9
		}
	}
	p := &n.p[i]
	p.pc, p.g, p.mby, p.mf, p.hist, p.eq, p.me = lRun, m.g, m.by, m.f, m.hist, eq, uint8(i+1)
	p.el, p.bel, p.un = m.el, d.before, m.un
	p.fill = f.gone
	if !d.cleanEnd && !x.mut("bits-not-filled") {
		p.fill = of(m.el) &^ eq
	}
	p.ag, p.aby = n.aG, n.aBy
	for b := range p.lb {
		p.lb[b] = max(p.lb[b], n.gfl[b])
	}
	if p.only = 0; p.read != 0 && d.sources != d.cand {
		p.only = d.sources
	}
	begins := d.cand
	if !d.cleanEnd && least(m.el) == 1 && !x.passesBy(d.before, eq) {
		begins = eq
	}
	if x.mut("no-equalize") {
		p.eq, p.fill, begins = d.cand, 0, d.cand
	}
	if x.mut("unequal-counts") && x.cfg.m == 1 {
		begins = d.cand
	}
	event := label(i, "reached %s, newest generation %d%s, clean %v, reads from %s", names(f.reached), m.g, names(m.f), d.cleanEnd, names(p.eq))
	if count(begins) >= least(m.el) {
		x.begin(p, begins, 0)
		event += fmt.Sprintf(", begins generation %d%s", p.cg, names(p.cf))
	} else {
		event += ", too few copies: copies first"
	}
	x.emit(event, false, n)
}
