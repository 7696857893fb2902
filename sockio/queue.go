package sockio

import (
	"errors"

	"golang.org/x/sys/unix"
)

const (
	// MaxHeader bounds Queue.Header, in bytes.
	MaxHeader = 64
	// maxIovecs is IOV_MAX of Linux, the most runs that one writev(2) takes.
	maxIovecs = 1024
	// minRing is the first size of the header ring, in bytes: 64 headers of the
	// greatest size, and it grows.
	minRing = 64 * MaxHeader
)

// A Queue is a gather list, in order: headers in its own memory, data by
// reference. The zero value is ready. It grows to the most that was ever queued
// at once and keeps that. It is not safe for concurrent use: the owner's lock
// guards it, in Flush too.
type Queue struct {
	segs []segment // segs[head:] is queued
	head int

	// ring holds the headers that are queued, used bytes of it ending at tail.
	ring       []byte
	tail, used int

	queued, written uint64
	calls           uint64

	iov   []unix.Iovec
	flush func(fd uintptr) // made by the first Flush
	err   error            // of flush
}

// A segment is a run of bytes to be written.
type segment struct {
	p    []byte
	ring int // bytes of the ring that are free once p is written, padding included
}

// Header queues n bytes, at most MaxHeader, and returns them to be filled in
// before the next call on q.
func (q *Queue) Header(n int) []byte {
	if n > MaxHeader {
		panic("sockio: header too long")
	}
	if n == 0 {
		return nil
	}
	if q.used == 0 {
		q.tail = 0
	}
	pad := 0
	if q.tail+n > len(q.ring) {
		pad = len(q.ring) - q.tail
	}
	if q.used+pad+n > len(q.ring) {
		q.growRing()
		pad = 0
	}
	if q.tail+n > len(q.ring) { // also where the end is reached exactly, with nothing to pad
		q.tail = 0
	}
	h := q.ring[q.tail : q.tail+n]
	q.tail += n
	q.used += pad + n
	q.append(h, pad+n)
	return h
}

// growRing starts a ring twice as large. The headers in the old one stay where
// they are: their segments hold it until they are written.
func (q *Queue) growRing() {
	q.ring = make([]byte, max(minRing, 2*len(q.ring)))
	q.tail, q.used = 0, 0
	for i := q.head; i < len(q.segs); i++ {
		q.segs[i].ring = 0
	}
}

// Data queues b by reference: it must stay valid and unchanged until Written has
// passed it.
func (q *Queue) Data(b []byte) {
	if len(b) > 0 {
		q.append(b, 0)
	}
}

// append queues p behind the last segment, or as part of it where the memory is
// adjacent.
func (q *Queue) append(p []byte, ring int) {
	q.queued += uint64(len(p))
	if len(q.segs) > q.head {
		last := &q.segs[len(q.segs)-1]
		if n := len(last.p); cap(last.p)-n >= len(p) && &last.p[:n+1][n] == &p[0] {
			last.p = last.p[:n+len(p)]
			last.ring += ring
			return
		}
	}
	if len(q.segs) == cap(q.segs) && q.head > len(q.segs)/2 {
		n := copy(q.segs, q.segs[q.head:])
		clear(q.segs[n:])
		q.segs, q.head = q.segs[:n], 0
	}
	q.segs = append(q.segs, segment{p, ring})
}

// Queued is how many bytes were ever queued: the stream position behind the last.
func (q *Queue) Queued() uint64 { return q.queued }

// Written is how many bytes were ever written.
func (q *Queue) Written() uint64 { return q.written }

// Empty reports whether everything queued was written.
func (q *Queue) Empty() bool { return q.queued == q.written }

// Calls is how many times writev(2) was called for q.
func (q *Queue) Calls() uint64 { return q.calls }

// Reset forgets what was not written, as if it had been: for a stream that broke.
func (q *Queue) Reset() {
	clear(q.segs)
	q.segs, q.head = q.segs[:0], 0
	q.used = 0
	q.written = q.queued
}

// advance takes n written bytes off the front.
func (q *Queue) advance(n int) {
	q.written += uint64(n)
	for n > 0 {
		s := &q.segs[q.head]
		if n < len(s.p) {
			s.p = s.p[n:]
			return
		}
		n -= len(s.p)
		q.used -= s.ring
		*s = segment{}
		q.head++
	}
	if q.head == len(q.segs) {
		q.segs, q.head = q.segs[:0], 0
	}
}

// writeAll writes to fd until all is written, or the socket is full.
func (q *Queue) writeAll(fd uintptr) error {
	for !q.Empty() {
		want := q.gather()
		q.calls++
		n, err := writev(fd, q.iov)
		clear(q.iov) // it must not hold on to memory that is unmapped later
		if n > 0 {
			q.advance(n)
		}
		switch {
		case errors.Is(err, unix.EAGAIN):
			return nil
		case err != nil:
			return err
		case n < want:
			return nil // another call would only hear EAGAIN
		}
	}
	return nil
}
