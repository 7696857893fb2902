package model

// M2 is sessions and owners. It has one block, one lane, and processes A, A2 (on A's host after
// a boot, with a new nonce) and B. Messages on up to four connections arrive at any later time
// while their queue pair lives. A grant goes in steps, and several can be under way at once. A
// value is its place in the order of all writes. Takeover and the end of a lease can come at
// any time, because safety must not depend on timers.

const nc = 4 // connection slots; a slot is free again when nothing of its connection is left

// Messages to the target, and its answers, as kind<<4 | argument.
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

// push gives c a message. It reports false if c is full.
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

// normalize makes states equal that differ only in what does not matter.
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
