package main

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// blockSize is what every measured request carries, in bytes: the unit of
// filesystems' journals and databases' logs.
const blockSize = 4096

// A command is what one request asks for.
type command uint8

const (
	cmdWrite command = iota
	cmdRead
	cmdFlush
)

// A request is one command of a slot. A slot has one request outstanding at
// most, and its reply names it.
type request struct {
	cmd  command
	slot int
	off  int64
	len  int
}

// A conn is one way to a target: a connection, or an open file.
type conn interface {
	// send hands over requests, in order.
	send([]request) error
	// recv waits for the next reply. A reply that reports an error is an error.
	recv() (slot int, err error)
	// buffered reports whether another reply is there already.
	buffered() bool
	// bound makes a recv that waits beyond the time given fail.
	bound(time.Time) error
	Close() error
}

// A workload is a sequence of commands that is measured as one operation, each
// sent when the one before it was answered.
type workload struct {
	name string
	cmds []command
}

var workloads = []workload{
	{"write", []command{cmdWrite}},
	{"read", []command{cmdRead}},
	{"write+flush", []command{cmdWrite, cmdFlush}},
}

// A load is one connection's part of a cell of the table.
type load struct {
	conn  conn
	work  workload
	depth int
	// area is the run of bytes that requests fall into, whole blocks.
	area extent
	rng  *rand.Rand
}

type extent struct{ off, len int64 }

// A slot is one of the depth sequences that a load keeps going.
type slot struct {
	step  int // in workload.cmds
	off   int64
	began time.Time
}

// patience is how long a target may keep us waiting at the end of a run.
const patience = 30 * time.Second

// drive keeps depth operations going for warm + measured, and returns how long
// each took that began and ended in the measured time, appended to samples.
func (l *load) drive(warm, measured time.Duration, samples []time.Duration) ([]time.Duration, error) {
	begin := time.Now()
	from := begin.Add(warm)
	until := from.Add(measured)
	if err := l.conn.bound(until.Add(patience)); err != nil {
		return samples, err
	}
	slots := make([]slot, l.depth)
	batch := make([]request, 0, l.depth)
	for i := range slots {
		batch = append(batch, l.start(i, &slots[i], begin))
	}
	for running := l.depth; running > 0; {
		// What replies that came together give rise to goes out together.
		if len(batch) > 0 && !l.conn.buffered() {
			if err := l.conn.send(batch); err != nil {
				return samples, err
			}
			batch = batch[:0]
		}
		i, err := l.conn.recv()
		if err != nil {
			return samples, err
		}
		if i < 0 || i >= l.depth {
			return samples, fmt.Errorf("a reply to a request that was never sent")
		}
		now := time.Now()
		s := &slots[i]
		s.step++
		switch {
		case s.step < len(l.work.cmds):
			batch = append(batch, l.request(i, s))
		case now.Before(until):
			if !s.began.Before(from) {
				samples = append(samples, now.Sub(s.began))
			}
			batch = append(batch, l.start(i, s, now))
		default:
			running--
		}
	}
	return samples, nil
}

func (l *load) start(i int, s *slot, now time.Time) request {
	blocks := l.area.len / blockSize
	*s = slot{off: l.area.off + l.rng.Int64N(blocks)*blockSize, began: now}
	return l.request(i, s)
}

func (l *load) request(i int, s *slot) request {
	r := request{cmd: l.work.cmds[s.step], slot: i}
	if r.cmd != cmdFlush {
		r.off, r.len = s.off, blockSize
	}
	return r
}

// flush makes durable what was written, so that the next cell does not pay for
// this one.
func flush(c conn) error {
	return once(c, request{cmd: cmdFlush})
}

// fillSize is how much one request of fill carries, in bytes: every server
// takes it.
const fillSize = 256 << 10

// fill writes all of area once, so that no cell measures the first touch of
// memory or the allocation of disk blocks.
func fill(c conn, area extent) error {
	for done := int64(0); done < area.len; {
		n := min(area.len-done, fillSize)
		if err := once(c, request{cmd: cmdWrite, off: area.off + done, len: int(n)}); err != nil {
			return err
		}
		done += n
	}
	return flush(c)
}

func once(c conn, r request) error {
	if err := c.bound(time.Now().Add(patience)); err != nil {
		return err
	}
	if err := c.send([]request{r}); err != nil {
		return err
	}
	_, err := c.recv()
	return err
}
