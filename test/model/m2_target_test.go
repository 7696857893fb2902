package model

import "fmt"

// underWay finishes what the adapter, or a barrier, has under way on connection i.
func (x *m2) underWay(i int) {
	s0, emit := x.s0, x.emit
	c0 := &s0.c[i]
	if c0.job != 0 { // the adapter's operation finishes
		n := s0
		n.cache = c0.job
		n.c[i].job = 0
		if c0.ten != s0.tenure {
			n.bad = 4
		}
		emit(fmt.Sprintf("target: v%d (on c%d) reaches memory", c0.job, i), false, n)
	}
	if c0.barw != 0 {
		if c0.tgt == 2 && c0.rep == 0 && (!s0.doubt || x.mut("barrier-ignores-doubt")) {
			n := s0
			if c0.barw == 2 {
				n.dur = n.cache
			}
			n.c[i].barw = 0
			n.c[i].rep = rAck << 4
			emit(fmt.Sprintf("target: barrier of c%d flushed, acknowledged", i), false, n)
		}
		if c0.tgt == 3 && !s0.doubt {
			n := s0
			n.c[i].barw = 0
			emit(fmt.Sprintf("target: barrier goroutine of destroyed c%d ends", i), false, n)
		}
	}
}

// refuse answers connection i with the persisted epoch.
func (x *m2) refuse(n m2state, i int) {
	emit := x.emit
	if n.c[i].rep == 0 {
		n.c[i].rep = rRefused<<4 | n.epoch
		if n.lock == uint8(i+1) {
			n.lock = 0
		}
		n.c[i].gpc = 0
		emit(fmt.Sprintf("target: refuses c%d", i), false, n)
	}
}

// granted reports whether RESUME with epoch arg on connection i may be granted.
func (x *m2) granted(i int, arg uint8) bool {
	s0, c0 := &x.s0, &x.s0.c[i]
	if x.mut("no-owner-check") {
		return arg <= s0.epoch
	}
	return s0.owner == c0.proc && arg <= s0.epoch && (!x.cfg.fixSince || arg >= s0.since)
}

// message takes the next message of connection i.
func (x *m2) message(i int) {
	s0, emit := x.s0, x.emit
	c0 := &s0.c[i]
	if m := c0.q[0]; m != 0 && c0.job == 0 && c0.gpc == 0 {
		n := s0
		c := &n.c[i]
		pop(c)
		switch m >> 4 {
		case mOpen:
			c.arg = m & 15
			if x.cfg.fixCAS && c.arg != s0.epoch {
				x.refuse(n, i)
				break
			}
			c.gpc, c.gk = 1, mOpen
			emit(fmt.Sprintf("target: OPEN of %s from c%d, lease check passed (free or takeover)", processes[c0.proc], i), false, n)
		case mResume:
			c.arg = m & 15
			if x.granted(i, m&15) {
				c.gpc, c.gk = 1, mResume
				emit(fmt.Sprintf("target: RESUME of %s from c%d, first check passed", processes[c0.proc], i), false, n)
			} else {
				x.refuse(n, i)
			}
		case mW:
			if c0.tgt == 1 && x.mut("same-key") {
				c.job = m & 15
				emit(fmt.Sprintf("target: Write v%d on c%d accepted (its key is still good)", m&15, i), false, n)
			}
			if c0.tgt == 1 && !x.mut("same-key") {
				emit(fmt.Sprintf("target: Write on c%d refused", i), false, n)
			}
			if c0.tgt == 2 {
				if s0.sess == uint8(i+1) || x.mut("no-destroy-same-key") {
					c.job = m & 15
					emit(fmt.Sprintf("target: Write v%d on c%d accepted", m&15, i), false, n)
				} else {
					c.tgt = 3
					emit(fmt.Sprintf("target: Write on c%d refused by its key", i), false, n)
				}
			}
		case mBar:
			if c0.tgt == 2 && c0.barw == 0 {
				c.barw = 1 + m&15
				emit(fmt.Sprintf("target: barrier received on c%d", i), false, n)
			}
		case mRead:
			if c0.tgt == 2 && c0.rep == 0 {
				c.rep = rVal<<4 | s0.cache
				emit(fmt.Sprintf("target: Read on c%d", i), false, n)
			}
		case mClose:
			if c0.tgt == 2 && c0.rep == 0 && s0.lock == 0 {
				n.clean = !n.doubt || x.mut("close-clears-doubt")
				if x.mut("close-clears-doubt") {
					n.doubt = false
				}
				n.sess = 0
				c.tgt, c.barw = 3, 0
				n.p[c0.proc].atclose = n.cache
				c.rep = rClosed << 4
				emit(fmt.Sprintf("target: CLOSE on c%d", i), false, n)
			}
		}
	}
}

// grant takes the steps of a grant on connection i.
func (x *m2) grant(i int) {
	s0, emit := x.s0, x.emit
	c0 := &s0.c[i]
	switch c0.gpc {
	case 1:
		if s0.lock == 0 {
			n := s0
			n.lock = uint8(i + 1)
			n.c[i].gpc = 2
			emit(fmt.Sprintf("target: grant c%d takes the lock", i), false, n)
		}
	case 2:
		n := s0
		if !x.mut("no-recheck") && (c0.gk == mResume && !x.granted(i, c0.arg) || c0.gk == mOpen && x.cfg.fixCAS && c0.arg != s0.epoch) {
			x.refuse(n, i)
			break
		}
		if j := int(n.sess) - 1; j >= 0 && j != i {
			if !x.mut("no-destroy") && !x.mut("no-destroy-same-key") {
				n.c[j].tgt = 3
				if x.cfg.fixCancel {
					n.c[j].barw = 0
				}
			}
		}
		n.sess = 0
		n.c[i].gpc = 4
		emit(fmt.Sprintf("target: grant c%d checks again, destroys the old queue pairs", i), false, n)
	case 4, 7:
		x.persist(i)
	case 6:
		x.register(i)
	}
}

// persist waits for the old session's work, then makes the new epoch and owner durable.
func (x *m2) persist(i int) {
	s0, emit := x.s0, x.emit
	c0 := &s0.c[i]
	if c0.gpc == 4 {
		ok := true
		for j := range s0.c {
			if j != i && s0.c[j].used && s0.c[j].tgt == 3 && (s0.c[j].job != 0 || s0.c[j].barw != 0) {
				ok = false
			}
		}
		if !ok && !x.mut("no-join") {
			return
		}
	}
	if c0.gpc == 4 && x.mut("reply-before-persist") {
		n := s0
		n.c[i].gpc = 6
		emit("target: (persist postponed)", false, n)
		return
	}
	n := s0
	changed := c0.gk == mOpen && n.owner != c0.proc
	n.epoch++
	n.owner = c0.proc
	if changed {
		if !x.mut("reply-before-persist") {
			n.tenure++
		}
		n.since = n.epoch
		if !n.clean && !x.mut("no-doubt") {
			n.doubt = true
			if x.cfg.fixRestart {
				n.dfl = 0
			}
		}
	}
	if x.mut("resume-clears-doubt") && c0.gk == mResume {
		n.doubt = false
	}
	n.clean = false
	n.c[i].gpc = 6
	if c0.gpc == 7 {
		n.c[i].gpc = 0
		n.lock = 0
	}
	emit(fmt.Sprintf("target: grant c%d joined the old session, persists epoch %d owner %s doubt %v", i, n.epoch, processes[n.owner], n.doubt), false, n)
}

// register gives the new session its key and answers.
func (x *m2) register(i int) {
	s0, emit := x.s0, x.emit
	c0 := &s0.c[i]
	if c0.rep != 0 {
		return
	}
	n := s0
	e := n.epoch
	if x.mut("reply-before-persist") {
		e++
		if c0.gk == mOpen && n.owner != c0.proc {
			n.tenure++
		}
		n.c[i].gpc = 7
	} else {
		n.lock = 0
		n.c[i].gpc = 0
	}
	n.sess = uint8(i + 1)
	n.c[i].tgt = 2
	if p := &n.p[c0.proc]; c0.gk == mOpen && !p.cont {
		p.atclose = n.cache
	}
	n.c[i].oten, n.c[i].ecid, n.c[i].edoubt = n.tenure, n.cid, n.doubt
	if n.doubt && n.dfl == 0 {
		n.dfl = 1
	}
	n.c[i].rep = rOpened<<4 | e
	emit(fmt.Sprintf("target: grant c%d registers a fresh key, replies", i), false, n)
}

// wholeFlush flushes the whole extent, which settles doubt.
func (x *m2) wholeFlush() {
	s0, emit := x.s0, x.emit
	if s0.dfl == 1 {
		n := s0
		n.dur = n.cache
		n.dfl = 2
		emit("target: whole-extent flush has passed the block", false, n)
	}
	if s0.dfl == 2 && x.mut("superblock-outside-lock") {
		n := s0
		n.dfl, n.snapE, n.snapO = 3, n.epoch, n.owner
		emit("target: whole-extent flush ends, reads the superblock", false, n)
	} else if s0.dfl == 3 {
		n := s0
		n.dfl, n.doubt, n.epoch, n.owner = 0, false, n.snapE, n.snapO
		emit("target: writes the superblock without doubt", false, n)
	} else if s0.dfl == 2 && s0.lock == 0 {
		n := s0
		n.dfl = 0
		n.doubt = false
		emit("target: whole-extent flush ends, doubt cleared", false, n)
	}
}

// crash ends the target's process, or its power.
func (x *m2) crash() {
	s0, emit := x.s0, x.emit
	if s0.crashes > 0 {
		for _, power := range []bool{true, false} {
			n := s0
			n.crashes--
			for i := range n.c {
				if c := &n.c[i]; c.used {
					c.tgt, c.rep, c.gpc, c.job, c.barw = 3, 0, 0, 0, 0
					c.q = [3]uint8{}
				}
			}
			n.lock, n.sess, n.dfl = 0, 0, 0
			if power {
				if x.cfg.fixContents && n.doubt {
					n.cid++
				}
				n.cache = n.dur
				emit(fmt.Sprintf("target: POWER LOSS, memory is v%d again; restart", n.dur), true, n)
			} else {
				emit("target: daemon killed, restarted", true, n)
			}
		}
	}
}
