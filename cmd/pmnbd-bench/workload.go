package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// blockSize is the size of a measured request, in bytes, unless its workload has another. It is
// the unit of filesystems' journals and databases' logs.
const blockSize = 4096

// A verb is what one request asks for.
type verb uint8

const (
	cmdWrite verb = iota
	cmdRead
	cmdFlush
	cmdFUA // a write that is answered when it is durable
)

// A request is one verb of a slot. A slot has at most one request in flight, and the reply
// names the slot.
type request struct {
	cmd  verb
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

// A workload is a sequence of verbs that is measured as one operation, each sent when the one
// before it was answered, and how many operations are in flight at a time.
type workload struct {
	name string
	cmds []verb
	// Each of conns connections has depth operations in flight.
	depth, conns int
	// block is the size of a request, in bytes.
	block int
	// sequential means that each operation begins where the one before it ended, not at a
	// random block.
	sequential bool
	// single means that the client sends each request in a system call of its own, even if
	// others are ready.
	single bool
	// ranges, unless 0, is how many WRITEs of separate blocks come before each FLUSH, which is
	// the only one that is measured (ranges.go).
	ranges int
	// beside is the label of a third target of a suite that is measured, too, or "".
	beside string
}

// A suite measures these only where a comparison means something.
const (
	labelFloor  = "floor"   // at depth 1; floor.go says what it is
	labelOneHop = "one-hop" // a server with memory of its own: one that need not ask another process
)

// operations are those that the table has.
var operations = []workload{
	{name: "write", cmds: []verb{cmdWrite}},
	{name: "read", cmds: []verb{cmdRead}},
	{name: "write+flush", cmds: []verb{cmdWrite, cmdFlush}},
}

// maxBlock is the size in bytes of the largest request.
const maxBlock = 32 << 20

// plain returns the operations with one depth, number of connections and size of requests.
func plain(depth, conns, block int) []workload {
	ws := slices.Clone(operations)
	for i := range ws {
		ws[i].depth, ws[i].conns, ws[i].block = depth, conns, block
	}
	return ws
}

// suite returns the workloads of --suite. docs/benchmarks.md says why these.
func suite() []workload {
	var ws []workload
	ops := append(slices.Clone(operations), workload{name: "fua", cmds: []verb{cmdFUA}})
	for _, shape := range []workload{
		{name: "qd1", depth: 1, conns: 1, beside: labelFloor},
		{name: "qd32", depth: 32, conns: 1},
		{name: "qd32 single", depth: 32, conns: 1, single: true},
		{name: "4x16", depth: 16, conns: 4},
		{name: "4x16 single", depth: 16, conns: 4, single: true},
	} {
		for _, op := range ops {
			w := shape
			w.name, w.cmds, w.block = op.name+" "+shape.name, op.cmds, blockSize
			if op.cmds[0] == cmdRead && w.depth == 32 {
				w.beside = labelOneHop
			}
			ws = append(ws, w)
		}
	}
	ws = append(ws, workload{name: "fua 4x4", cmds: []verb{cmdFUA}, depth: 4, conns: 4, block: blockSize})
	for _, op := range []workload{{name: "seqwrite", cmds: []verb{cmdWrite}}, {name: "seqread", cmds: []verb{cmdRead}}} {
		op.depth, op.conns, op.block, op.sequential = 8, 1, 128<<10, true
		ws = append(ws, op)
	}
	return ws
}

// A load is one connection's part of a cell of the table.
type load struct {
	conn conn
	work workload
	// area is the range of the requests, in whole blocks.
	area extent
	rng  *rand.Rand

	next int64 // the next block of a sequential workload, or one with ranges
	done int   // operations that ended, those of the warm-up and the last ones, too
}

type extent struct{ off, len int64 }

// A slot is one of the depth operations that a load has in flight.
type slot struct {
	step  int // in workload.cmds
	off   int64
	began time.Time
}

// patience is how long we wait for replies at the end of a run.
const patience = 30 * time.Second

// drive keeps depth operations in flight for warm + measured. It appends to samples how long
// each operation took that began and ended in the measured time.
func (l *load) drive(warm, measured time.Duration, samples []time.Duration) ([]time.Duration, error) {
	begin := time.Now()
	from := begin.Add(warm)
	until := from.Add(measured)
	if err := l.conn.bound(until.Add(patience)); err != nil {
		return samples, err
	}
	slots := make([]slot, l.work.depth)
	batch := make([]request, 0, l.work.depth)
	for i := range slots {
		batch = append(batch, l.start(i, &slots[i], begin))
	}
	for running := l.work.depth; running > 0; {
		// Requests that follow from replies that came together go out together.
		if len(batch) > 0 && !l.conn.buffered() {
			if err := l.send(batch); err != nil {
				return samples, err
			}
			batch = batch[:0]
		}
		i, err := l.conn.recv()
		if err != nil {
			return samples, err
		}
		if i < 0 || i >= l.work.depth {
			return samples, fmt.Errorf("a reply to a request that was never sent")
		}
		now := time.Now()
		s := &slots[i]
		s.step++
		switch {
		case s.step < len(l.work.cmds):
			batch = append(batch, l.request(i, s))
			continue
		case now.Before(until):
			if !s.began.Before(from) {
				samples = append(samples, now.Sub(s.began))
			}
			batch = append(batch, l.start(i, s, now))
		default:
			running--
		}
		l.done++
	}
	return samples, nil
}

// send hands over a batch as the workload wants it.
func (l *load) send(batch []request) error {
	if !l.work.single {
		return l.conn.send(batch)
	}
	for i := range batch {
		if err := l.conn.send(batch[i : i+1]); err != nil {
			return err
		}
	}
	return nil
}

func (l *load) start(i int, s *slot, now time.Time) request {
	size := int64(l.work.block)
	blocks := l.area.len / size
	block := l.next
	if l.work.sequential {
		l.next = (l.next + 1) % blocks
	} else {
		block = l.rng.Int64N(blocks)
	}
	*s = slot{off: l.area.off + block*size, began: now}
	return l.request(i, s)
}

func (l *load) request(i int, s *slot) request {
	r := request{cmd: l.work.cmds[s.step], slot: i}
	if r.cmd != cmdFlush {
		r.off, r.len = s.off, l.work.block
	}
	return r
}

// flush makes durable what was written, so that the next cell does not pay for this one.
func flush(c conn) error {
	return once(c, request{cmd: cmdFlush})
}

// fillSize is the size of a request of fill, in bytes. Every server takes it.
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
