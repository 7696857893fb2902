package model

import "strings"

// An m4second is the second barrier in flight of a life, in M4. A leg executes it behind the first, and it
// succeeds behind the first.
type m4second struct {
	on           bool
	to, back     uint8
	copied       uint8 // blocks ahead of it that were copied
	clear, known uint8 // blocks whose bits it clears; of which the next one may
}

// blocks returns the blocks that life i wrote from from+1 to to.
func (s *m4state) blocks(i int, from, to uint8) (set uint8) {
	for v := from + 1; v <= to; v++ {
		if s.vown[v] == uint8(i) {
			set |= bit(int(s.vblk[v]))
		}
	}
	return set
}

// another lets life i begin a second barrier, and legs acknowledge it.
func (x *m4) another(i int) {
	s0, p0 := x.s0, &x.s0.p[i]
	if !x.cfg.two || p0.cg != 0 {
		return
	}
	if !p0.second.on {
		if p0.act && p0.bto < p0.last {
			n := *s0
			p := &n.p[i]
			p.second = m4second{on: true, to: p.last, known: p.second.known}
			p.second.clear = p.second.known
			if !x.mut("clear-what-is-in-flight") {
				p.second.clear &^= s0.blocks(i, p.cov, p.bto)
			}
			if p.fl == 1 && x.equal(i) {
				p.fl = 3
			}
			if x.mut("one-list-of-copies") && p.sy != 0 && p.back&bit(int(p.sy)-1) != 0 {
				p.cdur = p.copied
			}
			x.emit(lifeName(i)+": another barrier begins", false, n)
		}
		return
	}
	for l := range x.n {
		if p0.part()&p0.back&bit(l) != 0 && p0.second.back&bit(l) == 0 && s0.holds(i, l) && p0.pos[l] >= p0.second.to {
			x.anotherAt(i, l)
		}
	}
}

// anotherAt executes the second barrier of life i at leg l.
func (x *m4) anotherAt(i, l int) {
	n := *x.s0
	p, g := &n.p[i], &n.l[l]
	blocks := n.blocks(i, p.bto, p.second.to)
	flush := blocks
	if g.doubt {
		flush, g.doubt = x.allb, false
	}
	if p.sy == uint8(l+1) {
		flush |= p.copied
		p.second.copied = p.copied
	}
	if p.f&bit(l) != 0 {
		if p.sy != 0 {
			g.bits[p.sy-1] &^= p.second.clear
		}
		for y := range x.n {
			if of(g.r.el)&^g.r.f&bit(y) != 0 {
				g.bits[y] |= blocks
			}
		}
	}
	for b := range int(x.cfg.nb) {
		if flush&bit(b) != 0 {
			g.dur[b] = g.mem[b]
		}
	}
	p.second.back |= bit(l)
	x.emit(label(i, "the other barrier, of blocks %02b, is durable at %s, acknowledged", blocks, legName(l)), false, n)
}

// shift makes the second barrier the first, which has succeeded.
func (x *m4) shift(p *m4life) {
	if !x.cfg.two {
		return
	}
	s := p.second
	p.second = m4second{known: p.clr}
	if !s.on {
		return
	}
	p.bon, p.bto, p.back, p.cdur, p.clr = true, s.to, s.back, s.copied&p.copied, s.clear
	if p.fl == 3 {
		p.fl = 2
	}
}

// syncing has a second barrier begin while leg B is copied to, from where bits are known that the next barrier
// may clear: the steps before have nothing to do with it.
func (cfg m4cfg) syncing() m4cfg {
	cfg.after = "connection to B lost|lets B go, begins|generation 2{A} durable at A|generation 2{A} is active|B is back|" +
		"FLUSH received|barrier begins|durable at A, acknowledged|durable at B, acknowledged|barrier done"
	return cfg
}

// follow takes m to where the steps whose names have these parts lead.
func follow(m model[m4state], parts string) model[m4state] {
	if parts == "" {
		return m
	}
	for part := range strings.SplitSeq(parts, "|") {
		next := m.init
		m.succ(m.init, func(event string, _ bool, n m4state) {
			if next == m.init && strings.Contains(event, part) {
				next = n
			}
		})
		if next == m.init {
			panic("no step is called " + part)
		}
		m.init = next
	}
	return m
}

// cutFirst makes the first barrier alone fail, which drops a rule.
func (x *m4) cutFirst(p *m4life) {
	if p.fl == 2 {
		p.fl = 1
	}
	x.shift(p)
}

func checksTwoMirror() []check {
	s1, s2, s3, s4, s10 := m4s1, m4s2, m4s3, m4s4, m4s10
	for _, c := range []*m4cfg{&s1, &s2, &s3, &s4, &s10} {
		c.two = true
	}
	sync := m4cfg{n: 2, m: 1, nb: 2, maxv: 2, lives: 2, drops: 1, crashes: 1, flushes: 1, changes: 2, two: true}.syncing()
	syncKill := m4cfg{n: 2, m: 1, nb: 2, maxv: 2, lives: 1, drops: 2, kills: 1, powers: 1, flushes: 1, changes: 3, two: true}.syncing()
	live := m4cfg{n: 2, m: 1, nb: 1, maxv: 2, lives: 1, drops: 1, kills: 1, flushes: 1, changes: 3, two: true, live: true}
	return []check{
		check4("two barriers: S1", s1, 507910, ""),
		check4("two barriers: S2", s2, 710304, ""),
		check4("two barriers: S3", s3, 661124, ""),
		check4("two barriers: S4", s4, 1178793, ""),
		check4("two barriers: S10", s10, 2212840, ""),
		check4("two barriers: a host crashes in a resync", sync, 223566, ""),
		check4("two barriers: connection lost, kill, loss of power in a resync", syncKill, 629796, ""),
		check4("two barriers: nothing is stuck", live, 330562, ""),
		check4("two barriers without: one-list-of-copies", s2.without("one-list-of-copies"), 705870, lostMirrorFlush),
		check4("two barriers without: cut-off-alone", s2.without("cut-off-alone"), 157395, unequalLegs),

		// not needed here: a barrier that has succeeded is at the member that is copied to, or is named again
		check4("two barriers without: clear-what-is-in-flight", sync.without("clear-what-is-in-flight"), 223730, ""),
		check4("two barriers without: clear-what-is-in-flight (killed)", syncKill.without("clear-what-is-in-flight"), 640608, ""),
	}
}
