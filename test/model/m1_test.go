package model

import "fmt"

// M1 is the data path of one session. There are two lanes; blocks 0 and 1 lie on lane 0, block 2
// on lane 1. Two clients write, zero, read and flush. The target runs zeroes beside the lane. A
// connection is lost, the initiator is killed and its window adopted, the target loses power, a
// cache evicts a line at any time, a sync fails. A value is its place in the order of the writes
// of its block; 7 is garbage.

// The kinds of an op. An op is kind<<5 | block<<3 | order, a barrier kind<<5 | slot<<3 | ranges,
// a read kind<<5 | block<<3 | connection.
const (
	oW, oZ, oB, oR = 1, 2, 3, 4
	garbage        = 7
)

// An m1bar is a barrier in flight.
type m1bar struct {
	on, closed              bool
	lanes, tack, acks, wait uint8
	zw                      uint8 // apm: lanes with a zero ahead that is not acknowledged
	upto                    [2]uint8
}

// An m1conn is a client: 1 its second piece is missing, 2 its FUA waits, 3 its FLUSH waits, 4 its
// READ waits, 5 its publishing is unfinished, 6 its number is drawn.
type m1conn struct {
	pc, blk, pos uint8
	fsnap        [3]uint8
	rsnap        uint8
	at           [2]uint8 // slices: how many uncovered entries of each lane it came after
	queued       bool     // the READ is in its lane's queue
}

type m1state struct {
	hq, wire, win                           [2][6]uint8
	ord, cache, dur, lb, fl                 [3]uint8
	tz, tzold, zun                          [2]uint8 // zero under way at the target; of the destroyed session; not acknowledged (block<<3|order)
	b                                       [2]m1bar
	first, dirty, rng                       uint8
	wpc, wwait, wlanes, wslot, wdirty, pend uint8
	c                                       [2]m1conn
	mkOn                                    bool
	mkLanes, mkWait                         uint8
	mkUpto                                  [2]uint8
	rec, failed                             bool
	nW, nZ, nF, nR, n2, nLoss, nPow, nKill  uint8
	nEv, nErr                               uint8
	bad                                     uint8
	rest                                    [2]uint8 // slices: entries at the end of each ring that the replay has not queued
	own                                     bool     // slices: the slice that was queued needs its barrier
}

// An m1cfg says how many of each request and fault there may be, and which rule is dropped.
type m1cfg struct {
	nW, nZ, nF, nR, n2, nLoss, nPow, nKill, nEv, nErr uint8
	blocks                                            []uint8
	apm                                               bool // a barrier is an RDMA Read; the target makes a zero durable before it acknowledges it
	slices                                            bool // a replay goes in slices of one entry for each lane, and one barrier is in flight at most
	mut                                               string
}

// An m1 visits the successors of state s0.
type m1 struct {
	cfg  m1cfg
	s0   m1state
	emit emitFn[m1state]
}

func m1model(cfg m1cfg) model[m1state] {
	init := m1state{nW: cfg.nW, nZ: cfg.nZ, nF: cfg.nF, nR: cfg.nR, n2: cfg.n2, nLoss: cfg.nLoss, nPow: cfg.nPow, nKill: cfg.nKill, nEv: cfg.nEv, nErr: cfg.nErr}
	succ := func(s m1state, emit emitFn[m1state]) { (&m1{cfg, s, emit}).next() }
	return model[m1state]{init, succ, m1bad, m1goal}
}

// mut reports whether the rule called name is dropped.
func (m *m1) mut(name string) bool { return m.cfg.mut == name }

func lane(b uint8) uint8 { return b >> 1 }

func ins(q *[6]uint8, at int, v uint8) bool {
	if q[5] != 0 {
		return false
	}
	copy(q[at+1:], q[at:5])
	q[at] = v
	return true
}

func qlen(q *[6]uint8) int {
	for i, v := range q {
		if v == 0 {
			return i
		}
	}
	return 6
}

func del(q *[6]uint8, at int) { copy(q[at:], q[at+1:]); q[5] = 0 }

// enqueue gives a write of block b its place: under the lane's mutex, the entry becomes valid
// and the op enters the queue.
func (m *m1) enqueue(s *m1state, kind, b uint8, valid bool) uint8 {
	l := lane(b)
	s.ord[b]++
	op := kind<<5 | b<<3 | s.ord[b]
	if valid {
		ins(&s.win[l], qlen(&s.win[l]), op)
	}
	switch {
	case s.rec:
	case s.rest[l] > 0:
		s.rest[l]++
	default:
		ins(&s.hq[l], qlen(&s.hq[l]), op)
	}
	s.dirty |= 1 << b
	return op
}

// room reports whether another write of block b fits the model's bounds.
func room(s *m1state, b uint8) bool {
	l := lane(b)
	return s.ord[b] < 6 && qlen(&s.win[l]) < 5 && qlen(&s.hq[l]) < 4
}

// complete ends the FLUSHes and FUA writes in wait: what they came after is promised.
func complete(s *m1state, wait uint8) {
	for c := range s.c {
		if wait&(1<<c) != 0 {
			p := &s.c[c]
			for b := range s.fl {
				s.fl[b] = max(s.fl[b], p.fsnap[b])
				s.lb[b] = max(s.lb[b], p.fsnap[b])
			}
			*p = m1conn{}
		}
	}
}

// lost is the end of every connection, and with kill that of the process.
func (m *m1) lost(s *m1state, kill bool) {
	s.rec = true
	s.wire = [2][6]uint8{}
	s.hq = [2][6]uint8{}
	for l := range s.tz {
		if s.tz[l] != 0 {
			s.tzold[l] = s.tz[l]
		}
	}
	s.tz, s.zun = [2]uint8{}, [2]uint8{}
	s.pend |= s.wwait
	for k := range s.b {
		s.pend |= s.b[k].wait
	}
	s.b = [2]m1bar{}
	s.rest, s.own = [2]uint8{}, false
	for c := range s.c {
		s.c[c].queued = false
	}
	s.first, s.wpc, s.wwait, s.wlanes, s.wslot, s.wdirty, s.rng = 0, 0, 0, 0, 0, 0, 0
	if kill {
		s.pend |= s.mkWait
		s.mkOn, s.mkLanes, s.mkWait, s.mkUpto = false, 0, 0, [2]uint8{}
		for c := range s.c {
			if pc := s.c[c].pc; pc == 1 || pc == 2 || pc >= 5 { // writes without a reply: their client sends them again (as new operations)
				s.pend &^= 1 << c
				s.c[c] = m1conn{}
			}
		}
	}
	s.dirty = 0
	if m.mut("ranges-not-returned") {
		return
	}
	for l := range s.win {
		for _, e := range s.win[l] {
			if e != 0 {
				s.dirty |= 1 << (e >> 3 & 3)
			}
		}
	}
}

func place(s *m1state, e uint8) { s.cache[e>>3&3] = e & 7 }

// post hands queued ops to the wire. That is local to the initiator, so it comes before
// everything else (a partial-order reduction); the target may still take its time.
func (m *m1) post() bool {
	s0, emit := m.s0, m.emit
	if !s0.rec {
		for l := range s0.hq {
			h := s0.hq[l][0]
			if h == 0 || s0.wire[l][5] != 0 {
				continue
			}
			at := 0
			stopped := s0.zun[l] != 0 && h>>5 != oB && h>>3&3 == s0.zun[l]>>3&3 && !m.mut("zero-does-not-stop-queue")
			if stopped {
				at = -1
				if m.mut("barrier-passes-stopped-queue") {
					for i, o := range s0.hq[l] {
						if o>>5 == oB {
							at = i
							break
						}
					}
				}
			}
			if at < 0 {
				continue
			}
			n := s0
			o := n.hq[l][at]
			del(&n.hq[l], at)
			ins(&n.wire[l], qlen(&n.wire[l]), o)
			if o>>5 == oZ {
				n.zun[l] = o
			}
			emit(fmt.Sprintf("lane %d posts %s", l, opname(o)), false, n)
			return true
		}
	}
	return false
}

// clients lets each connection take its next step.
func (m *m1) clients() {
	s0, emit := m.s0, m.emit
	for c := range s0.c {
		p0 := &s0.c[c]
		switch p0.pc {
		case 0:
			m.requests(c)
		case 1:
			if s0.failed {
				n := s0
				n.c[c] = m1conn{}
				emit(fmt.Sprintf("conn %d: EIO", c), false, n)
			} else if room(&s0, 2) {
				n := s0
				m.enqueue(&n, oW, 2, true)
				n.c[c].pc = 2
				n.c[c].fsnap[2] = n.ord[2]
				m.position(&n, c)
				n.pend |= 1 << c
				emit(fmt.Sprintf("conn %d: second piece enqueued, FUA waits", c), false, n)
			}
		case 5, 6:
			m.unfinished(c)
		}
	}
}

// requests is what a connection without a request may send.
func (m *m1) requests(c int) {
	s0, emit := m.s0, m.emit
	for _, b := range m.cfg.blocks {
		if s0.nW > 0 && room(&s0, b) && !s0.failed {
			n := s0
			n.nW--
			switch {
			case m.mut("reply-before-valid"):
				op := m.enqueue(&n, oW, b, false)
				n.lb[b] = n.ord[b]
				n.c[c].pc, n.c[c].pos = 5, op
				emit(fmt.Sprintf("conn %d: WRITE block %d order %d enqueued, acknowledged, entry not yet valid", c, b, n.ord[b]), true, n)
			case m.mut("valid-before-payload"):
				op := m.enqueue(&n, oW, b, true)
				l := lane(b)
				if !n.rec {
					del(&n.hq[l], qlen(&n.hq[l])-1)
				}
				n.win[l][qlen(&n.win[l])-1] = op | 7
				n.c[c].pc, n.c[c].pos = 5, op
				emit(fmt.Sprintf("conn %d: WRITE block %d: entry valid, payload incomplete", c, b), true, n)
			case m.mut("number-outside-mutex"):
				n.c[c].pc, n.c[c].blk, n.c[c].pos = 6, b, uint8(qlen(&n.win[lane(b)]))
				emit(fmt.Sprintf("conn %d: WRITE block %d draws its number", c, b), true, n)
			default:
				m.enqueue(&n, oW, b, true)
				n.lb[b] = n.ord[b]
				emit(fmt.Sprintf("conn %d: WRITE block %d order %d enqueued, acknowledged", c, b, n.ord[b]), true, n)
			}
		}
		if s0.nZ > 0 && room(&s0, b) && !s0.failed {
			n := s0
			n.nZ--
			m.enqueue(&n, oZ, b, true)
			n.lb[b] = n.ord[b]
			emit(fmt.Sprintf("conn %d: ZEROES block %d order %d enqueued, acknowledged", c, b, n.ord[b]), true, n)
		}
		if s0.nR > 0 && !s0.failed && qlen(&s0.hq[lane(b)]) < 4 {
			n := s0
			n.nR--
			n.c[c] = m1conn{pc: 4, blk: b, rsnap: n.lb[b]}
			m.position(&n, c)
			if !n.rec {
				m.queueReads(&n)
			}
			emit(fmt.Sprintf("conn %d: READ block %d enqueued (must be >= %d)", c, b, n.lb[b]), true, n)
		}
	}
	if s0.n2 > 0 && room(&s0, 0) && room(&s0, 2) && !s0.failed {
		n := s0
		n.n2--
		m.enqueue(&n, oW, 0, true)
		n.c[c].pc = 1
		n.c[c].fsnap[0] = n.ord[0]
		if m.mut("fua-listed-early") {
			n.pend |= 1 << c
			n.c[c].fsnap[2] = n.ord[2] + 1
		}
		emit(fmt.Sprintf("conn %d: WRITE+FUA blocks 0 and 2: first piece enqueued", c), true, n)
	}
	if s0.nF > 0 && (!s0.failed || m.mut("failed-not-tested")) {
		n := s0
		n.nF--
		n.c[c].pc = 3
		n.c[c].fsnap = n.lb
		m.position(&n, c)
		n.pend |= 1 << c
		emit(fmt.Sprintf("conn %d: FLUSH received", c), true, n)
	}
}

// unfinished is the second half of a write that a mutant tears in two.
func (m *m1) unfinished(c int) {
	s0, emit := m.s0, m.emit
	p0 := &s0.c[c]
	switch p0.pc {
	case 5:
		n := s0
		op := p0.pos
		b := op >> 3 & 3
		l := lane(b)
		if m.mut("reply-before-valid") {
			ins(&n.win[l], qlen(&n.win[l]), op)
		} else {
			for i := range n.win[l] {
				if n.win[l][i] == op|7 {
					n.win[l][i] = op
				}
			}
			if !n.rec {
				ins(&n.hq[l], qlen(&n.hq[l]), op)
			}
			n.lb[b] = max(n.lb[b], op&7)
		}
		n.c[c] = m1conn{}
		emit(fmt.Sprintf("conn %d: publishes the rest", c), false, n)
	case 6:
		if room(&s0, p0.blk) {
			n := s0
			b := p0.blk
			l := lane(b)
			op := m.enqueue(&n, oW, b, false)
			ins(&n.win[l], min(int(p0.pos), qlen(&n.win[l])), op)
			n.lb[b] = n.ord[b]
			n.c[c] = m1conn{}
			emit(fmt.Sprintf("conn %d: block %d enqueued as order %d, acknowledged", c, b, n.ord[b]), false, n)
		}
	}
}

// commit is the group commit: it lists who waits, then the dirty lanes, then enqueues a
// barrier on each.
func (m *m1) commit() {
	s0, emit := m.s0, m.emit
	busy := s0.rec || s0.failed && !m.mut("failed-not-tested")
	if m.cfg.slices {
		busy = busy || s0.mkOn || s0.wpc == 0 && (s0.b[0].on || s0.b[1].on)
		m.nextSlice(busy)
	}
	if s0.wpc == 0 && (s0.pend&m.listable() != 0 || s0.own) && !busy && (!s0.b[0].on || !s0.b[1].on) {
		n := s0
		n.wpc = 1
		if m.mut("dirty-before-waiters") {
			n.wdirty = dirtyLanes(n.dirty)
			emit("barrier: lists the dirty lanes", false, n)
		} else {
			n.wwait = n.pend & m.listable()
			n.pend &^= n.wwait
			n.own = false
			emit("barrier: lists who waits", false, n)
		}
	}
	if s0.wpc == 1 && !busy {
		m.listLanes()
	}
	if s0.wpc == 2 && !busy {
		m.enqueueBarrier()
	}
}

// listLanes lists the dirty lanes, or finds that no barrier is needed.
func (m *m1) listLanes() {
	s0, emit := m.s0, m.emit
	n := s0
	if m.mut("dirty-before-waiters") {
		n.wlanes, n.wdirty = n.wdirty, 0
		n.wwait, n.pend = n.pend, 0
	} else {
		n.wlanes = dirtyLanes(n.dirty)
	}
	if m.cfg.slices {
		n.wlanes = 0
		for l := range n.win {
			if sent(&n, l) > 0 {
				n.wlanes |= 1 << l
			}
		}
	}
	if m.mut("lane0-only") && n.wlanes != 0 {
		n.wlanes = 1
	}
	if n.wlanes == 0 {
		last := n.first ^ 1
		if !n.b[last].on {
			last = n.first
		}
		if n.b[last].on && !m.mut("empty-flush-at-once") {
			n.b[last].wait |= n.wwait
			n.wwait, n.wpc = 0, 0
			emit("barrier: nothing dirty, joins the last in flight", false, n)
		} else if n.mkOn && !m.mut("empty-flush-at-once") {
			n.mkWait |= n.wwait
			n.wwait, n.wpc = 0, 0
			emit("barrier: nothing dirty, joins the one being retired", false, n)
		} else {
			w := n.wwait
			n.wwait, n.wpc = 0, 0
			complete(&n, w)
			emit("barrier: nothing dirty, reply to the FLUSH at once", false, n)
		}
	} else {
		k := n.first
		if n.b[k].on {
			k ^= 1
		}
		n.b[k] = m1bar{on: true, wait: n.wwait}
		n.wwait, n.wslot, n.wpc = 0, k, 2
		emit(fmt.Sprintf("barrier %d: lists dirty lanes %02b", k, n.wlanes), false, n)
	}
}

// enqueueBarrier puts the barrier behind what the first dirty lane carries.
func (m *m1) enqueueBarrier() {
	s0, emit := m.s0, m.emit
	for l := uint8(0); l < 2; l++ {
		if s0.wlanes&(1<<l) == 0 {
			continue
		}
		n := s0
		mask := uint8(3)
		if l == 1 {
			mask = 4
		}
		if m.mut("lane0-only") {
			mask = 7
		}
		if m.mut("ranges-outside-mutex") && s0.rng == 0 {
			n.rng = n.dirty&mask | 8
			n.dirty &^= mask
			emit(fmt.Sprintf("barrier: collects the ranges of lane %d", l), false, n)
			break
		}
		r := n.dirty & mask
		if m.mut("ranges-outside-mutex") {
			r = n.rng & 7
			n.rng = 0
		}
		n.dirty &^= mask
		if m.mut("ranges-outside-mutex") {
			n.dirty = s0.dirty
		}
		if m.cfg.slices {
			r = blocks(n.win[l][:sent(&n, int(l))])
			n.dirty |= blocks(n.win[l][sent(&n, int(l)):])
		}
		k := n.wslot
		if !ins(&n.hq[l], qlen(&n.hq[l]), oB<<5|k<<3|r) {
			break
		}
		n.b[k].lanes |= 1 << l
		n.b[k].upto[l] = uint8(sent(&n, int(l)))
		if m.mut("slice-covers-the-ring") {
			n.b[k].upto[l] = uint8(qlen(&n.win[l]))
		}
		if m.mut("lane0-only") {
			n.b[k].upto[1] = uint8(qlen(&n.win[1]))
		}
		n.wlanes &^= 1 << l
		if n.wlanes == 0 {
			n.wpc, n.wslot = 0, 0
			n.b[k].closed = true
		}
		emit(fmt.Sprintf("barrier %d: enqueued on lane %d with ranges %03b", k, l, r), false, n)
		break
	}
}

// acks takes acknowledgements, and retires a barrier that all its lanes have acknowledged.
func (m *m1) acks() {
	s0, emit := m.s0, m.emit
	for k := uint8(0); k < 2; k++ {
		b0 := &s0.b[k]
		if b0.tack != 0 {
			for l := uint8(0); l < 2; l++ {
				if b0.tack&(1<<l) != 0 {
					n := s0
					n.b[k].tack &^= 1 << l
					n.b[k].acks |= 1 << l
					emit(fmt.Sprintf("barrier %d: ack of lane %d arrives", k, l), false, n)
				}
			}
		}
		if b0.on && b0.closed && b0.acks == b0.lanes && !s0.mkOn && (b0.zw == 0 || m.mut("apm-barrier-ignores-zeroes")) && (k == s0.first || m.mut("barriers-out-of-order")) {
			n := s0
			n.mkOn, n.mkLanes, n.mkWait, n.mkUpto = true, 3, b0.wait, b0.upto
			n.b[k] = m1bar{}
			if k == n.first {
				n.first ^= 1
			}
			if m.mut("reuse-before-mark") {
				for l := range n.win {
					for i := 0; i < int(b0.upto[l]); i++ {
						n.win[l][i] |= garbage
					}
				}
			}
			if m.mut("reply-before-mark") {
				complete(&n, n.mkWait)
				n.mkWait = 0
			}
			emit(fmt.Sprintf("barrier %d: success on all its lanes", k), false, n)
		}
	}
}

// retire moves the covered marks, lane by lane, then replies.
func (m *m1) retire() {
	s0, emit := m.s0, m.emit
	if s0.mkOn {
		n := s0
		if n.mkLanes != 0 {
			l := 0
			if n.mkLanes&1 == 0 {
				l = 1
			}
			for i := uint8(0); i < n.mkUpto[l]; i++ {
				del(&n.win[l], 0)
			}
			for k := range n.b {
				if n.b[k].on {
					n.b[k].upto[l] -= min(n.b[k].upto[l], n.mkUpto[l])
				}
			}
			for c := range n.c {
				n.c[c].at[l] -= min(n.c[c].at[l], n.mkUpto[l])
			}
			n.rest[l] = min(n.rest[l], uint8(qlen(&n.win[l]))) // slice-covers-the-ring takes them away
			n.mkUpto[l] = 0
			n.mkLanes &^= 1 << l
			emit(fmt.Sprintf("covered mark of lane %d moves", l), false, n)
		} else {
			complete(&n, n.mkWait)
			n.mkOn, n.mkWait = false, 0
			emit("replies to FLUSH and FUA", false, n)
		}
	}
}

// recovery is RESUME and the replay that follows.
func (m *m1) recovery() {
	s0, emit := m.s0, m.emit
	if s0.rec && !s0.failed && (!s0.mkOn || m.mut("replay-during-retire")) && (s0.tzold == [2]uint8{} || m.mut("no-join-of-zeroes")) {
		n := s0
		n.rec = false
		for l := range n.win {
			if m.cfg.slices {
				n.rest[l] = uint8(qlen(&n.win[l]))
			} else {
				n.hq[l] = n.win[l]
			}
		}
		m.queueReads(&n)
		emit("RESUME granted, replay queued", false, n)
	}
}

// target lets each lane's end at the target take its next step.
func (m *m1) target() {
	s0, emit := m.s0, m.emit
	for l := range s0.wire {
		for _, old := range []bool{false, true} {
			z := s0.tz[l]
			if old {
				z = s0.tzold[l]
			}
			if z == 0 {
				continue
			}
			n := s0
			place(&n, z)
			if old {
				n.tzold[l] = 0
				emit(fmt.Sprintf("target: %s of the destroyed session wipes", opname(z)), false, n)
			} else {
				n.tz[l] = 0
				if m.cfg.apm {
					n.dur[z>>3&3] = z & 7
					for k := range n.b {
						n.b[k].zw &^= 1 << l
					}
				}
				if n.zun[l] == z {
					n.zun[l] = 0
				}
				emit(fmt.Sprintf("target: %s done and acknowledged", opname(z)), false, n)
			}
		}
		h := s0.wire[l][0]
		if h == 0 {
			continue
		}
		n := s0
		del(&n.wire[l], 0)
		switch h >> 5 {
		case oW:
			place(&n, h)
			emit("target: "+opname(h)+" placed", false, n)
		case oZ:
			if s0.tz[l] == 0 {
				n.tz[l] = h
				emit("target: "+opname(h)+" received, runs beside the lane", false, n)
			}
		case oB:
			if s0.tz[l] != 0 && !m.cfg.apm && !m.mut("barrier-does-not-wait-for-zeroes") {
				break
			}
			k := h >> 3 & 1
			if m.cfg.apm && s0.tz[l] != 0 {
				n.b[k].zw |= 1 << l
			}
			for b := range n.dur {
				if h&(1<<b) != 0 {
					n.dur[b] = n.cache[b]
				}
			}
			n.b[k].tack |= 1 << l
			emit(fmt.Sprintf("target: barrier %d on lane %d flushed, acknowledged", k, l), false, n)
			if s0.nErr > 0 {
				e := s0
				e.nErr--
				del(&e.wire[l], 0)
				e.failed = true
				for c := range e.c {
					if pc := e.c[c].pc; pc == 2 || pc == 3 || pc == 4 {
						e.c[c] = m1conn{}
					}
				}
				e.b, e.pend, e.wwait, e.wpc, e.mkWait = [2]m1bar{}, 0, 0, 0, 0
				e.wlanes, e.wslot = 0, 0
				e.hq, e.wire = [2][6]uint8{}, [2][6]uint8{}
				emit("target: barrier fails (sync error); device failed, waiters get EIO", true, e)
			}
		case oR:
			c := h & 7
			b := h >> 3 & 3
			v := s0.cache[b]
			if v < s0.c[c].rsnap || v == garbage {
				n.bad = 2
			}
			n.lb[b] = max(n.lb[b], v)
			n.c[c] = m1conn{}
			emit(fmt.Sprintf("READ block %d completes with order %d", b, v), false, n)
		}
	}
}

// faults are the loss of a connection, kill, power loss and eviction.
func (m *m1) faults() {
	s0, emit := m.s0, m.emit
	if s0.failed {
		return
	}
	if s0.nLoss > 0 && !s0.rec {
		n := s0
		n.nLoss--
		m.lost(&n, false)
		emit("connection lost, old queue pairs destroyed", true, n)
	}
	if s0.nKill > 0 {
		n := s0
		n.nKill--
		m.lost(&n, true)
		emit("pmnbd killed; the next one adopts the window file", true, n)
	}
	if s0.nPow > 0 {
		n := s0
		n.nPow--
		m.lost(&n, false)
		n.tzold = [2]uint8{}
		n.cache = n.dur
		emit("target: POWER LOSS, restart", true, n)
	}
	if s0.nEv > 0 {
		for b := range s0.dur {
			if s0.dur[b] != s0.cache[b] {
				n := s0
				n.nEv--
				n.dur[b] = n.cache[b]
				emit(fmt.Sprintf("target: the cache evicts block %d (order %d is durable)", b, n.dur[b]), true, n)
			}
		}
	}
}

// next visits the successors of the state.
func (m *m1) next() {
	if m.post() {
		return
	}
	m.clients()
	m.commit()
	m.acks()
	m.retire()
	m.recovery()
	m.target()
	m.faults()
}

func m1bad(s *m1state) string {
	if s.bad == 2 {
		return "(2,3) a READ returned an older value or garbage"
	}
	for b := range s.dur {
		if s.dur[b] < s.fl[b] || s.dur[b] == garbage && s.fl[b] != 0 {
			return "(1) what a successful FLUSH or FUA covered is not durable"
		}
	}
	return ""
}

func m1goal(s *m1state) bool {
	for c := range s.c {
		if s.c[c].pc != 0 {
			return false
		}
	}
	return !s.mkOn && s.rest == [2]uint8{}
}

// sent is how many uncovered entries of lane l are in the queue, or were.
func sent(s *m1state, l int) int { return qlen(&s.win[l]) - int(s.rest[l]) }

// blocks are those that entries write.
func blocks(entries []uint8) (set uint8) {
	for _, e := range entries {
		if e != 0 {
			set |= 1 << (e >> 3 & 3)
		}
	}
	return set
}

// position notes what connection c's request came after.
func (m *m1) position(s *m1state, c int) {
	if m.cfg.slices {
		s.c[c].at = [2]uint8{uint8(qlen(&s.win[0])), uint8(qlen(&s.win[1]))}
	}
}

// queueReads queues the READs that have everything before them in their lane's queue.
func (m *m1) queueReads(s *m1state) {
	for c := range s.c {
		p := &s.c[c]
		l := lane(p.blk)
		if p.pc == 4 && !p.queued && (!m.cfg.slices || int(p.at[l]) <= sent(s, int(l)) || m.mut("read-before-its-slice")) {
			p.queued = true
			ins(&s.hq[l], qlen(&s.hq[l]), oR<<5|p.blk<<3|uint8(c))
		}
	}
}

// nextSlice queues the next entry of each lane that has not caught up.
func (m *m1) nextSlice(busy bool) {
	n := m.s0
	if busy || n.own || n.wpc != 0 || n.rest == [2]uint8{} {
		return
	}
	for l := range n.win {
		if n.rest[l] > 0 {
			ins(&n.hq[l], qlen(&n.hq[l]), n.win[l][sent(&n, l)])
			n.rest[l]--
		}
	}
	m.queueReads(&n)
	n.own = true
	m.emit("replay: queues a slice", false, n)
}

// listable are the connections that the next barrier may answer: it covers all that they came after.
func (m *m1) listable() (set uint8) {
	if !m.cfg.slices || m.s0.own && m.mut("slice-answers-flush") {
		return 3
	}
	for c := range m.s0.c {
		at := m.s0.c[c].at
		if int(at[0]) <= sent(&m.s0, 0) && int(at[1]) <= sent(&m.s0, 1) {
			set |= 1 << c
		}
	}
	return set
}

func dirtyLanes(d uint8) uint8 {
	var l uint8
	if d&3 != 0 {
		l |= 1
	}
	if d&4 != 0 {
		l |= 2
	}
	return l
}

func opname(o uint8) string {
	switch o >> 5 {
	case oW:
		return fmt.Sprintf("W(block %d, order %d)", o>>3&3, o&7)
	case oZ:
		return fmt.Sprintf("Z(block %d, order %d)", o>>3&3, o&7)
	case oB:
		return fmt.Sprintf("barrier %d", o>>3&1)
	}
	return fmt.Sprintf("READ(block %d)", o>>3&3)
}
