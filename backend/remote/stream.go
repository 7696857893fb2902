package remote

import (
	"slices"
	"sync"

	"pmnbd/backend"
	"pmnbd/persist"
)

// A stream orders all requests to the stripes of one class: those whose number is its index,
// modulo the number of streams. Its mutex fixes the place of a request among all others. It
// also guards the stream's lanes, one to each target, which carry the requests there in that order.
type stream struct {
	core  *core         // set once
	index int           // set once
	ring  *backend.Ring // its part of the window's index; head moves under mu, covered under commit.mu
	lanes []*lane       // by leg; set once

	flushed uint64 // what wrote was at the last successful barrier; guarded by commit.mu
	carries bool   // the barrier in flight does something for a resync; guarded by commit.mu

	mu      sync.Mutex // guards all below
	buried  bool       // for good, and nothing is in the window any more
	wrote   uint64     // bytes of pieces ever enqueued
	reads   []readPart // by number
	spare   []int      // numbers of reads that are free
	reader  *lane      // that READs take; nil: they wait for one
	fetched uint64     // reads that have ended, ever
	copying []*piece   // that are under way
	ended   *sync.Cond // of mu: a READ has ended
}

func newStream(x *core, i int) *stream {
	s := &stream{core: x, index: i, ring: x.window.Ring(i)}
	s.ended = sync.NewCond(&s.mu)
	return s
}

// A readPart is the part of a READ that one RDMA Read fetches.
type readPart struct {
	op   *backend.Op
	off  uint64 // in the device
	dst  uint64 // in the read arena
	at   uint64 // in the ring: it is behind the entries before
	len  uint32
	lane *lane // that has it in its queue, or has sent it; nil: it waits
}

// writeLocked queues a piece whose payload lies at src of the write arena.
func (s *stream) writeLocked(off, src uint64, n uint32) {
	pos := s.ring.Head()
	s.core.window.Publish(s.index, backend.Entry{Off: off, Src: src, Len: n, Kind: backend.EntryData})
	s.wrote += uint64(n)
	for _, l := range s.lanes {
		l.pushWriteLocked(pos)
		l.lazy += int(n)
	}
}

// zeroLocked queues a piece of zeroes.
func (s *stream) zeroLocked(off uint64, n uint32) {
	pos := s.ring.Head()
	s.core.window.Publish(s.index, backend.Entry{Off: off, Len: n, Kind: backend.EntryZero})
	s.wrote += uint64(n)
	for _, l := range s.lanes {
		l.pushWriteLocked(pos)
	}
}

// readLocked queues a part of op.
func (s *stream) readLocked(op *backend.Op, off, dst uint64, n uint32) {
	if len(s.spare) == 0 {
		s.spare = append(s.spare, len(s.reads))
		s.reads = append(s.reads, readPart{})
	}
	i := s.spare[len(s.spare)-1]
	s.spare = s.spare[:len(s.spare)-1]
	s.reads[i] = readPart{op: op, off: off, dst: dst, at: s.ring.Head(), len: n}
	op.Parts.Add(1)
	if s.reader != nil {
		s.reader.pushReadLocked(i)
	}
}

// chooseReaderLocked has the first lane take READs that may (mirror §3.7), one without a replay if
// there is one. Those that wait go to it as far as all that they came after is in its queue.
func (s *stream) chooseReaderLocked() {
	s.reader = nil
	for _, l := range s.lanes {
		if l.readable && (s.reader == nil || s.reader.behind && !l.behind) {
			s.reader = l
		}
	}
	if s.reader != nil {
		s.reader.queueReadsLocked()
	}
	s.rouseCopiesLocked()
}

// endReadLocked ends read part i.
func (s *stream) endReadLocked(p *poller, i int) {
	op := s.reads[i].op
	s.reads[i].op, s.reads[i].lane = nil, nil
	s.spare = append(s.spare, i)
	s.fetched++
	s.ended.Broadcast()
	sink := op.Sink
	if s.core.endPart(op) {
		p.completed(sink)
	}
}

// waitingReadsLocked is how many READ parts have not ended.
func (s *stream) waitingReadsLocked() uint64 { return uint64(len(s.reads) - len(s.spare)) }

// awaitReads waits until no READ is under way. New ones are refused.
func (s *stream) awaitReads() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for slices.ContainsFunc(s.reads, func(r readPart) bool { return r.op != nil }) {
		s.ended.Wait()
	}
}

// enqueueBarrier queues barrier seq on every connected lane, behind the writes that it covers, if
// there are any or force is set. What it covers is read under the mutex: covered means ahead of the
// barrier in all queues. behind says that a replay has more than this share.
func (s *stream) enqueueBarrier(seq uint64, force, doubt bool) (p share, behind bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p.from, p.to, p.wrote = s.ring.Covered(), s.ring.Head(), s.wrote
	for _, l := range s.lanes {
		if !l.connected || !l.behind || l.follows {
			continue
		}
		l.advanceLocked()
		if l.queued < p.to {
			p.to, p.wrote = l.queued, l.counted
		}
		behind = behind || l.behind
	}
	s.carries = false
	if p.from == p.to && !force && !s.carriesLocked() {
		return p, behind
	}
	for _, l := range s.lanes {
		if l.connected && !l.follows {
			l.pushBarrierLocked(seq, p.from, p.to, doubt)
			p.owes |= persist.Member(l.leg.slot)
		}
	}
	s.carryLocked()
	return p, behind
}

// bury answers the READs of a stream whose lanes have ended for good, and frees its part of
// the window.
func (s *stream) bury() {
	p := &poller{}
	s.mu.Lock()
	for i := range s.reads {
		if s.reads[i].op != nil {
			s.endReadLocked(p, i)
		}
	}
	for _, l := range s.lanes {
		l.queue.clear()
	}
	from, to := s.ring.Covered(), s.ring.Head()
	buried := s.buried
	s.buried = true
	s.mu.Unlock()
	p.kick()
	if !buried {
		s.core.window.Free(s.index, from, to)
	}
}
