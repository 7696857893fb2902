package remote

import (
	"crypto/sha256"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"

	"pmnbd/persist/wire"
	"pmnbd/rdma"
)

// A piece is memory for a copy, and what is done with it: it takes a chunk, compares it piece by piece,
// and copies what differs.
type piece struct {
	index  int // among the pieces of the device, and in the memory of copies
	resync *resync

	// Of the resync's goroutine.
	state           pieceState
	stream          *stream // of the chunk; the last one's if the piece is free
	start, off, end uint64  // the chunk is [start, end) of the device, and what is before off is done

	// Guarded by the stream's mutex.
	src, dst *lane
	atSource bool // src has something to do or to answer
	atTarget bool // likewise dst
	fetched  bool // the memory has the source's bytes
	broken   bool // src or dst was lost
	sums     [2][sha256.Size]byte
}

type pieceState uint8

const (
	pieceFree    pieceState = iota
	pieceWaits              // for a source
	pieceCompare            // DIGESTs are under way
	pieceCopy               // Read and Write are
	pieceConfirm            // DIGESTs again, and nothing passes them: of a Verify
)

// len is how many bytes are compared, and copied, next.
func (p *piece) len() uint32 { return uint32(min(p.end-p.off, pieceSize)) }

// advance does the next step for p, if the one before is through, and reports whether one was.
func (r *resync) advance(p *piece) (moved bool) {
	s := p.stream
	s.mu.Lock()
	if !p.atSource && !p.atTarget {
		moved = p.state != pieceWaits
		r.nextLocked(p)
	}
	src, dst := p.src, p.dst
	s.mu.Unlock()
	if src != nil && dst != nil {
		src.post()
		dst.post() // it may have waited for what src has fetched
	}
	return moved
}

// nextLocked takes p to its next step. Nothing of it is under way.
func (r *resync) nextLocked(p *piece) {
	switch {
	case p.state == pieceFree:
		return
	case p.broken, p.state == pieceWaits: // from the start, maybe with another source
	case r.differsLocked(p):
		if p.pushLocked(r, r.verify.next(p.state)) {
			return
		}
	default: // equal, or copied
		if p.off += uint64(p.len()); p.off == p.end {
			if r.verify == nil || p.state == pieceCopy {
				r.copiedLocked(p)
			}
			r.compared.Add(p.end - p.start)
			p.state = pieceFree
			return
		}
	}
	if !p.pushLocked(r, pieceCompare) {
		p.state = pieceWaits
	}
}

// pushLocked queues what state says at the same place of the source's queue and of the leg's. It
// reports false, and does nothing, while there is no source, or one of both has a replay under way.
func (p *piece) pushLocked(r *resync, state pieceState) bool {
	s := p.stream
	src, dst := s.reader, r.leg.lanes[s.index]
	if r.verify != nil {
		src = r.verify.sourceLocked(s)
	}
	if r.verify == nil {
		src = p.soundLocked(src, dst)
	}
	if src == nil || !src.connected || src == dst || src.behind || dst.behind || dst.copying != r || !dst.connected {
		return false
	}
	p.resync, p.src, p.dst, p.state = r, src, dst, state
	p.atSource, p.atTarget, p.fetched, p.broken = true, true, false, false
	first, second := itemDigest, itemDigest
	if state == pieceCopy {
		first, second = itemFetch, itemStore
	}
	src.queue.push(item{kind: first, piece: p})
	dst.queue.push(item{kind: second, piece: p})
	if state == pieceConfirm {
		src.queue.push(item{kind: itemAwait})
		dst.queue.push(item{kind: itemAwait})
	}
	src.urgent, dst.urgent = true, true
	s.copying = append(s.copying, p)
	return true
}

// endLocked notes that l, which is p's source or leg, has done its part of what was pushed.
func (p *piece) endLocked(l *lane) {
	if l == p.src {
		p.atSource = false
	} else {
		p.atTarget = false
	}
	if !p.atSource && !p.atTarget {
		p.stream.forgetLocked(p)
	}
	p.resync.rouse()
}

// forgetLocked takes p, of which nothing is under way, off the stream's list.
func (s *stream) forgetLocked(p *piece) {
	for i, other := range s.copying {
		if other == p {
			last := len(s.copying) - 1
			s.copying[i], s.copying[last] = s.copying[last], nil
			s.copying = s.copying[:last]
			return
		}
	}
}

// loseCopiesLocked ends what l, whose connection has ended, had to do for copies.
func (l *lane) loseCopiesLocked() {
	for i := len(l.stream.copying) - 1; i >= 0; i-- {
		p := l.stream.copying[i]
		if p.src == l && p.atSource || p.dst == l && p.atTarget {
			p.broken = true
			p.endLocked(l)
		}
	}
	if r := l.copying; r != nil {
		l.copying = nil
		r.end()
	}
}

// rouseCopiesLocked has the resyncs look again whether there is a source.
func (s *stream) rouseCopiesLocked() {
	for _, l := range s.lanes {
		if l.copying != nil {
			l.copying.rouse()
		}
	}
}

// buildCopyLocked builds the work request of it, and reports false if that has to wait. All behind it
// waits, too.
func (l *lane) buildCopyLocked(it *item) bool {
	if it.kind == itemAwait {
		return l.digests.n == 0
	}
	p := it.piece
	n := p.len()
	if l.zeroes.overlap(p.off, uint64(n)) {
		return false // their ack goes on
	}
	g := l.leg
	local := rdma.SGE{Region: g.copyMem, Off: uint64(p.index) * pieceSize, Len: n}
	remote := rdma.Remote{Key: g.granted.Key, Addr: g.granted.Base + p.off}
	switch it.kind {
	case itemDigest:
		msg, ok := l.digests.message(p, n)
		if !ok {
			return false // the answer to an earlier one brings the credit
		}
		l.addLocked(rdma.WorkRequest{ID: tagControl, Op: rdma.OpSend, Inline: msg})
	case itemFetch:
		l.addLocked(rdma.WorkRequest{ID: tagFetch | uint64(p.index), Op: rdma.OpRead, Signaled: true, Local: local, Remote: remote})
	case itemStore:
		switch {
		case p.fetched && !l.mayStoreLocked(p):
			return false
		case p.fetched:
			if !l.mayPostLocked(n) {
				return false // the completion of earlier ones makes room
			}
			l.addLocked(rdma.WorkRequest{ID: tagStore | uint64(p.index), Op: rdma.OpWrite, Signaled: true, Local: local, Remote: remote})
		case p.broken:
			p.endLocked(l) // there is nothing to write
		default:
			return false // the source has not answered
		}
	}
	return true
}

// endCopyLocked takes the completion of a piece's Read or Write.
func (l *lane) endCopyLocked(id uint64) {
	p := &l.core.copies.pieces[id&^tagMask]
	if id&tagMask == tagFetch {
		p.fetched = true
	}
	p.endLocked(l)
}

// digests are the DIGESTs of a lane that the target has not answered. The stream's mutex guards them.
type digests struct {
	out      [wire.MaxDigests]*piece // a ring
	head, n  int
	messages [wire.MaxDigests][wire.DigestedSize]byte
	seq      uint64 // of the newest
}

// message makes the message for n bytes of p, valid until the target answers it. It reports false
// while there is no credit.
func (d *digests) message(p *piece, n uint32) ([]byte, bool) {
	if d.n == wire.MaxDigests {
		return nil, false
	}
	d.seq++
	i := (d.head + d.n) % wire.MaxDigests
	d.n++
	d.out[i] = p
	m := wire.Digest{Seq: d.seq, Off: p.off, Len: uint64(n)}
	return m.Append(d.messages[i][:0]), true
}

// digestedLocked takes the answer to the oldest DIGEST that is out.
func (l *lane) digestedLocked(m *wire.Digested) error {
	d := &l.digests
	if d.n == 0 || m.Seq != d.seq-uint64(d.n)+1 {
		return fmt.Errorf("%w: a sum %d that is not due", rdma.ErrLost, m.Seq)
	}
	p := d.out[d.head]
	d.out[d.head] = nil
	d.head = (d.head + 1) % wire.MaxDigests
	d.n--
	side := 0
	if l == p.dst {
		side = 1
	}
	p.sums[side] = m.Sum
	p.endLocked(l)
	return nil
}

// memory is what the pieces of all legs have their bytes in. It is mapped when the first leg needs it.
type memory struct {
	mu  sync.Mutex
	mem []byte
}

// register registers the memory of the pieces in a leg's domain, for Reads and Writes.
func (k *copies) register(d rdma.Domain) (*rdma.MemoryRegion, error) {
	m := &k.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mem == nil {
		size := len(k.pieces) * pieceSize
		mem, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
		if err != nil {
			return nil, fmt.Errorf("map %d bytes for copies: %w", size, err)
		}
		m.mem = mem
	}
	r, err := d.Register(m.mem, rdma.LocalWrite)
	if err != nil {
		return nil, fmt.Errorf("register the memory for copies: %w", err)
	}
	return r, nil
}

// free unmaps the memory. No leg has a domain.
func (m *memory) free() error {
	if m.mem == nil {
		return nil
	}
	mem := m.mem
	m.mem = nil
	return unix.Munmap(mem)
}
