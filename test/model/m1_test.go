package model

import "fmt"

// M1 is the data path of one session. It has two lanes: blocks 0 and 1 lie on lane 0, block 2
// on lane 1. Two clients write, zero, read and flush. The target runs zeroes beside the lane. A
// connection can be lost, the initiator killed and its window adopted, the target can lose
// power, a cache can evict a line at any time, and a sync can fail. A value is its place in the
// order of the writes to its block; 7 is garbage.

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
	cpu                     bool  // two: only the target's CPU says when it is done
	upto                    [2]uint8
}

// An m1conn is a client. pc is 1 if its second piece is missing, 2 if its FUA waits, 3 if its
// FLUSH waits, 4 if its READ waits, 5 if its write is only half published, 6 if its number is
// drawn.
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
	pair                                    m1pair
}

// An m1cfg says how many of each request and fault there may be, and which rule is dropped.
type m1cfg struct {
	nW, nZ, nF, nR, n2, nLoss, nPow, nKill, nEv, nErr uint8
	blocks                                            []uint8
	apm                                               bool  // a barrier is an RDMA Read; the target makes a zero durable before it acknowledges it
	slices                                            bool  // a replay goes in slices of one entry for each lane, and one barrier is in flight at most
	two                                               bool  // with slices: two barriers may be in flight
	sync                                              int   // two: which barriers the target's syncer makes durable
	nWant                                             uint8 // two: barriers for the window's sake
	doubt                                             bool  // two: the session begins in doubt
	mut                                               string
}

// An m1 visits the successors of state s0.
type m1 struct {
	cfg  m1cfg
	s0   m1state
	emit emitFn[m1state]
}

func m1model(cfg m1cfg) model[m1state] {
	init := m1state{pair: newPair(&cfg), nW: cfg.nW, nZ: cfg.nZ, nF: cfg.nF, nR: cfg.nR, n2: cfg.n2, nLoss: cfg.nLoss, nPow: cfg.nPow, nKill: cfg.nKill, nEv: cfg.nEv, nErr: cfg.nErr}
	if cfg.doubt {
		init.ord[0], init.cache[0] = 1, 1
	}
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

// post hands queued ops to the wire. That is local to the initiator, so it comes before
// everything else (a partial-order reduction). The target may still take its time.
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

// next visits the successors of the state.
func (m *m1) next() {
	if m.post() {
		return
	}
	m.clients()
	m.want()
	m.commit()
	m.acks()
	m.retire()
	m.recovery()
	m.target()
	m.syncer()
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

// sent returns how many uncovered entries of lane l are in the queue, or were.
func sent(s *m1state, l int) int { return qlen(&s.win[l]) - int(s.rest[l]) }

// blocks returns the blocks that entries write.
func blocks(entries []uint8) (set uint8) {
	for _, e := range entries {
		if e != 0 {
			set |= 1 << (e >> 3 & 3)
		}
	}
	return set
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
