package remote

import (
	"fmt"

	"pmnbd/backend"
	"pmnbd/persist"
	"pmnbd/rdma"
)

const (
	// batchMax is how many work requests go to the transport in one call: two
	// full receives of 4 KiB requests.
	batchMax = 128
	// lazyBytes: writes alone wait in the queue until so many bytes have come, or
	// something that somebody waits for stands behind them. A write and its FLUSH
	// then wake the target once instead of twice (design §4.10); the writes are
	// acknowledged anyway, and safe in the window.
	lazyBytes = 128 << 10
	// maxAhead is how many bytes of Writes are posted on a lane whose completion is not
	// known: what a heartbeat waits for at most. It is more than a fast local network has
	// on its way (100 Gbit/s for 300 µs). A quarter of it asks for a completion, so that a
	// slow network is seen to move: one of 1 Mbit/s within a lease.
	maxAhead = 4 << 20
)

// post hands to the transport what is queued, as far as it goes. Who posts polls:
// completions that were there when Post returned wake nobody, and a barrier's
// answer may overtake the completion of its Send.
func (l *lane) post() {
	l.mu.Lock()
	if l.posting || (!l.urgent && l.lazy < lazyBytes) {
		l.mu.Unlock()
		return
	}
	l.posting = true
	look := !l.slotsFree() || !l.mayPost(backend.ChunkSize)
	for l.broken == nil {
		if l.taken == len(l.batch) {
			l.build()
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
	l.posting = false
	l.idle.Broadcast()
	l.mu.Unlock()
}

func (l *lane) slotsFree() bool {
	return l.out.requests-l.back.requests < uint64(l.conn.Caps().MaxSendWR)
}

// mayPost reports whether a Write of n bytes keeps to maxAhead.
func (l *lane) mayPost(n uint32) bool {
	ahead := l.out.bytes - l.back.bytes
	return ahead == 0 || ahead+uint64(n) <= maxAhead
}

// build turns queued items into work requests: as many as there are send slots
// and credits, batchMax and maxAhead at most. l.mu is held, the batch before was taken whole.
func (l *lane) build() {
	l.batch, l.taken = l.batch[:0], 0
	if len(l.control) > 0 && l.slotsFree() {
		l.add(rdma.WorkRequest{ID: l.tag, Op: rdma.OpSend, Signaled: l.tag != tagControl, Inline: l.control})
		l.control = nil
	}
	for !l.queue.empty() && len(l.batch) < batchMax && l.slotsFree() {
		switch it := l.queue.front(); it.kind {
		case itemWrites:
			e := l.ring.At(it.from)
			if l.zeroes.overlap(e.Off, uint64(e.Len)) {
				return // and all behind it wait for the zeroes' acks
			}
			if e.Kind == backend.EntryZero {
				msg, ok := l.zeroes.message(e)
				if !ok {
					return // likewise
				}
				l.add(rdma.WorkRequest{ID: tagControl, Op: rdma.OpSend, Inline: msg})
			} else {
				if !l.mayPost(e.Len) {
					return // the completion of earlier ones makes room
				}
				l.add(l.leg.rdmaWrite(e))
			}
			if it.from++; it.from == it.to {
				l.queue.pop()
			}
		case itemRead:
			p := &l.reads[it.from]
			if l.zeroes.overlap(p.off, uint64(p.len)) {
				return // likewise
			}
			l.add(rdma.WorkRequest{
				ID: tagRead | it.from, Op: rdma.OpRead, Signaled: true,
				Local:  rdma.SGE{Region: l.leg.readMem, Off: p.dst, Len: p.len},
				Remote: rdma.Remote{Key: l.leg.granted.Key, Addr: l.leg.granted.Base + p.off},
			})
			l.queue.pop()
		case itemBarrier:
			if it.method != persist.MethodGPSPM {
				if !l.buildPlaced(it) {
					return // the completion of earlier ones brings the slots
				}
				l.queue.pop()
				break
			}
			next := l.collect(it.next, it.to, l.barrier.perPart)
			batch, ok := l.barrier.appendPart(l.batch, it.seq, l.ranges, next == it.to)
			if !ok {
				return // the answer to an earlier part brings the credit
			}
			l.batch = batch
			l.count(&l.batch[len(l.batch)-1])
			if it.next = next; next == it.to {
				l.queue.pop()
			}
		}
	}
	if l.queue.empty() && len(l.control) == 0 {
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

// add appends wr to the batch. A run of unsignalled requests is ended at half of
// the send queue, and of Writes at a quarter of maxAhead, so that their slots and bytes
// come back.
func (l *lane) add(wr rdma.WorkRequest) {
	l.batch = append(l.batch, wr)
	l.count(&l.batch[len(l.batch)-1])
}

func (l *lane) count(wr *rdma.WorkRequest) {
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
