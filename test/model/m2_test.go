package model

import (
	"fmt"
	"math/bits"
)

// M2 is sessions and owners: one block, one lane, processes A, A2 (on A's host after a boot, with a
// new nonce) and B. Messages on up to four connections arrive at any later time while their queue
// pair lives. A grant goes in steps, and several are under way at once. A value is its place in
// the order of all writes. Takeover and the end of a lease may come at any time: safety must not
// depend on timers.

const nc = 4 // connection slots; a slot is used again when nothing of it is left

// Messages to the target, and its answers: kind<<4 | argument.
const (
	mOpen, mResume, mW, mBar, mRead, mClose = 1, 2, 3, 4, 5, 6
	rOpened, rRefused, rAck, rVal, rClosed  = 1, 2, 3, 4, 5
)

// What a process is doing.
const (
	pDead, pDisc, pWait, pRun, pEIO, pExit, pClosing = 0, 1, 2, 3, 4, 5, 6
)

var processes = [3]string{"A", "A2(new nonce)", "B"}

type m2conn struct {
	used, ini, edoubt            bool  // ini: the initiator still uses it
	proc, tgt                    uint8 // tgt: 1 connected, 2 member of a session, 3 destroyed
	q                            [3]uint8
	rep, gpc, gk, arg, barw, job uint8
	ten, oten, ecid              uint8
}

type m2proc struct {
	pc, epoch, todo, win, bar, bmask, fl, rd uint8
	fsnap, rsnap, lb, ten, cid               uint8
	rb, started, doubt, resumed, cont        bool
	own, atclose                             uint8
	conn                                     uint8
}

type m2state struct {
	c                                            [nc]m2conn
	p                                            [3]m2proc
	cache, dur, fl, nextv, tenure                uint8
	epoch, owner, since, cid, dfl, lock, sess    uint8
	clean, doubt                                 bool
	snapE, snapO                                 uint8
	drops, crashes, reboots, flushes, reads, bad uint8
	closes, started, restarts                    uint8
}

// An m2cfg says how many of each request and fault there may be, which rules are in, and which one
// is dropped.
type m2cfg struct {
	drops, crashes, reboots, flushes, reads, closes, maxv, procs, restarts uint8

	fixCAS      bool // OPEN names the epoch that it expects (F1, F6)
	fixSince    bool // the superblock keeps the epoch in which the owner became owner (F1; the product does not)
	fixRestart  bool // a grant to a new owner restarts the flush of the whole extent (F2)
	fixShort    bool // a FLUSH with nothing dirty needs a barrier after inherited doubt (F3)
	fixContents bool // the contents id changes with a boot in doubt (F4)
	fixCancel   bool // destroying a session wakes what only waits (F5)
	mut         string
}

// An m2 visits the successors of state s0.
type m2 struct {
	cfg  m2cfg
	s0   m2state
	emit emitFn[m2state]
}

func m2model(cfg m2cfg) model[m2state] {
	init := m2state{nextv: 1, owner: 9, clean: true, drops: cfg.drops, crashes: cfg.crashes, reboots: cfg.reboots,
		flushes: cfg.flushes, reads: cfg.reads, closes: cfg.closes, restarts: cfg.restarts}
	init.p[0].pc = pDisc
	succ := func(s m2state, emit emitFn[m2state]) {
		x := m2{cfg, s, func(l string, f bool, n m2state) { normalize(&n); emit(l, f, n) }}
		x.next()
	}
	return model[m2state]{init, succ, m2bad, m2goal}
}

// mut reports whether the rule called name is dropped.
func (x *m2) mut(name string) bool { return x.cfg.mut == name }

// push gives c a message; it reports false if c carries as many as it can.
func push(c *m2conn, m uint8) bool {
	for i := range c.q {
		if c.q[i] == 0 {
			c.q[i] = m
			return true
		}
	}
	return false
}

func pop(c *m2conn) { copy(c.q[:], c.q[1:]); c.q[len(c.q)-1] = 0 }

// lose: the initiator gives its connection up.
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

// normalize makes states equal that differ in nothing that matters.
func normalize(s *m2state) {
	for i := range s.c {
		c := &s.c[i]
		if !c.used {
			continue
		}
		if c.tgt == 3 {
			c.q = [3]uint8{}
		}
		if !c.ini {
			c.rep = 0
			if c.q[0] == 0 && c.gpc == 0 && c.job == 0 && c.barw == 0 && s.sess != uint8(i+1) {
				*c = m2conn{}
			}
		}
	}
	for k := range s.p {
		p := &s.p[k]
		if p.fl == 0 {
			p.fsnap = 0
		}
		if p.rd == 0 {
			p.rsnap = 0
		}
	}
}

// post hands to the wire what an initiator has queued. That is local to it, so it comes
// before everything else (a partial-order reduction); the target may still take its time.
func (x *m2) post() bool {
	s0, emit := x.s0, x.emit
	posted := false // posting is local and always before everything else: a partial-order reduction, the target may still take its time
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
				post(nm+": FLUSH answered at once: nothing dirty, no barrier in flight (§3.7)", n)
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

// connect makes a connection, and sends OPEN or RESUME.
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

// trouble is the end of a connection, of the process, or of its host.
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
				lab += ", FLUSH answered"
			}
		case rVal:
			lab = fmt.Sprintf("READ answered: v%d", arg)
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

// underWay ends what the adapter, or a barrier, has under way on connection i.
func (x *m2) underWay(i int) {
	s0, emit := x.s0, x.emit
	c0 := &s0.c[i]
	if c0.job != 0 { // the adapter's operation ends
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

// grant is a grant of a session on connection i, step by step.
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

// persist joins the old session, then makes the new epoch and owner durable.
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

// register gives the new session its key, and answers.
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

// wholeFlush is the flush of the whole extent, which settles doubt.
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

// crash is the end of the target's process, or of its power.
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

// next visits the successors of the state.
func (x *m2) next() {
	if x.post() {
		return
	}
	for k := range x.s0.p {
		x.process(k)
	}
	for i := range x.s0.c {
		if x.s0.c[i].used {
			x.underWay(i)
			x.message(i)
			x.grant(i)
		}
	}
	x.wholeFlush()
	x.crash()
}

func m2bad(s *m2state) string {
	switch {
	case s.bad == 2:
		return "(2,3) a READ returned a value older than one acknowledged or read before"
	case s.bad == 4:
		return "(4) a former owner's write landed in another owner's session"
	case s.bad == 5:
		return "(2,4) another owner wrote under a client whose device never died"
	case s.dur < s.fl && s.cache < s.fl:
		return "(1,5) what a successful FLUSH covered is lost"
	case s.dur < s.fl:
		return "(1,5) what a successful FLUSH covered is not durable"
	}
	return ""
}

func m2goal(s *m2state) bool {
	full := true
	for i := range s.c {
		full = full && s.c[i].used
	}
	for k := range s.p {
		p := &s.p[k]
		if p.fl != 0 || p.rd != 0 || p.rb || p.bar != 0 || p.todo != 0 || p.pc == pWait || p.pc == pClosing || p.pc == pDisc && !full {
			return false
		}
	}
	return true
}
