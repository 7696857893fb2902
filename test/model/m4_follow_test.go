package model

import "fmt"

// A member that follows (mirror §7), in a model of its own beside M4: what F has is one copy here, and what
// matters is what the follower has whenever it could be promoted. Two blocks are on two lanes. A value is
// its place in the order of all writes. A FLUSH is answered with the barrier that covers it, so every write
// knows how many barriers its client had heard of.
//
//	writes     v1  v2 │ v3 │ v4        bars[1] = 2, bars[2] = 3: barriers that succeeded
//	follower   has = 1, interval = 2   it has v1 and v2 durably, and v3 is on its way

const (
	m4fv = 5 // values, from 1
	m4fb = 5 // barriers, from 1
)

// What the initiator makes of the follower.
const (
	fOut, fSync, fFollows = 0, 1, 2
)

// What a follower breaks.
const (
	hole    = "(10) a member that follows has a write, and not what was flushed before it"
	behinds = "(11) a member that follows lacks what it said that it has"
)

type m4fstate struct {
	block, heard [m4fv]uint8 // by value: its block, and the barriers that its client had heard of
	bars         [m4fb]uint8 // by barrier: the last value that it covers
	next, k      uint8       // the next value; the newest barrier that succeeded
	bon          bool        // a barrier is in flight
	bto, bclear  uint8       // what it covers, and the blocks whose bits it clears
	bits         uint8       // blocks that the follower may lack, as F has them
	clean        uint8       // blocks whose bits nobody needs

	mem, dur [2]uint8 // at the follower
	torn     bool
	says     uint8 // the barrier up to which it has everything, as its record says
	conn     bool
	what     uint8
	has      uint8    // the barrier up to which it has everything
	pos      [2]uint8 // by lane: the value up to which all is placed
	acked    uint8    // lanes that have acknowledged the interval behind has
	todo     uint8    // blocks to copy
	copied   uint8    // copied, and not durable
	flushes  bool     // its part of the barrier in flight is durable
	second   m4fsecond

	drops, powers, leaves uint8
}

// An m4fcfg says how much of everything there may be, and which rule is dropped.
type m4fcfg struct {
	maxv, drops, powers, leaves uint8
	two                         bool // two barriers may be in flight
	mut                         string
}

// An m4fsecond is the second barrier in flight.
type m4fsecond struct {
	on, flushes bool
	to, clear   uint8
}

type m4f struct {
	cfg  *m4fcfg
	s    m4fstate
	emit emitFn[m4fstate]
}

func m4fmodel(cfg m4fcfg) model[m4fstate] {
	init := m4fstate{next: 1, conn: true, what: fFollows, drops: cfg.drops, powers: cfg.powers, leaves: cfg.leaves}
	succ := func(s m4fstate, emit emitFn[m4fstate]) {
		x := m4f{&cfg, s, emit}
		x.clients()
		x.barrier()
		x.interval()
		x.sync()
		x.faults()
	}
	goal := func(s *m4fstate) bool { return s.what == fFollows && s.has == s.k && !s.bon && !s.torn }
	return model[m4fstate]{init, succ, (*m4fstate).broken, goal}
}

// newestIn returns the newest value of block b that is not newer than v.
func (s *m4fstate) newestIn(b int, v uint8) uint8 {
	for ; v > 0; v-- {
		if int(s.block[v]) == b {
			return v
		}
	}
	return 0
}

// broken looks at each image that a power loss can leave of a follower that can be promoted.
func (s *m4fstate) broken() string {
	if s.torn {
		return ""
	}
	for kept := range 4 {
		image := s.dur
		for b := range image {
			if kept&(1<<b) != 0 {
				image[b] = s.mem[b]
			}
		}
		for b := range image {
			if image[b] < s.newestIn(b, s.bars[s.says]) {
				return behinds
			}
			for _, v := range image {
				if image[b] < s.newestIn(b, s.bars[s.heard[v]]) {
					return hole
				}
			}
		}
	}
	return ""
}

func (x *m4f) mut(rule string) bool { return x.cfg.mut == rule }

// clients lets a client write.
func (x *m4f) clients() {
	for b := range 2 {
		if x.s.next > x.cfg.maxv {
			return
		}
		n := x.s
		n.block[n.next], n.heard[n.next] = uint8(b), n.k
		n.next++
		x.emit(fmt.Sprintf("WRITE v%d to block %d, behind the answer to FLUSH %d", x.s.next, b, n.k), true, n)
	}
}

// between returns the blocks of the values from from+1 to to.
func (s *m4fstate) between(from, to uint8) (blocks uint8) {
	for v := from + 1; v <= to; v++ {
		blocks |= 1 << s.block[v]
	}
	return blocks
}

// barrier lets F begin a barrier, and complete it. A follower that is copied to takes part.
func (x *m4f) barrier() {
	s := x.s
	if !s.bon {
		if s.bars[s.k] < s.next-1 || s.what == fSync {
			n := s
			n.bon, n.bto, n.flushes, n.bclear = true, s.next-1, false, s.clean
			if !x.mut("clear-what-lags") {
				n.bclear &^= s.between(s.bars[s.has], s.bars[s.k])
			}
			x.emit("barrier begins", false, n)
		}
		return
	}
	x.another()
	part := s.what == fSync && s.conn
	if part && !s.flushes && s.pos[0] >= s.bto && s.pos[1] >= s.bto {
		n := s
		n.dur, n.flushes = s.mem, true
		x.emit("the barrier is durable at the member that is copied to", false, n)
	}
	if part && !s.flushes {
		return
	}
	n := s
	if s.bto > s.bars[s.k] {
		n.k++
		n.bars[n.k] = s.bto
	}
	n.bits &^= s.bclear // before the ranges
	n.clean &^= s.bclear
	n.bits |= s.between(s.bars[s.k], s.bto)
	n.bon, n.bto, n.bclear, n.flushes = s.second.on, s.second.to, s.second.clear, s.second.flushes
	n.second = m4fsecond{}
	event := fmt.Sprintf("barrier %d succeeds, FLUSH is answered", n.k)
	if part {
		n.todo &^= n.copied
		n.copied = 0
		if n.todo == 0 && (!n.bon || x.mut("follows-between-two")) { // between two barriers
			x.follows(&n)
			event += "; the member has everything, and follows"
		}
	}
	x.emit(event, false, n)
}

// another lets F begin a barrier behind the one in flight. It clears no bit that this one sets.
func (x *m4f) another() {
	s := x.s
	if !x.cfg.two {
		return
	}
	if !s.second.on && s.bto < s.next-1 {
		n := s
		n.second = m4fsecond{on: true, to: s.next - 1, clear: s.clean &^ s.between(s.bars[s.has], s.bto)}
		if x.mut("clear-what-is-in-flight") {
			n.second.clear = s.clean &^ s.between(s.bars[s.has], s.bars[s.k])
		}
		x.emit("another barrier begins", false, n)
	}
	if s.second.on && s.flushes && !s.second.flushes && s.what == fSync && s.conn && s.pos[0] >= s.second.to && s.pos[1] >= s.second.to {
		n := s
		n.dur, n.second.flushes = s.mem, true
		x.emit("the other barrier is durable at the member that is copied to", false, n)
	}
}

// follows makes the member follow, whose target has all barriers that succeeded.
func (x *m4f) follows(n *m4fstate) {
	n.what, n.torn, n.has, n.says, n.acked, n.clean = fFollows, false, n.k, n.k, 0, 3
}

// interval sends the interval behind has to the follower.
func (x *m4f) interval() {
	s := x.s
	if s.what != fFollows || !s.conn {
		return
	}
	if s.says < s.has {
		n := s
		n.says = s.has
		x.emit(fmt.Sprintf("its record says barrier %d", n.says), false, n)
	}
	last := s.bars[s.k]
	if !x.mut("interval-early") && s.has < s.k {
		last = s.bars[s.has+1]
	}
	for b := range 2 {
		v := s.pos[b] + 1
		for v <= last && int(s.block[v]) != b {
			v++
		}
		if s.pos[b] < last {
			n := s
			n.pos[b] = min(v, last)
			if v <= last {
				n.mem[b] = v
			}
			x.emit(fmt.Sprintf("lane %d of the follower is at v%d", b, n.pos[b]), false, n)
		}
		if s.has < s.k && s.acked&(1<<b) == 0 && s.pos[b] >= s.bars[s.has+1] {
			n := s
			n.dur[b], n.acked = s.mem[b], s.acked|1<<b
			event := fmt.Sprintf("lane %d of the follower acknowledges barrier %d", b, s.has+1)
			if n.acked == 3 || x.mut("lane-acknowledges-for-all") {
				n.has, n.acked = s.has+1, 0
				n.clean |= s.between(s.bars[s.has], s.bars[n.has])
			}
			x.emit(event, false, n)
		}
	}
}

// sync brings back a member that was let go, and copies to it.
func (x *m4f) sync() {
	s := x.s
	switch {
	case !s.conn:
		n := s
		n.conn = true
		event := "the follower is back, and goes on"
		switch {
		case s.what == fFollows:
			n.pos = [2]uint8{s.bars[s.has], s.bars[s.has]}
			n.acked = 0
		case s.bon:
			return
		default:
			n.what, n.todo, n.copied, n.pos = fSync, s.bits, 0, [2]uint8{s.bars[s.k], s.bars[s.k]}
			n.torn = !x.mut("torn-serves")
			event = fmt.Sprintf("the member is back, is torn, and gets blocks %02b", n.todo)
		}
		x.emit(event, false, n)
	case s.what == fSync:
		for b := range 2 {
			v := s.pos[b] + 1
			for v < s.next && int(s.block[v]) != b {
				v++
			}
			if s.pos[b] < s.next-1 {
				n := s
				n.pos[b] = min(v, s.next-1)
				if v < s.next {
					n.mem[b] = v
				}
				x.emit(fmt.Sprintf("lane %d of the member is at v%d", b, n.pos[b]), false, n)
			}
			if s.todo&^s.copied&(1<<b) != 0 && !s.flushes {
				n := s
				n.mem[b] = s.newestIn(b, s.pos[b]) // at the same place of both queues
				n.copied |= 1 << b
				x.emit(fmt.Sprintf("block %d is copied", b), false, n)
			}
		}
		if x.mut("follows-early") && s.todo&^s.copied == 0 && !s.bon {
			n := s
			n.todo, n.copied = 0, 0
			x.follows(&n)
			x.emit("the member follows", false, n)
		}
	}
}

// faults lets the follower lose its connection or its power, and be let go. Its record stays as it is then.
func (x *m4f) faults() {
	s := x.s
	lost := func(n *m4fstate) {
		n.conn, n.acked, n.flushes, n.second.flushes = false, 0, false, false
		if n.what == fSync {
			n.what, n.todo, n.copied = fOut, 0, 0
		}
		n.pos = [2]uint8{}
	}
	if s.drops > 0 && s.conn {
		n := s
		n.drops--
		lost(&n)
		x.emit("the connection is lost", true, n)
	}
	if s.powers > 0 {
		for kept := range 4 {
			n := s
			n.powers--
			for b := range 2 {
				if kept&(1<<b) == 0 {
					n.mem[b] = s.dur[b]
				}
				n.dur[b] = n.mem[b]
			}
			lost(&n)
			x.emit(fmt.Sprintf("it loses power, and comes back with %v", n.mem), true, n)
		}
	}
	if s.leaves > 0 && s.what == fFollows && !s.conn {
		n := s
		n.leaves--
		n.what, n.clean, n.has = fOut, 0, s.says
		n.bclear, n.second.clear = 0, 0
		x.emit("it is let go", true, n)
	}
}

func checksFollow() []check {
	short := m4fcfg{maxv: 3, drops: 1, leaves: 1}
	power := m4fcfg{maxv: 3, powers: 1, leaves: 1}
	checked := func(name string, c m4fcfg, rule string, states int, bad string) check {
		c.mut = rule
		return check{"M4 follower: " + name, func(limit int) result { return explore(m4fmodel(c), limit) }, states, bad}
	}
	quick := m4fcfg{maxv: 2, drops: 1, powers: 1, leaves: 1}
	two, twoPower, twoQuick := short, power, quick
	two.two, twoPower.two, twoQuick.two = true, true, true
	return []check{
		checked("two barriers: two writes, lost connection, loss of power, let go", twoQuick, "", 20499, ""),
		checked("two barriers: lost connection, let go", two, "", 134614, ""),
		checked("two barriers: loss of power, let go", twoPower, "", 122600, ""),
		checked("two barriers without clear-what-is-in-flight", two, "clear-what-is-in-flight", 104414, behinds),
		checked("two barriers without clear-what-lags", two, "clear-what-lags", 103675, behinds),
		checked("two barriers without interval-early", two, "interval-early", 1204, hole),
		checked("two barriers without follows-between-two", two, "follows-between-two", 152768, ""), // not needed for safety
		checked("two writes, lost connection, loss of power, let go", quick, "", 17699, ""),
		checked("lost connection, let go", short, "", 102674, ""),
		checked("loss of power, let go", power, "", 92594, ""),
		checked("without interval-early", short, "interval-early", 1078, hole),
		checked("without lane-acknowledges-for-all", short, "lane-acknowledges-for-all", 483, behinds),
		checked("without clear-what-lags", short, "clear-what-lags", 79844, behinds),
		checked("without follows-early", short, "follows-early", 2350, behinds),
		checked("without torn-serves", short, "torn-serves", 2262, hole),
	}
}
