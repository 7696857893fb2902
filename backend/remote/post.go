package remote

import (
	"fmt"

	"pmnbd/backend"
	"pmnbd/persist"
	"pmnbd/persist/wire"
	"pmnbd/rdma"
)

const (
	// batchMax is how many work requests go to the transport in one call: two
	// full receives of 4 KiB requests.
	batchMax = 128
	// lazyBytes: writes alone stay in the queue until so many bytes are there, or until
	// something behind them has a client that waits for it. A write and its FLUSH
	// then wake the target once instead of twice (design §4.10). The writes are
	// acknowledged already, and safe in the window.
	lazyBytes = 128 << 10
	// maxAhead limits the bytes of Writes that are posted on a lane and not known to be complete.
	// A heartbeat waits for no more than that. It is more than a fast local network
	// holds (100 Gbit/s for 300 µs). Each quarter of it asks for a completion, so that the
	// initiator sees a slow network move: one of 1 Mbit/s within a lease.
	maxAhead = 4 << 20
)

// post hands to the transport as much of the queue as send slots and credits allow. The goroutine
// that posts also polls: completions that were there when Post returned wake nobody, and a
// barrier's answer may overtake the completion of its Send.
func (l *lane) post() {
	l.mu.Lock()
	if l.posting || l.conn == nil || (!l.urgent && l.lazy < lazyBytes) {
		l.mu.Unlock()
		return // nobody has reached the target of a lane without a connection
	}
	l.posting = true
	look := !l.slotsFreeLocked() || !l.mayPostLocked(backend.ChunkSize)
	for l.broken == nil {
		if l.taken == len(l.batch) {
			l.buildLocked()
			look = look || len(l.poster.sinks) > 0 // of READs that it has answered
		}
		if err := l.stuck; err != nil {
			l.stuck = nil
			l.mu.Unlock()
			l.abort(err)
			l.mu.Lock()
			break
		}
		if l.taken == len(l.batch) && !look {
			break // all is posted, or the completer goes on when there is a slot or credit
		}
		l.mu.Unlock()
		var err error
		n := 0
		if l.taken < len(l.batch) {
			n, err = l.conn.Post(l.batch[l.taken:])
			if n == 0 && err == nil {
				err = fmt.Errorf("the transport has fewer send slots than it said: %w", rdma.ErrLost)
			}
			look = true
		} else {
			err = l.poll(&l.poster)
			l.poster.kick()
			look = false
		}
		if err != nil {
			l.abort(err)
		}
		l.mu.Lock()
		l.taken += n
	}
	if len(l.poster.sinks) > 0 {
		l.mu.Unlock()
		l.poster.kick()
		l.mu.Lock()
	}
	l.posting = false
	l.idle.Broadcast()
	divert := l.divert
	l.divert = false
	l.mu.Unlock()
	if divert {
		l.postOthers()
	}
}

func (l *lane) slotsFreeLocked() bool {
	return l.out.requests-l.back.requests < uint64(l.conn.Caps().MaxSendWR)
}

// mayPostLocked reports whether a Write of n bytes keeps to maxAhead.
func (l *lane) mayPostLocked(n uint32) bool {
	ahead := l.out.bytes - l.back.bytes
	return ahead == 0 || ahead+uint64(n) <= maxAhead
}

// buildLocked turns queued items into work requests, as many as send slots, credits, batchMax and
// maxAhead allow. The transport has taken all of the batch before.
func (l *lane) buildLocked() {
	l.batch, l.taken = l.batch[:0], 0
	if len(l.control) > 0 && l.slotsFreeLocked() {
		l.addLocked(rdma.WorkRequest{ID: l.tag, Op: rdma.OpSend, Signaled: l.tag != tagControl, Inline: l.control})
		l.control = nil
	}
	if l == l.leg.lanes[0] && l.leg.calls.request != nil && l.slotsFreeLocked() {
		q := &l.leg.calls
		n := copy(l.barrier.mem.Mem[callSlot*wire.MaxMessage:], q.request)
		q.request = nil
		l.addLocked(rdma.WorkRequest{ID: tagCall, Op: rdma.OpSend, Signaled: true, Local: rdma.SGE{Region: l.barrier.mem, Off: callSlot * wire.MaxMessage, Len: uint32(n)}})
	}
	for !l.queue.empty() && len(l.batch) < batchMax && l.slotsFreeLocked() {
		switch it := l.queue.front(); it.kind {
		case itemWrites:
			e := l.ring.At(it.from)
			if l.zeroes.overlap(e.Off, uint64(e.Len)) {
				return // and all behind it wait for the zeroes' acks
			}
			if bad := l.leg.badPlaces.Load(); bad != nil && !l.mayWriteLocked(bad, it.from) {
				return
			}
			if e.Kind == backend.EntryZero {
				msg, ok := l.zeroes.message(e)
				if !ok {
					return // likewise
				}
				l.addLocked(rdma.WorkRequest{ID: tagControl, Op: rdma.OpSend, Inline: msg})
			} else {
				if !l.mayPostLocked(e.Len) {
					return // the completion of earlier ones makes room
				}
				l.addLocked(l.leg.rdmaWrite(e))
			}
			if it.from++; it.from == it.to {
				l.queue.pop()
			}
		case itemRead:
			p := &l.reads[it.from]
			if l.zeroes.overlap(p.off, uint64(p.len)) {
				return // likewise
			}
			if bad := l.leg.badPlaces.Load(); bad != nil && bad.touched(p.off, uint64(p.len)) {
				l.avoidLocked(int(it.from))
				l.queue.pop()
				break
			}
			l.addLocked(rdma.WorkRequest{
				ID: tagRead | it.from, Op: rdma.OpRead, Signaled: true,
				Local:  rdma.SGE{Region: l.leg.readMem, Off: p.dst, Len: p.len},
				Remote: rdma.Remote{Key: l.leg.granted.Key, Addr: l.leg.granted.Base + p.off},
			})
			l.queue.pop()
		case itemBarrier:
			if l.mends {
				it.method = persist.MethodGPSPM
			}
			if it.method != persist.MethodGPSPM {
				if !l.buildPlacedLocked(it) {
					return // the completion of earlier ones brings the slots
				}
				l.queue.pop()
				break
			}
			complete, ok := l.buildPartLocked(it)
			if !ok {
				return // the answer to an earlier part brings the credit
			}
			l.countLocked(&l.batch[len(l.batch)-1])
			if complete {
				l.queue.pop()
			}
		case itemDigest, itemFetch, itemStore, itemAwait:
			if !l.buildCopyLocked(it) {
				return // likewise
			}
			l.queue.pop()
		}
	}
	if l.queue.empty() && len(l.control) == 0 && (l != l.leg.lanes[0] || l.leg.calls.request == nil) {
		l.lazy, l.urgent = 0, false
	}
}

// rdmaWrite is the work request of entry e.
func (g *leg) rdmaWrite(e *backend.Entry) rdma.WorkRequest {
	return rdma.WorkRequest{
		ID: tagWrite, Op: rdma.OpWrite,
		Local:  rdma.SGE{Region: g.writeMem, Off: e.Src, Len: e.Len},
		Remote: rdma.Remote{Key: g.granted.Key, Addr: g.granted.Base + e.Off},
	}
}

// addLocked appends wr to the batch.
func (l *lane) addLocked(wr rdma.WorkRequest) {
	l.batch = append(l.batch, wr)
	l.countLocked(&l.batch[len(l.batch)-1])
}

// countLocked counts wr as posted. Half a send queue of requests without a completion, or a quarter
// of maxAhead of Writes, makes wr ask for one, so that slots and bytes come back.
func (l *lane) countLocked(wr *rdma.WorkRequest) {
	l.out.requests++
	if wr.Op == rdma.OpWrite {
		l.out.bytes += uint64(wr.Local.Len)
	}
	if l.out.requests%uint64(max(1, l.conn.Caps().MaxSendWR/2)) == 0 || l.out.bytes-l.asked >= maxAhead/4 {
		wr.Signaled = true
	}
	if wr.Signaled {
		l.signaled.push(l.out)
		l.asked = l.out.bytes
	}
}
