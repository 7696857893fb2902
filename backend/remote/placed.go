package remote

import (
	"pmnbd/persist"
	"pmnbd/rdma"
)

const (
	// sinkSize is a lane's memory for what the Reads of apm fetch, in bytes; a page,
	// of which they use readBack, or less after a shorter write.
	sinkSize = 4096
	readBack = 8
	// maxFlush is the most that one native FLUSH names, in bytes: its length has 32
	// bits.
	maxFlush = 1 << 30
	// placedLast marks the ID of a barrier's last work request.
	placedLast = 1
)

// placed is a lane's part of a barrier that needs no CPU of the target. The completion of a Read
// (apm) or of native FLUSHes behind the Writes says that the Writes are durable. Zeroes need more:
// the target's CPU stores them, and acknowledges them once they are durable. So the barrier also
// waits for the acks of all zeroes ahead of it (design §4.7). A lane has several if other legs cut
// barriers off: only the newest counts for the device. The stream's mutex guards them.
type placed struct {
	seq       uint64 // the barrier's
	completed bool   // its last work request is complete
	zeroes    uint64 // the number of the last zero ahead of it
}

// buildPlacedLocked builds the lane's part of barrier it, as far as there are send slots.
// It reports whether the part is complete.
func (l *lane) buildPlacedLocked(it *item) bool {
	g := &l.leg.granted
	if it.method == persist.MethodAPM {
		// A Read is placed behind the Writes before it, and pushes them out of the adapter
		// and through PCIe, whatever place it names. This one names what was written last:
		// the medium may have lost any other place.
		e := l.ring.At(it.to - 1)
		l.addLocked(rdma.WorkRequest{
			ID: tagPlaced | placedLast, Op: rdma.OpRead, Signaled: true,
			Local:  rdma.SGE{Region: l.recvs, Off: uint64(len(l.recvs.Mem) - sinkSize), Len: min(readBack, e.Len)},
			Remote: rdma.Remote{Key: g.Key, Addr: g.Base + e.Off},
		})
	} else {
		for it.next != it.to {
			if len(l.batch) >= batchMax || !l.slotsFreeLocked() {
				return false
			}
			off, n := l.runLocked(it)
			wr := rdma.WorkRequest{
				ID: tagPlaced, Op: rdma.OpFlush, Local: rdma.SGE{Len: n}, Remote: rdma.Remote{Key: g.Key, Addr: g.Base + off},
			}
			if it.next == it.to {
				wr.ID, wr.Signaled = tagPlaced|placedLast, true
			}
			l.addLocked(wr)
		}
	}
	l.placed.push(placed{seq: it.seq, zeroes: l.zeroes.seq})
	return true
}

// runLocked takes the next entries off it that follow each other in the region.
func (l *lane) runLocked(it *item) (off uint64, n uint32) {
	for ; it.next != it.to; it.next++ {
		e := l.ring.At(it.next)
		if n > 0 && (e.Off != off+uint64(n) || n+e.Len > maxFlush) {
			break
		}
		if n == 0 {
			off = e.Off
		}
		n += e.Len
	}
	return off, n
}

// endPlacedLocked takes the completion of one of a barrier's work requests. It returns the barrier
// that is done with it, or 0. Completions come in the order of the requests.
func (l *lane) endPlacedLocked(id uint64) (done uint64) {
	if id == tagPlaced|placedLast {
		for i := range l.placed.n {
			if p := l.placed.at(i); !p.completed {
				p.completed = true
				break
			}
		}
	}
	return l.placedDoneLocked()
}

// placedDoneLocked returns the newest barrier whose part of the lane has just ended, or 0.
func (l *lane) placedDoneLocked() (done uint64) {
	for !l.placed.empty() {
		if p := l.placed.front(); !p.completed || l.zeroes.due(p.zeroes) {
			break
		}
		done = l.placed.pop().seq
	}
	return done
}
