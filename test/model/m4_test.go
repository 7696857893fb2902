package model

import (
	"fmt"
	"math/bits"
)

// M4 is the mirror: legs, which are copies on targets, and lives. A life is an initiator as its
// clients see it: it survives a kill, with its window file, and not a crash of its host. A value is
// its place in the order of all writes. A session is one step here, because M2 has its inside: own
// names the life whose epoch the leg is in, and what another life sends there has no effect.

const (
	nl = 3 // legs at most
	nb = 2 // blocks at most
	ni = 3 // lives at most

	maxGeneration = 12 // that hist has room for
)

// What a life is doing.
const (
	lNone, lOpening, lRun, lFailed, lCrashed, lClosing, lClosed, lEnded = 0, 1, 2, 3, 4, 5, 6, 7
)

// A rec is what a leg's superblock says of the mirror.
type rec struct {
	g, by, f uint8  // generation, the life that wrote it (its nonce), the legs that have every flushed write
	hist     uint64 // lineage: who wrote generation n, as by+1, and its legs: 2 and 3 bits at 5n
	torn     bool   // half copied
	el       uint8  // the members, and M: see elect
	un       uint8  // legs whose contents it does not name
}

type m4leg struct {
	mem, dur [nb]uint8
	r        rec
	bits     [nl]uint8 // by member: the blocks that it lacks
	own      uint8     // life + 1
	life     uint8     // the youngest that opened it, persisted
	clean    bool
	doubt    bool
	dead     bool
	gone     bool // its contents id is not the recorded one
}

type m4life struct {
	pc             uint8
	open, conn     uint8 // legs
	cleanAt, stale uint8 // legs found clean; legs whose contents id changed
	pos            [nl]uint8
	last, cov      uint8
	bon            bool
	bto, back      uint8
	second         m4second
	fl             uint8 // a FLUSH: 1 waits, 2 is in the barrier, 3 in the second
	fsnap, lb      [nb]uint8
	act            bool
	g, f, eq       uint8 // generation, its legs, those that may be read
	el, bel        uint8 // the members and M; those before, while that may count
	un             uint8 // legs whose contents its newest generation does not name
	hist           uint64
	cg, cf, cw     uint8 // a change of generation: number, legs, written to
	join           uint8 // leg + 1 that it takes in
	fill           uint8 // legs whose bits are all set with it, because nobody knows what they lack
	sy, todo       uint8 // leg + 1 that is resynchronized, its blocks
	copied, cdur   uint8 // copied; of these, ahead of the barrier
	cb, cv, cp     uint8 // a copy under way: block + 1, value, position
	clr            uint8 // blocks whose bit goes with the next barrier
	me, mby, mf    uint8 // life + 1; who wrote generation g, and its legs
	ag, aby        uint8 // what the arbiter held when this life looked last
	hg, hf         uint8 // mutant header-late: what the window file's header said first
	read           uint8 // what clients have read from that are attached since the life before; 0: there are none
	only           uint8 // legs of which alone the source may be; 0: any
}

type m4state struct {
	l                                            [nl]m4leg
	p                                            [ni]m4life
	next                                         uint8
	vown, vblk                                   [5]uint8
	gfl                                          [nb]uint8 // what FLUSH has promised
	actG, actF, actBy                            uint8     // the newest active generation
	aG, aF, aBy, aEl                             uint8     // the arbiter's record
	aHist                                        uint64
	flushedBy                                    uint8 // lives that had a FLUSH answered
	drops, powers, deaths, kills, crashes        uint8
	flushes, reads, closes, starts, changes, bad uint8
	alters                                       uint8 // changes of the members, or of M
	ends                                         uint8
}

// An m4cfg says how much of everything there may be, and which rule is dropped.
type m4cfg struct {
	n, m, nb, maxv, lives                 uint8 // legs, M, blocks, writes, lives
	drops, powers, deaths, kills, crashes uint8
	flushes, reads, closes, changes       uint8
	alters                                uint8 // changes of the members, or of M
	ends                                  uint8 // ends of a life whose clients stay: the next one has its window
	late                                  uint8 // legs, the last ones, that are no members at first
	two                                   bool  // two barriers may be in flight
	replaces                              bool  // another source may take the place of the one that a life began with
	lineage                               uint8 // generations that a record remembers beside its own; 0: all
	arb                                   bool  // an arbiter holds the newest generation, by compare and swap
	takeover                              bool  // a life may begin while the one before lives
	force                                 bool  // an operator's --degraded: a start without proof
	volatile                              bool  // a power loss takes all that a leg has
	harm                                  bool  // look for what a client would see, not for what leads there
	live                                  bool  // check that nothing is stuck
	mut                                   string
	after                                 string        // parts of the names of the first steps, separated by |
	meets                                 func(m4found) // is told of every situation that a start meets
}

// An m4 visits the successors of state s0.
type m4 struct {
	cfg       *m4cfg
	s0        *m4state
	emit      emitFn[m4state]
	n         int
	all, allb uint8 // legs, blocks
}

func bit(i int) uint8            { return 1 << i }
func count(m uint8) uint8        { return uint8(bits.OnesCount8(m)) }
func at(h uint64, g uint8) uint8 { return uint8(h>>(5*g)) & 3 }
func put(h uint64, g, by, f uint8) uint64 {
	return h&^(31<<(5*g)) | uint64(by|f<<2)<<(5*g)
}
func legsAt(h uint64, g uint8) uint8 { return uint8(h>>(5*g+2)) & 7 }
func legName(i int) string           { return string(rune('A' + i)) }
func lifeName(i int) string          { return [...]string{"O", "N", "P"}[i] }
func names(m uint8) (s string) {
	for i := range nl {
		if m&bit(i) != 0 {
			s += legName(i)
		}
	}
	return "{" + s + "}"
}

func m4model(cfg m4cfg) model[m4state] {
	all := uint8(1<<(cfg.n-cfg.late) - 1)
	first, el := put(0, 1, 1, all), elect(all, cfg.m)
	init := m4state{next: 1, drops: cfg.drops, powers: cfg.powers, deaths: cfg.deaths, kills: cfg.kills, crashes: cfg.crashes,
		flushes: cfg.flushes, reads: cfg.reads, closes: cfg.closes, starts: cfg.lives - 1, changes: cfg.changes, alters: cfg.alters, ends: cfg.ends,
		actG: 1, actF: all, aG: 1, aF: all, aEl: el, aHist: first}
	for i := range cfg.n - cfg.late {
		init.l[i] = m4leg{r: rec{g: 1, f: all, hist: first, el: el}, own: 1}
	}
	init.p[0] = m4life{pc: lRun, me: 1, ag: 1, open: all, conn: all, act: true, g: 1, mf: all, f: all, eq: all, el: el, hist: first, hg: 1, hf: all}
	succ := func(s m4state, emit emitFn[m4state]) {
		x := m4{cfg: &cfg, s0: &s, n: int(cfg.n), all: uint8(1<<cfg.n - 1), allb: uint8(1<<cfg.nb - 1)}
		x.emit = func(l string, f bool, n m4state) { n.normalize(); emit(l, f, n) }
		x.next()
	}
	m := follow(model[m4state]{init, succ, func(s *m4state) string { return cfg.broken(s) }, nil}, cfg.after)
	if cfg.live {
		m.goal = (*m4state).done
	}
	return m
}

// mut reports whether the rule called name is dropped.
func (x *m4) mut(name string) bool { return x.cfg.mut == name }

// normalize makes states equal that differ only in what does not matter.
func (s *m4state) normalize() {
	for i := range s.p {
		p := &s.p[i]
		if p.fl == 0 {
			p.fsnap = [nb]uint8{}
		}
		for l := range nl {
			if p.conn&bit(l) == 0 {
				p.pos[l] = 0
			}
		}
	}
}

// holds reports whether the session of life i on leg l lives, at both ends.
func (s *m4state) holds(i, l int) bool {
	return s.p[i].conn&bit(l) != 0 && s.l[l].own == uint8(i+1) && !s.l[l].dead
}

// zombie reports whether a later life has an active generation.
func (s *m4state) zombie(i int) bool { return int(s.actBy) > i }

// newest reports whether no later life has begun.
func (s *m4state) newest(i int) bool { return i == ni-1 || s.p[i+1].pc == lNone }

// next visits the successors of the state.
func (x *m4) next() {
	for i := 1; i < int(x.cfg.lives); i++ {
		x.start(i)
	}
	for i := range int(x.cfg.lives) {
		switch x.s0.p[i].pc {
		case lClosing:
			x.close(i)
		case lRun:
			x.clients(i)
			x.place(i)
			x.barriers(i)
			x.replaceSource(i)
			x.letGo(i)
			x.takeBack(i)
			x.standIn(i)
			x.enough(i)
			x.change(i)
			x.alter(i)
			x.tell(i)
			x.resync(i)
			x.sessions(i)
			x.ends(i)
			x.endsAttached(i)
		}
	}
	for l := range x.n {
		x.target(l)
	}
}

// broken returns the promise that s breaks, or "".
func (cfg *m4cfg) broken(s *m4state) string {
	switch {
	case s.bad == 2:
		return oldMirrorRead
	case s.bad == 4 && !cfg.harm:
		return twoActive
	case s.bad == 5:
		return staleLeg
	case s.bad == 6:
		return overwritten
	case s.bad == 7:
		return oneSide
	case s.bad == 8 && !cfg.harm:
		return falseSplit
	case s.bad == 9:
		return halfCopied
	case cfg.force:
		return ""
	}
	for l := range int(cfg.n) {
		if cfg.harm || s.actF&bit(l) == 0 || s.l[l].dead || s.l[l].gone {
			continue
		}
		for b := range int(cfg.nb) {
			if s.l[l].dur[b] < s.gfl[b] {
				return lostMirrorFlush
			}
		}
	}
	for i := range s.p {
		p := &s.p[i]
		if p.pc != lRun || !p.act || p.cg != 0 || p.bon || p.cov != p.last || s.zombie(i) || p.cb != 0 {
			continue
		}
		first := -1
		for l := range int(cfg.n) {
			if p.f&p.eq&bit(l) == 0 || !s.holds(i, l) || s.l[l].doubt || s.l[l].gone {
				continue
			}
			if first >= 0 && s.l[l].mem != s.l[first].mem {
				return unequalLegs
			}
			first = l
		}
	}
	return ""
}

// done reports whether every request has completed, and all legs are in F.
func (s *m4state) done() bool {
	for i := range s.p {
		p := &s.p[i]
		if p.pc == lOpening || p.pc == lClosing {
			return false
		}
		dead := s.dead()
		switch {
		case p.pc != lRun:
		case s.gone(p.eq &^ dead):
			// nobody has the data any more, and the device fails
		case dead != 0 && p.passedBy(dead):
			// those that are away might begin by majority: the operator says whether they are gone, and begins anew
		case p.fl != 0 || p.cg != 0 || p.cov != p.last || s.changes > 0 && p.f != of(p.el)&^dead:
			return false
		}
	}
	return true
}

// passedBy reports whether those that are away might begin by majority, when these legs are destroyed.
func (p *m4life) passedBy(dead uint8) bool {
	if p.bel == 0 {
		return count(of(p.el)&^dead) < least(p.el) && passesBy(p.el, (p.f|p.cf)&^dead)
	}
	el, ok := cover(p.bel, p.el)
	return passesBy(el, p.cf&^dead) || !ok && (passesBy(p.bel, p.cf&^dead) || passesBy(p.el, p.cf&^dead))
}

// gone reports whether all of these legs have lost their contents.
func (s *m4state) gone(legs uint8) bool {
	for l := range nl {
		if legs&bit(l) != 0 && !s.l[l].gone {
			return false
		}
	}
	return true
}

// label begins the name of an event of life i.
func label(i int, format string, args ...any) string {
	return lifeName(i) + ": " + fmt.Sprintf(format, args...)
}
