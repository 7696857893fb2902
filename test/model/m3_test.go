package model

import "fmt"

// M3 is NBD connections. A client writes v1, v2, … to one range on two lanes. It closes
// connections, opens others, and sends a write that has no reply again. On no lane may an older
// value follow a newer one.

const m3conns = 3

type m3conn struct {
	st    uint8 // 0 not opened, 1 accepted, 2 in transmission, 3 reader gone
	hung  bool
	sock  uint8 // request in the socket's buffer
	pc    uint8 // 0 reads, 1 parsed, 2 lane 0 enqueued, 3 both enqueued; mutants: 5, 6 polled outside the mutex
	v     uint8
	skip  bool
	alone bool // the export's only connection since it entered, or since a poll that found it alone and not hung up
}

type m3state struct {
	c             [m3conns]m3conn
	last          [2]uint8
	cur, on, maxv uint8 // the client's outstanding write, the connection it went to (+1)
	bad           bool
}

// An m3 visits the successors of state s0. With exact, a reader may skip its poll only while
// its connection is alone; without, while the export has one connection (F7). mut names the
// rule that is dropped.
type m3 struct {
	exact bool
	mut   string
	s0    m3state
	emit  emitFn[m3state]
	count int // connections in transmission
}

func m3model(maxv uint8, exact bool, mut string) model[m3state] {
	succ := func(s m3state, emit emitFn[m3state]) {
		x := m3{exact: exact, mut: mut, s0: s, emit: emit}
		for i := range s.c {
			if s.c[i].st == 2 {
				x.count++
			}
		}
		for i := range s.c {
			x.client(i)
			if s.c[i].st == 2 {
				x.send(i)
				x.reader(i)
			}
		}
	}
	bad := func(s *m3state) string {
		if s.bad {
			return "(3) a stale write was enqueued behind a newer one"
		}
		return ""
	}
	goal := func(s *m3state) bool {
		usable := false
		for i := range s.c {
			usable = usable || s.c[i].st != 3 && !s.c[i].hung
		}
		return s.on == 0 || !usable
	}
	return model[m3state]{m3state{maxv: maxv}, succ, bad, goal}
}

// client lets the client open or close connection i.
func (x *m3) client(i int) {
	s0, emit := x.s0, x.emit
	c0 := &s0.c[i]
	if c0.st == 0 && (i == 0 || s0.c[i-1].st != 0) {
		n := s0
		n.c[i].st = 1
		emit(fmt.Sprintf("client opens connection %d", i), false, n)
	}
	hungReaders := false
	for j := range s0.c {
		hungReaders = hungReaders || s0.c[j].st == 2 && s0.c[j].hung
	}
	if c0.st == 1 && (!hungReaders || x.mut == "enters-early") {
		n := s0
		n.c[i].st = 2
		n.c[i].alone = x.count == 0
		for j := range n.c {
			if j != i {
				n.c[j].alone = false
			}
		}
		emit(fmt.Sprintf("connection %d enters transmission", i), false, n)
	}
	if (c0.st == 1 || c0.st == 2) && !c0.hung {
		n := s0
		n.c[i].hung = true
		if c0.st == 1 {
			n.c[i].st = 3
		}
		emit(fmt.Sprintf("client closes connection %d", i), true, n)
	}
}

// send lets the client send a write on connection i: a new one, or one whose connection it has
// closed.
func (x *m3) send(i int) {
	s0, emit := x.s0, x.emit
	if c0 := &s0.c[i]; c0.hung || c0.sock != 0 {
		return
	}
	if s0.on == 0 && s0.cur < s0.maxv {
		n := s0
		n.cur++
		n.on = uint8(i + 1)
		n.c[i].sock = n.cur
		emit(fmt.Sprintf("client sends WRITE v%d on %d", n.cur, i), true, n)
	}
	if s0.on != 0 && s0.c[s0.on-1].hung {
		n := s0
		n.on = uint8(i + 1)
		n.c[i].sock = n.cur
		emit(fmt.Sprintf("client sends WRITE v%d again on %d", n.cur, i), false, n)
	}
}

// reader takes the next step of connection i's reader.
func (x *m3) reader(i int) {
	s0, emit := x.s0, x.emit
	c0 := &s0.c[i]
	n := s0
	switch c0.pc {
	case 0:
		if c0.sock != 0 {
			n.c[i].v, n.c[i].sock, n.c[i].pc = c0.sock, 0, 1
			n.c[i].skip = x.mut == "single-decided-outside-mutex" && c0.alone
			emit(fmt.Sprintf("reader %d parses v%d", i, c0.sock), false, n)
		} else if c0.hung {
			n.c[i] = m3conn{st: 3, hung: true}
			emit(fmt.Sprintf("reader %d ends", i), false, n)
		}
	case 1, 2:
		x.submit(i)
	case 5, 6:
		enqueueOn(&n, i, int(c0.pc-5))
		n.c[i].pc -= 3
		emit(fmt.Sprintf("reader %d enqueues v%d on lane %d", i, c0.v, c0.pc-5), false, n)
	case 3:
		n.c[i].pc, n.c[i].v, n.c[i].skip = 0, 0, false
		if !c0.hung && s0.on == uint8(i+1) {
			n.on = 0
		}
		emit(fmt.Sprintf("reader %d replies to v%d", i, c0.v), false, n)
	}
}

// submit polls for a hang-up, unless it may skip that, and enqueues connection i's write on its
// next lane.
func (x *m3) submit(i int) {
	s0, emit := x.s0, x.emit
	c0 := &s0.c[i]
	l := int(c0.pc - 1)
	poll := x.count > 1
	if x.exact {
		poll = !c0.alone
	}
	switch {
	case x.mut == "single-decided-outside-mutex":
		poll = !c0.skip
	case x.mut == "no-hang-up-check", x.mut == "poll-first-lane-only" && l == 1:
		poll = false
	}
	n := s0
	if poll && c0.hung {
		n.c[i] = m3conn{st: 3, hung: true}
		emit(fmt.Sprintf("reader %d sees the hang-up under the mutex, drops v%d", i, c0.v), false, n)
		return
	}
	if poll && x.count == 1 {
		n.c[i].alone = true
	}
	if x.mut == "poll-outside-mutex" {
		n.c[i].pc = 5 + uint8(l)
		emit(fmt.Sprintf("reader %d polled, no hang-up", i), false, n)
		return
	}
	enqueueOn(&n, i, l)
	n.c[i].pc++
	emit(fmt.Sprintf("reader %d enqueues v%d on lane %d", i, c0.v, l), false, n)
}

// enqueueOn puts connection i's write at the end of lane l's queue.
func enqueueOn(s *m3state, i, l int) {
	v := s.c[i].v
	if v < s.last[l] {
		s.bad = true
	}
	s.last[l] = v
}
