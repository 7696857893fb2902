package model

import (
	"fmt"
	"math/bits"
)

// lose makes process k's initiator give its connection up.
func lose(s *m2state, k int) {
	p := &s.p[k]
	s.c[p.conn].ini = false
	p.todo, p.bar, p.bmask = 0, 0, 0
	if p.fl == 2 {
		p.fl = 1
	}
	if p.rd == 2 {
		p.rd = 1
	}
	p.conn = 0
	if p.pc == pClosing {
		p.pc = pExit
	} else {
		p.pc = pDisc
	}
}

// post hands to the wire what an initiator has queued. That is local to the initiator, so it
// comes before everything else (a partial-order reduction). The target may still take its time.
func (x *m2) post() bool {
	s0, emit := x.s0, x.emit
	posted := false
	for k := 0; k < 3 && !posted; k++ {
		p0 := &s0.p[k]
		if p0.pc != pRun {
			continue
		}
		nm := processes[k]
		post := func(l string, n m2state) { posted = true; emit(l, false, n) }
		if x.mut("read-before-replay") && p0.rd == 1 {
			n := s0
			if push(&n.c[p0.conn], mRead<<4) {
				n.p[k].rd = 2
				post(nm+": posts RDMA Read before the replay", n)
			}
		}
		if !posted && p0.todo != 0 {
			n := s0
			p := &n.p[k]
			for v := uint8(1); v < 8; v++ {
				if p.todo&(1<<v) != 0 {
					if push(&n.c[p.conn], mW<<4|v) {
						p.todo &^= 1 << v
						post(fmt.Sprintf("%s: posts Write v%d on c%d", nm, v, p.conn), n)
					}
					break
				}
			}
		}
		if !posted && p0.todo == 0 && p0.bar == 0 && (p0.fl == 1 || p0.rb) {
			n := s0
			p := &n.p[k]
			if p.win == 0 && !p.rb && (!p.doubt || !x.cfg.fixShort) {
				n.fl = max(n.fl, p.fsnap)
				p.fl = 0
				post(nm+": FLUSH completes at once: nothing dirty, no barrier in flight (§3.7)", n)
			} else {
				r := uint8(0)
				if p.win != 0 {
					r = 1
				}
				if push(&n.c[p.conn], mBar<<4|r) {
					p.bar, p.bmask = 1, p.win
					if p.fl == 1 {
						p.fl = 2
					}
					post(fmt.Sprintf("%s: posts barrier on c%d", nm, p.conn), n)
				}
			}
		}
		if !posted && p0.rd == 1 && (p0.todo == 0 && !p0.rb || x.mut("read-before-replay")) {
			n := s0
			if push(&n.c[p0.conn], mRead<<4) {
				n.p[k].rd = 2
				post(nm+": posts RDMA Read", n)
			}
		}
	}
	return posted
}

// process lets process k take its next step.
func (x *m2) process(k int) {
	s0, emit := x.s0, x.emit
	p0, nm := &s0.p[k], processes[k]
	if p0.pc == pDead && !p0.started && k < int(x.cfg.procs) && s0.started&(1<<k) == 0 && (k == 2 || k == 1 && s0.p[0].pc == pDead) {
		n := s0
		n.p[k].pc = pDisc
		n.started |= 1 << k
		emit(nm+" starts", true, n)
	}
	if k == 0 && p0.pc == pExit && s0.restarts > 0 {
		n := s0
		n.restarts--
		p := &n.p[k]
		p.pc, p.started, p.cont = pDisc, false, true
		if !x.cfg.fixCAS {
			p.epoch = 0
		}
		emit(nm+": next pmnbd starts, window file drained, the kernel's device is still there", true, n)
	}
	if p0.pc == pDead || p0.pc == pEIO || p0.pc == pExit {
		return
	}
	alive := p0.started && p0.pc != pClosing
	if alive && s0.nextv <= x.cfg.maxv {
		n := s0
		p := &n.p[k]
		v := n.nextv
		n.nextv++
		p.win |= 1 << v
		p.own |= 1 << v
		if p.pc == pRun {
			p.todo |= 1 << v
		}
		p.lb = v
		emit(fmt.Sprintf("%s: WRITE v%d acknowledged early", nm, v), true, n)
	}
	if alive && p0.fl == 0 && s0.flushes > 0 {
		n := s0
		n.p[k].fl, n.p[k].fsnap = 1, p0.lb
		n.flushes--
		emit(fmt.Sprintf("%s: FLUSH received (client knows v%d)", nm, p0.lb), true, n)
	}
	if alive && p0.rd == 0 && s0.reads > 0 {
		n := s0
		n.p[k].rd, n.p[k].rsnap = 1, p0.lb
		n.reads--
		emit(nm+": READ received", true, n)
	}
	if p0.pc == pDisc {
		x.connect(k)
		return
	}
	x.trouble(k)
	x.receive(k)
	x.closeSession(k)
}

// connect makes a connection and sends OPEN or RESUME.
func (x *m2) connect(k int) {
	s0, emit := x.s0, x.emit
	p0, nm := &s0.p[k], processes[k]
	for i := 0; i < nc; i++ {
		if s0.c[i].used {
			continue
		}
		n := s0
		m := uint8(mOpen<<4) | p0.epoch
		if p0.started {
			m = mResume<<4 | p0.epoch
		}
		n.c[i] = m2conn{used: true, ini: true, proc: uint8(k), tgt: 1}
		push(&n.c[i], m)
		if x.mut("same-key") && m>>4 == mResume && p0.win != 0 {
			push(&n.c[i], mW<<4|uint8(bits.TrailingZeros8(p0.win)))
			n.c[i].ten = p0.ten
		}
		n.p[k].conn, n.p[k].pc = uint8(i), pWait
		n.p[k].resumed = p0.started
		if m>>4 == mOpen {
			emit(fmt.Sprintf("%s: connects (c%d), sends OPEN (last saw epoch %d)", nm, i, p0.epoch), false, n)
		} else {
			emit(fmt.Sprintf("%s: connects (c%d), sends RESUME(epoch %d)", nm, i, p0.epoch), false, n)
		}
		break
	}
}

// trouble ends a connection, the process, or its host.
func (x *m2) trouble(k int) {
	s0, emit := x.s0, x.emit
	p0, nm := &s0.p[k], processes[k]
	c0 := &s0.c[p0.conn]
	if c0.tgt == 3 && c0.rep == 0 {
		n := s0
		lose(&n, k)
		emit(fmt.Sprintf("%s: notices that c%d is gone", nm, p0.conn), false, n)
	}
	if s0.drops > 0 {
		n := s0
		n.drops--
		lose(&n, k)
		emit(fmt.Sprintf("%s: c%d lost or process killed and restarted with its file (what c%d carries may still arrive)", nm, p0.conn, p0.conn), true, n)
		if x.mut("no-adopt") && p0.pc == pRun && k == 0 {
			n.p[k].win = 0
			emit(nm+": killed; the next run ignores the window file", true, n)
		}
	}
	if s0.reboots > 0 {
		n := s0
		n.reboots--
		lose(&n, k)
		n.p[k] = m2proc{pc: pDead}
		n.started |= 1 << k
		emit(nm+": host reboots (window lost, client died)", true, n)
	}
}

// receive takes an answer of the target.
func (x *m2) receive(k int) {
	s0, emit := x.s0, x.emit
	p0, nm := &s0.p[k], processes[k]
	c0 := &s0.c[p0.conn]
	if c0.rep != 0 {
		n := s0
		p, c := &n.p[k], &n.c[p0.conn]
		kind, arg := c.rep>>4, c.rep&15
		c.rep = 0
		lab := ""
		switch kind {
		case rOpened:
			lab = fmt.Sprintf("OPENED(epoch %d)", arg)
			if p.resumed && x.cfg.fixContents && p.cid != c.ecid {
				p.pc, p.fl, p.rd, p.win = pEIO, 0, 0, 0
				c.ini = false
				lab += ", contents id changed: sticky EIO"
				break
			}
			p.pc, p.epoch, p.cid = pRun, arg, c.ecid
			p.doubt = c.edoubt
			if !p.resumed {
				p.ten, p.started = c.oten, true
				if !p.cont {
					p.lb = n.fl
				}
			}
			p.todo = p.win
			p.rb = p.win != 0
			if x.mut("no-replay") {
				p.todo, p.rb = 0, false
			}
			c.ten = p.ten
		case rRefused:
			if !p.started && !p.cont {
				lab = fmt.Sprintf("REFUSED, epoch is %d", arg)
				lose(&n, k)
				p.epoch = arg
				break
			}
			lab = "REFUSED: sticky EIO"
			p.pc, p.fl, p.rd, p.win = pEIO, 0, 0, 0
			p.rb = false
			c.ini = false
		case rAck:
			lab = "barrier ACK"
			p.win &^= p.bmask
			p.bar, p.bmask, p.rb, p.doubt = 0, 0, false, false
			if p.fl == 2 {
				n.fl = max(n.fl, p.fsnap)
				p.fl = 0
				lab += ", FLUSH completes"
			}
		case rVal:
			lab = fmt.Sprintf("READ completes: v%d", arg)
			if arg < p.rsnap {
				n.bad = 2
			}
			if p.cont && arg > p.rsnap && arg > p.atclose && p.own&(1<<arg) == 0 {
				n.bad = 5
			}
			p.lb = max(p.lb, arg)
			p.rd = 0
		case rClosed:
			lab = "CLOSED, exits"
			p.pc = pExit
			c.ini = false
		}
		emit(nm+": "+lab, false, n)
	}
}

// closeSession sends CLOSE.
func (x *m2) closeSession(k int) {
	s0, emit := x.s0, x.emit
	p0, nm := &s0.p[k], processes[k]
	if p0.pc != pRun {
		return
	}
	if s0.closes > 0 && (!p0.doubt || x.cfg.restarts == 0) && p0.todo == 0 && p0.win == 0 && !p0.rb && p0.bar == 0 && p0.fl == 0 && p0.rd == 0 {
		n := s0
		if push(&n.c[p0.conn], mClose<<4) {
			n.closes--
			n.p[k].pc = pClosing
			emit(nm+": sends CLOSE", true, n)
		}
	}
}
