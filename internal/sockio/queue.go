package sockio

import (
	"errors"

	"golang.org/x/sys/unix"
)

const (
	// MaxHeader bounds one Queue.Header, in bytes.
	MaxHeader = 64
	// maxIovecs is Linux's IOV_MAX, the most runs of bytes that one sendmsg(2) takes.
	maxIovecs = 1024
	// minRing is the first size of the header ring, in bytes: 64 of the longest
	// headers. The ring grows.
	minRing = 64 * MaxHeader
)

// A Queue is an ordered list of bytes to be written: headers, which it holds in memory of
// its own, and data, which it refers to. The zero Queue is empty and ready. It grows to the
// most that was ever queued at once, and keeps that memory. It is not safe for concurrent
// use: its owner's lock guards it, also in Flush.
type Queue struct {
	segs []segment // segs[head:] is queued
	head int

	// ring holds the queued headers, in the used bytes before tail.
	ring       []byte
	tail, used int

	queued, written uint64
	calls           uint64

	iov []unix.Iovec
}

// A segment is a run of bytes to be written.
type segment struct {
	p    []byte
	ring int // bytes of the ring, padding included, that are free once p is written
}

// Header queues n bytes, at most MaxHeader, and returns them. Fill them in before the next
// call on q.
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
	if q.tail+n > len(q.ring) { // even without padding, where tail is exactly at the end
		q.tail = 0
	}
	h := q.ring[q.tail : q.tail+n]
	q.tail += n
	q.used += pad + n
	q.append(h, pad+n)
	return h
}

// growRing starts a ring of twice the size. Headers in the old one stay there: their
// segments keep it alive until they are written.
func (q *Queue) growRing() {
	q.ring = make([]byte, max(minRing, 2*len(q.ring)))
	q.tail, q.used = 0, 0
	for i := q.head; i < len(q.segs); i++ {
		q.segs[i].ring = 0
	}
}

// Data queues b by reference. b must stay valid and unchanged until Written has passed it.
func (q *Queue) Data(b []byte) {
	if len(b) > 0 {
		q.append(b, 0)
	}
}

// append queues p as a new segment, or as part of the last one if the two are adjacent in
// memory.
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

// Queued returns how many bytes were ever queued, which is the stream position of the end.
func (q *Queue) Queued() uint64 { return q.queued }

// Written returns how many bytes were ever written.
func (q *Queue) Written() uint64 { return q.written }

// Empty reports whether everything that was queued has been written.
func (q *Queue) Empty() bool { return q.queued == q.written }

// Calls returns how many calls of sendmsg(2) q has taken.
func (q *Queue) Calls() uint64 { return q.calls }

// Reset forgets what is not written, and counts it as written. It is for a stream that
// broke.
func (q *Queue) Reset() {
	clear(q.segs)
	q.segs, q.head = q.segs[:0], 0
	q.used = 0
	q.written = q.queued
}

// advance removes n written bytes from the front.
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

// writeAll writes to fd until everything is written or the socket is full.
func (q *Queue) writeAll(fd int) error {
	for !q.Empty() {
		want := q.gather()
		q.calls++
		n, err := sendmsg(fd, q.iov)
		clear(q.iov) // it must not refer to memory that is unmapped later
		if n > 0 {
			q.advance(n)
		}
		switch {
		case errors.Is(err, unix.EAGAIN):
			return nil
		case err != nil:
			return err
		case n < want:
			return nil // another call would only return EAGAIN
		}
	}
	return nil
}
