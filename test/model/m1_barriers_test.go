package model

import "fmt"

// commit is the group commit. It lists who waits, then the dirty lanes, then enqueues a barrier
// on each of them.
func (m *m1) commit() {
	s0, emit := m.s0, m.emit
	busy := s0.rec || s0.failed && !m.mut("failed-not-tested")
	if m.cfg.slices {
		busy = busy || s0.mkOn || s0.wpc == 0 && m.full()
		m.nextSlice(busy)
		m.join()
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

// listLanes lists the dirty lanes, or finds that the FLUSH needs no barrier.
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
			if sent(&n, l) > m.ahead(&n, l) {
				n.wlanes |= 1 << l
			}
		}
		m.force(&n)
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
		n.b[k] = m1bar{on: true, wait: n.wwait, cpu: m.cpu(&n)}
		n.wwait, n.wslot, n.wpc = 0, k, 2
		emit(fmt.Sprintf("barrier %d: lists dirty lanes %02b", k, n.wlanes), false, n)
	}
}

// enqueueBarrier puts the barrier behind the queue of the first dirty lane.
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
			r = blocks(n.win[l][m.ahead(&n, int(l)):sent(&n, int(l))])
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

// acks takes acknowledgements. It retires a barrier when all its lanes have acknowledged it.
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
					if older := k ^ 1; m.mut("newest-answer-only") && older == n.first {
						n.b[older].tack &^= 1 << l
					}
					emit(fmt.Sprintf("barrier %d: ack of lane %d arrives", k, l), false, n)
				}
			}
		}
		if b0.on && b0.closed && b0.acks == b0.lanes && !s0.mkOn && (b0.zw == 0 || m.mut("apm-barrier-ignores-zeroes")) && (k == s0.first || m.mut("barriers-out-of-order")) {
			n := s0
			n.mkOn, n.mkLanes, n.mkWait, n.mkUpto = true, 3, b0.wait, b0.upto
			n.b[k] = m1bar{}
			n.succeeded(k)
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

// retire moves the covered marks lane by lane, then completes the requests.
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
			for k := range n.pair.cut {
				n.pair.cut[k].upto[l] -= min(n.pair.cut[k].upto[l], n.mkUpto[l])
			}
			n.pair.kept[l] -= min(n.pair.kept[l], n.mkUpto[l])
			for c := range n.c {
				n.c[c].at[l] -= min(n.c[c].at[l], n.mkUpto[l])
			}
			n.rest[l] = min(n.rest[l], uint8(qlen(&n.win[l]))) // slice-covers-the-ring removes entries that the replay has not queued
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

// listable returns the connections whose requests the next barrier may complete: it covers all
// that came before them.
func (m *m1) listable() (set uint8) {
	if !m.cfg.slices || m.s0.own && m.mut("slice-completes-flush") {
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
