package model

import "fmt"

// Two barriers in flight, in M1. It is an option: the product has one. The second begins behind the
// first, and covers what is behind that on each lane:
//
//	ring     covered ────────► upto of the first ────────► upto of the second ──────► head
//
// Beside that it adds what M1 leaves out elsewhere, because it is about barriers that were cut off: a
// sync beside the lanes that goes on when connections break, what RESUME then tells, an error that is a
// message of its own, and doubt.

// Which barriers the syncer makes durable, beside the lanes: those in doubt, also those that a lane finds too
// large, or all.
const (
	syncDoubt = iota
	syncLarge
	syncBeside
)

// An m1pair is the state of that, zero without it.
type m1pair struct {
	cut             [2]m1bar // barriers that were in flight when the connections broke, older first
	slot            uint8    // of the older one
	jobs            [2]uint8 // by lane: barriers that the syncer has
	told            [2]uint8 // by lane: the slot of the last barrier that became durable, + 1
	fails           [2]uint8 // by slot: lanes that have sent an error
	failed          bool     // the region, at the target
	doubt, inherits bool     // at the target; no barrier has succeeded since an OPENED that carried it
	wants           uint8    // how often the window may still want a barrier, without a request
	kept            [2]uint8 // barred-kept: where the last barrier began, although it was cut off
}

func newPair(cfg *m1cfg) m1pair {
	return m1pair{doubt: cfg.doubt, inherits: cfg.doubt, wants: cfg.nWant}
}

// want lets the window ask for a barrier.
func (m *m1) want() {
	if n := m.s0; n.pair.wants > 0 && !n.own && !n.rec && !n.failed {
		n.pair.wants--
		n.own = true
		m.emit("the window wants a barrier", true, n)
	}
}

// full reports whether no barrier may begin.
func (m *m1) full() bool {
	s := &m.s0
	if !m.cfg.two || s.rest != [2]uint8{} && !m.mut("slices-overlap") {
		return s.b[0].on || s.b[1].on
	}
	return s.b[0].on && s.b[1].on
}

// ahead returns up to where barriers in flight cover what lane l holds.
func (m *m1) ahead(s *m1state, l int) (upto int) {
	if !m.cfg.two {
		return 0
	}
	upto = int(s.pair.kept[l])
	for k := range s.b {
		if s.b[k].on {
			upto = max(upto, int(s.b[k].upto[l]))
		}
	}
	return min(upto, sent(s, l))
}

// join lets requests join the newer of two barriers in flight, if nothing is behind it.
func (m *m1) join() {
	s := &m.s0
	if !m.cfg.two || s.rec || s.failed || s.mkOn || s.wpc != 0 || !s.b[0].on || !s.b[1].on || s.pend&m.listable() == 0 || s.rest != [2]uint8{} {
		return
	}
	for l := range s.win {
		if sent(s, l) > m.ahead(s, l) {
			return
		}
	}
	n := *s
	k := n.first ^ 1
	if m.mut("joins-the-oldest") {
		k = n.first
	}
	who := n.pend & m.listable()
	n.pend &^= who
	n.b[k].wait |= who
	m.emit(fmt.Sprintf("nothing is behind barrier %d, FLUSH joins barrier %d", n.first^1, k), false, n)
}

// force lists a lane although nothing is dirty: doubt was inherited, and no barrier is there to join.
func (m *m1) force(s *m1state) {
	if s.wlanes == 0 && s.pair.inherits && !s.b[0].on && !s.b[1].on {
		s.wlanes = 1
	}
}

// cpu reports whether a barrier that begins is one of gpspm, because doubt was inherited.
func (m *m1) cpu(s *m1state) bool {
	if m.mut("placed-once-sent") && (s.b[0].on || s.b[1].on) {
		return false
	}
	return s.pair.inherits
}

// succeeded notes that the barrier in slot k has succeeded.
func (s *m1state) succeeded(k uint8) {
	s.pair.inherits = false
	for l := range s.pair.told {
		if s.pair.told[l] == k+1 {
			s.pair.told[l] = 0
		}
	}
}

// received takes the barrier in slot k from lane l of the target. It reports false if the lane acknowledges
// it at once.
func (m *m1) received(n *m1state, l int, k uint8) bool {
	if !m.cfg.two {
		return false
	}
	p := &n.pair
	placed := m.cfg.apm && !n.b[k].cpu
	must := p.failed || !placed && (m.cfg.sync == syncBeside || p.doubt && !m.mut("acknowledges-in-doubt") || p.jobs[l] != 0 && !m.mut("overtakes-the-syncer"))
	if must || !placed && m.cfg.sync == syncLarge {
		h := *n
		h.dur = m.s0.dur
		h.pair.jobs[l] |= 1 << k
		m.emit(fmt.Sprintf("target: barrier %d on lane %d waits for the syncer", k, l), false, h)
	}
	if !must && !placed {
		p.told[l] = k + 1
	}
	return must
}

// syncer lets the target sync for all barriers that it has received, or settle the doubt.
func (m *m1) syncer() {
	s0 := m.s0
	p := &s0.pair
	if p.doubt {
		n := s0
		n.dur, n.pair.doubt = n.cache, false
		m.emit("target: the doubt is settled", false, n)
	}
	if !m.cfg.two || p.jobs == [2]uint8{} || p.doubt {
		m.errors()
		return
	}
	if !p.failed {
		n := s0
		n.dur = n.cache
		m.answer(&n, func(k uint8, lane int) {
			n.b[k].tack |= 1 << lane
			n.pair.told[lane] = k + 1
		})
		m.emit("target: one sync for all barriers that were received, acknowledged", false, n)
	}
	if p.failed || s0.nErr > 0 {
		n := s0
		if !p.failed {
			n.nErr--
		}
		n.pair.failed = true
		m.answer(&n, func(k uint8, lane int) { n.pair.fails[k] |= 1 << lane })
		m.emit("target: the sync fails, and so does the region", true, n)
	}
	m.errors()
}

// answer empties the syncer: the older barrier of each lane first.
func (m *m1) answer(n *m1state, do func(k uint8, lane int)) {
	for l := range n.pair.jobs {
		for _, k := range []uint8{n.first, n.first ^ 1} {
			if n.pair.jobs[l]&(1<<k) != 0 {
				do(k, l)
			}
		}
	}
	n.pair.jobs = [2]uint8{}
}

// errors lets the error of a barrier arrive: the device fails, with the other barrier in flight.
func (m *m1) errors() {
	for k := range m.s0.pair.fails {
		if m.s0.pair.fails[k] == 0 {
			continue
		}
		n := m.s0
		if m.mut("one-fails-alone") {
			n.pair.fails[k] = 0
			for c := range n.c {
				if n.b[k].wait&(1<<c) != 0 {
					n.c[c] = m1conn{}
				}
			}
			n.b[k] = m1bar{}
			if uint8(k) == n.first {
				n.first ^= 1
			}
			m.emit(fmt.Sprintf("barrier %d fails, and its requests with it", k), false, n)
			continue
		}
		m.fail(&n)
		m.emit(fmt.Sprintf("barrier %d fails: so does the device", k), false, n)
	}
}

// fail fails the device: everything that waits ends with an error.
func (m *m1) fail(n *m1state) {
	n.failed = true
	for c := range n.c {
		n.c[c] = m1conn{}
	}
	n.b, n.pend, n.wwait, n.wpc, n.mkWait = [2]m1bar{}, 0, 0, 0, 0
	n.wlanes, n.wslot, n.rest, n.own = 0, 0, [2]uint8{}, false
	n.hq, n.wire = [2][6]uint8{}, [2][6]uint8{}
	n.pair = m1pair{failed: true, wants: n.pair.wants}
}

// cutOff notes the barriers that were in flight when the connections broke. Another process knows
// nothing of them.
func (m *m1) cutOff(s *m1state, kill bool) {
	if !m.cfg.two {
		return
	}
	p := &s.pair
	p.jobs, p.fails = [2]uint8{}, [2]uint8{}
	if m.mut("barred-kept") {
		for l := range p.kept {
			p.kept[l] = uint8(m.ahead(s, l))
		}
	}
	if kill {
		for k := range p.cut {
			s.pend |= p.cut[k].wait
		}
		p.cut, p.slot = [2]m1bar{}, 0
		return
	}
	for _, k := range []uint8{s.first, s.first ^ 1} {
		b := s.b[k]
		switch {
		case !b.on || !b.closed:
			continue
		case p.cut[0].on:
			p.cut[1] = b
		default:
			p.cut[0], p.slot = b, k
		}
		s.b[k].wait = 0
	}
}

// durable reports whether the target has made cut barrier i durable on all its lanes, by what RESUME
// says of the last one that became durable on each. A lane answers in order, so a newer one says the same
// of the older one.
func (m *m1) durable(i int) bool {
	p := &m.s0.pair
	b := &p.cut[i]
	if !b.on || p.doubt {
		return false
	}
	for l := range p.told {
		is := p.told[l] == p.slot^uint8(i)+1
		if i == 0 && !m.mut("newer-stands-for-older") {
			is = is || p.cut[1].on && p.told[l] == p.slot^1+1
		}
		answered := b.acks&(1<<l) != 0 && (b.zw&(1<<l) == 0 || m.mut("cut-forgets-zeroes"))
		if b.lanes&(1<<l) != 0 && !answered && !is {
			return false
		}
	}
	return true
}

// resumed retires the barriers that were cut off and became durable all the same, the older one first.
// It reports whether RESUME must wait for that, or is refused.
func (m *m1) resumed() bool {
	s0 := m.s0
	p := &s0.pair
	if !m.cfg.two || !s0.rec || s0.failed || s0.mkOn || s0.tzold != [2]uint8{} {
		return false
	}
	if p.failed {
		n := s0
		m.fail(&n)
		m.emit("RESUME is refused: the region failed", false, n)
		return true
	}
	i := 0
	if !m.durable(0) && m.mut("newer-counts-alone") {
		i = 1
	}
	if !m.durable(i) {
		return false
	}
	n := s0
	b := n.pair.cut[i]
	n.mkOn, n.mkLanes, n.mkWait, n.mkUpto = true, 3, b.wait, b.upto
	if i == 0 {
		if m.mut("cut-answers-all") {
			n.mkWait |= n.pair.cut[1].wait
			n.pair.cut[1].wait = 0
		}
		n.pair.cut[0], n.pair.slot = n.pair.cut[1], n.pair.slot^1
	}
	n.pair.cut[1] = m1bar{}
	n.pair.inherits = false
	m.emit("RESUME says that a barrier that was cut off is durable", false, n)
	return true
}

// replayed forgets what was cut off: its requests wait for the next barrier.
func (m *m1) replayed(s *m1state) {
	p := &s.pair
	for k := range p.cut {
		s.pend |= p.cut[k].wait
	}
	p.cut, p.slot, p.told = [2]m1bar{}, 0, [2]uint8{}
	p.inherits = p.inherits || p.doubt
}

// paired lets two barriers be in flight.
func (c m1cfg) paired() m1cfg { c.slices, c.two = true, true; return c }

func checksTwo() []check {
	lanes, same, single := []uint8{0, 2}, []uint8{0, 1}, []uint8{0} // blocks: on two lanes, on one lane, one
	small := m1cfg{nW: 2, nF: 2, blocks: lanes}.paired()
	plain := m1cfg{nW: 3, nF: 2, blocks: lanes}.paired()
	wants := m1cfg{nW: 2, nF: 2, nWant: 1, nLoss: 1, blocks: lanes}.paired()
	over := m1cfg{nW: 3, nF: 2, nR: 1, nPow: 1, blocks: same}.paired()
	one := m1cfg{nW: 3, nF: 2, nLoss: 1, nPow: 1, blocks: single}.paired()
	lost := m1cfg{nW: 2, nF: 2, nLoss: 1, nPow: 1, blocks: lanes}.paired()
	beside := m1cfg{nW: 2, nF: 2, nLoss: 1, nPow: 1, sync: syncBeside, blocks: lanes}.paired()
	large := m1cfg{nW: 2, nF: 2, nLoss: 1, nPow: 1, sync: syncLarge, blocks: same}.paired()
	killed := m1cfg{nW: 2, nF: 2, nKill: 1, nPow: 1, nEv: 1, blocks: single}.paired()
	again := m1cfg{nW: 2, nF: 2, nLoss: 1, nKill: 1, nPow: 1, blocks: lanes}.paired()
	syncs := m1cfg{nW: 3, nF: 2, nErr: 1, nLoss: 1, sync: syncBeside, blocks: lanes}.paired()
	doubt := m1cfg{nW: 2, nF: 2, nR: 1, nLoss: 1, doubt: true, apm: true, blocks: single}.paired()
	fua := m1cfg{nW: 1, n2: 1, nF: 1, nLoss: 1, nPow: 1, blocks: lanes}.paired()
	zeroes := m1cfg{nW: 2, nZ: 1, nF: 2, nR: 1, nLoss: 1, apm: true, blocks: single}.paired()
	return []check{
		check1("two: two writes on two lanes", small, 6083, ""),
		check1("two: three writes on two lanes", plain, 35873, ""),
		check1("two: a barrier for the window's sake, lost connection", wants, 161002, ""),
		check1("two: two blocks on a lane, READ, power loss", over, 971406, ""),
		check1("two: one block, lost connection, power loss", one, 101615, ""),
		check1("two: lost connection, power loss", lost, 125146, ""),
		check1("two: sync beside the lanes, lost connection, power loss", beside, 159341, ""),
		check1("two: a large barrier beside its lane", large, 124397, ""),
		check1("two: kill and adoption, power loss", killed, 49367, ""),
		check1("two: kill and loss, two lanes", again, 329493, ""),
		check1("two: sync error, lost connection", syncs, 663082, ""),
		check1("two: doubt under apm, lost connection", doubt, 71942, ""),
		check1("two: FUA in two pieces, lost connection, power loss", fua, 461857, ""),
		check1("two: zeroes under apm, lost connection", zeroes, 359072, ""),

		// not needed for safety
		check1("two without: newer-stands-for-older", beside.without("newer-stands-for-older"), 159501, ""),
		check1("two without: slices-overlap", one.without("slices-overlap"), 146356, ""),
		check1("two without: placed-once-sent", doubt.without("placed-once-sent"), 70258, ""),

		// rules dropped
		check1("two without: barriers-out-of-order", plain.without("barriers-out-of-order"), 25990, lostFlush),
		check1("two without: joins-the-oldest", wants.without("joins-the-oldest"), 126666, lostFlush),
		check1("two without: newest-answer-only", plain.without("newest-answer-only"), 35873, stuck),
		check1("two without: barred-kept", lost.without("barred-kept"), 17335, lostFlush),
		check1("two without: newer-counts-alone", beside.without("newer-counts-alone"), 92307, lostFlush),
		check1("two without: cut-answers-all", beside.without("cut-answers-all"), 92244, lostFlush),
		check1("two without: one-fails-alone", syncs.without("one-fails-alone"), 408256, lostFlush),
		check1("two without: overtakes-the-syncer", large.without("overtakes-the-syncer"), 90696, lostFlush),
		check1("two without: acknowledges-in-doubt", doubt.without("acknowledges-in-doubt"), 16258, lostFlush),
		check1("two without: cut-forgets-zeroes", zeroes.without("cut-forgets-zeroes"), 64866, lostFlush),
		check1("two without: reply-before-mark", killed.without("reply-before-mark"), 27551, lostFlush),
	}
}
