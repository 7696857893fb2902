package model

import "fmt"

// enqueue fixes the place of a write of block b. Under the lane's mutex its entry becomes valid
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

// room reports whether another write of block b fits the bounds of the model.
func room(s *m1state, b uint8) bool {
	l := lane(b)
	return s.ord[b] < 6 && qlen(&s.win[l]) < 5 && qlen(&s.hq[l]) < 4
}

// complete completes the FLUSHes and FUA writes in wait. From now on the writes before them are
// promised to be durable.
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

// requests are what a connection without a request may send.
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

// unfinished does the second half of a write that a mutant tears in two.
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

// position notes which entries connection c's request came after.
func (m *m1) position(s *m1state, c int) {
	if m.cfg.slices {
		s.c[c].at = [2]uint8{uint8(qlen(&s.win[0])), uint8(qlen(&s.win[1]))}
	}
}

// queueReads queues each READ for which everything before it is in its lane's queue.
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
