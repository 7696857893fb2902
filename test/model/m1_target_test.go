package model

import "fmt"

// lost ends every connection, and with kill the process.
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
	m.cutOff(s, kill)
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
			if pc := s.c[c].pc; pc == 1 || pc == 2 || pc >= 5 { // a write without a reply: its client sends it again, as a new operation
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

// recovery is RESUME and the replay after it.
func (m *m1) recovery() {
	s0, emit := m.s0, m.emit
	if m.resumed() {
		return
	}
	if s0.rec && !s0.failed && (!s0.mkOn || m.mut("replay-during-retire")) && (s0.tzold == [2]uint8{} || m.mut("no-join-of-zeroes")) {
		n := s0
		n.rec = false
		m.replayed(&n)
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

// target lets the target take the next step on each lane.
func (m *m1) target() {
	s0, emit := m.s0, m.emit
	for l := range s0.wire {
		m.zeroes(l)
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
			if m.received(&n, l, k) {
				continue
			}
			n.b[k].tack |= 1 << l
			emit(fmt.Sprintf("target: barrier %d on lane %d flushed, acknowledged", k, l), false, n)
			m.syncFails(l)
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

// zeroes lets a zero on lane l finish, of this session or of a destroyed one.
func (m *m1) zeroes(l int) {
	s0, emit := m.s0, m.emit
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
}

// syncFails lets the barrier that lane l carries first fail, if the check allows it.
func (m *m1) syncFails(l int) {
	s0 := m.s0
	if s0.nErr == 0 || m.cfg.two {
		return
	}
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
	m.emit("target: barrier fails (sync error); device failed, waiters get EIO", true, e)
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
		n.pair.told = [2]uint8{}
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

// nextSlice queues the next entry of each lane whose replay has not caught up.
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
