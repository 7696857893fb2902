package ublk

import (
	"errors"
	"sync"
	"sync/atomic"

	"pmnbd/backend"
)

// An intake finds memory for the payloads of one direction: a WRITE's in the write arena, with
// its room in the window, a READ's in the read arena. It belongs to the queue's thread as long
// as memory is there. The first request that must wait gets a goroutine, to which the intake
// then belongs: it serves that request and all that come behind it in this direction, and ends
// when none is left. So the queue's thread never waits for memory, and what has its answer
// reaches the kernel meanwhile.
type intake struct {
	q    *queue
	room *backend.Admission // of the write arena; it is for whoever owns the intake
	// chunk is where the next payload goes, from used on. The intake holds a reference.
	chunk *backend.Chunk
	used  int
	got   []*backend.Chunk // room for chunks, reused

	// late is set while the goroutine owns the intake.
	late    atomic.Bool
	mu      sync.Mutex
	waiting []*slot       // for the goroutine, in the order in which they came
	batch   []*backend.Op // of the goroutine
}

const (
	// spanAlign is the alignment of spans in bytes: two payloads share no cache line.
	spanAlign = 64
	// splitFrom is the least payload in bytes that is cut to fill the rest of a chunk. A smaller
	// one begins in the next chunk: each span costs an entry in the window and a Write to the
	// target.
	splitFrom = 32 << 10
)

func chunksFor(n int) int { return (n + backend.ChunkSize - 1) / backend.ChunkSize }

// left returns how many bytes a payload of n can have in the present chunk. It drops a chunk that
// is not worth filling.
func (in *intake) left(n int) int {
	if in.chunk == nil {
		return 0
	}
	if in.used > 0 && in.chunk.Refs() == 1 {
		in.used = 0 // nobody else has a reference: all of it is free, and still in the caches
	}
	room := backend.ChunkSize - in.used
	if room == 0 || n > room && n < splitFrom {
		in.drop()
		return 0
	}
	return room
}

// drop gives the present chunk back.
func (in *intake) drop() {
	if in.chunk != nil {
		in.chunk.Release()
		in.chunk, in.used = nil, 0
	}
}

// try gives op the memory that it needs, if that is there and nobody waits for it. Otherwise op is
// as it was.
func (in *intake) try(op *backend.Op) bool {
	switch op.Cmd {
	case backend.Read:
		n := int(op.Len)
		rest := in.left(n)
		if n > rest {
			got, ok := in.q.arenas.Read.TryGet(in.got[:0], chunksFor(n-rest))
			if !ok {
				return false
			}
			in.got = got
		}
		in.place(op, n)
	case backend.Write:
		n := int(op.Len)
		rest := in.left(n)
		if n > rest {
			got, ok := in.room.TryReserve(in.first(rest), in.got[:0], chunksFor(n-rest))
			if !ok {
				return false
			}
			in.got = got
		}
		in.place(op, n)
		if !in.room.TryAdmit(op) {
			release(op)
			return false
		}
	default:
		return in.room.TryAdmit(op)
	}
	return true
}

// first returns the present chunk if a payload begins there, with rest bytes at most.
func (in *intake) first(rest int) *backend.Chunk {
	if rest == 0 {
		return nil
	}
	return in.chunk
}

// await is try, but waits. It fails if the queue stops first.
func (in *intake) await(op *backend.Op) (err error) {
	n := int(op.Len)
	switch op.Cmd {
	case backend.Read:
		if rest := in.left(n); n > rest {
			if in.got, err = in.q.arenas.Read.Get(in.got[:0], chunksFor(n-rest), in.q.stop); err != nil {
				return err
			}
		}
		in.place(op, n)
		return nil
	case backend.Write:
		if rest := in.left(n); n > rest {
			if in.got, err = in.room.Reserve(in.first(rest), in.got[:0], chunksFor(n-rest), in.q.stop); err != nil {
				return err
			}
		}
		in.place(op, n)
	}
	if err = in.room.Admit(op, in.q.stop); err != nil {
		release(op)
	}
	return err
}

// place gives op spans of n bytes: first in the present chunk, then in those of in.got.
func (in *intake) place(op *backend.Op, n int) {
	got := in.got
	for n > 0 {
		if in.chunk == nil || in.used == backend.ChunkSize {
			in.drop()
			in.chunk, got = got[0], got[1:]
		}
		part := min(n, backend.ChunkSize-in.used)
		in.chunk.Retain()
		op.Data = append(op.Data, backend.Span{Chunk: in.chunk, Off: uint32(in.used), Len: uint32(part)})
		in.used = min((in.used+part+spanAlign-1)&^(spanAlign-1), backend.ChunkSize)
		n -= part
	}
	in.got = in.got[:0]
}

// later leaves s to the goroutine of the intake. The queue's thread calls it, with nothing pinned.
func (in *intake) later(s *slot) {
	in.mu.Lock()
	in.waiting = append(in.waiting, s)
	start := !in.late.Load()
	in.late.Store(true)
	in.mu.Unlock()
	if start {
		in.q.helpers.Go(in.run)
	}
}

// run is the goroutine of the intake.
func (in *intake) run() {
	for {
		s := in.next()
		if s == nil {
			return
		}
		if !in.try(&s.op) {
			in.submit() // who waits has nothing that others wait for
			if s.op.Err = in.await(&s.op); s.op.Err != nil {
				if errors.Is(s.op.Err, backend.ErrStopped) {
					s.op.Err = errLeft
				}
				in.room.Unpin() // it may have taken some
				in.q.Complete(&s.op)
				in.q.Kick()
				continue
			}
		}
		if !in.q.receive(s) {
			in.submit() // it also wakes the queue's thread, for the error, and drops the pins
			continue
		}
		in.batch = append(in.batch, &s.op)
	}
}

// next returns the next request for the goroutine, or nil if none is left: the intake is then the
// queue's again.
func (in *intake) next() *slot {
	for {
		in.mu.Lock()
		if len(in.waiting) > 0 {
			s := in.waiting[0]
			in.waiting = append(in.waiting[:0], in.waiting[1:]...)
			in.mu.Unlock()
			return s
		}
		if len(in.batch) == 0 {
			in.late.Store(false)
			in.mu.Unlock()
			return nil
		}
		in.mu.Unlock()
		in.submit()
	}
}

// submit hands the goroutine's batch to the device.
func (in *intake) submit() {
	if len(in.batch) > 0 {
		in.q.dev.Submit(in.batch)
	}
	in.q.Kick()
	in.q.dev.Post()
	in.batch = in.batch[:0]
	in.room.Unpin()
}
