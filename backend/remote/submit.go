package remote

import "pmnbd/backend"

// Submit implements backend.Device.
func (d *Device) Submit(ops []*backend.Op) {
	// An op gets its place under its stream's mutex. There, on each stream anew, the walk asks
	// whether the client is still connected.
	s := submission{streams: d.core.streams}
	wrote, asked := false, false
	for _, op := range ops {
		switch op.Cmd {
		case backend.Read:
			op.Parts.Store(1) // ours, so that it cannot complete under us
			op.Err = s.each(op, func(s *stream, off, at uint64, n uint32) { s.readLocked(op, off, at, n) })
			d.core.endPart(op)
		case backend.Write, backend.WriteZeroes:
			used := 0
			if op.Err = d.core.bad.refuse(op); op.Err != nil {
				d.arenas.Entries.GiveRest(op, used)
				op.Sink.Complete(op)
				continue
			}
			if op.Cmd == backend.Write {
				op.Err = s.each(op, func(s *stream, off, at uint64, n uint32) { s.writeLocked(off, at, n); used++ })
			} else {
				op.Err = s.run(op, op.Off, 0, op.Len, func(s *stream, off, _ uint64, n uint32) { s.zeroLocked(off, n); used++ })
			}
			d.arenas.Entries.GiveRest(op, used)
			wrote = true
			if op.FUA && op.Err == nil {
				s.unlock()
				d.core.commit.add(op)
				asked = true
			} else {
				op.Sink.Complete(op)
			}
		case backend.Trim:
			op.Err = d.core.failed()
			op.Sink.Complete(op)
		case backend.Flush:
			s.unlock()
			d.core.commit.add(op)
			asked = true
		}
	}
	s.unlock()
	if full := wrote && d.core.halfFull(); asked || full {
		d.core.commit.start(full)
	}
}

// Post implements backend.Device.
func (d *Device) Post() { d.core.post() }

// A submission walks over the pieces of a batch. It holds one stream's mutex at a
// time, for as long as the pieces stay on that stream.
type submission struct {
	streams []*stream
	locked  *stream // or nil
	gone    bool
}

func (s *submission) unlock() {
	if s.locked != nil {
		s.locked.mu.Unlock()
		s.locked = nil
	}
}

// each calls f, under the stream's mutex, for each piece of op: a run of its spans,
// at offset at of their arena, cut where a stripe ends. It stops with an error if
// the client is gone or the device takes no more.
func (s *submission) each(op *backend.Op, f func(s *stream, off, at uint64, n uint32)) error {
	off := op.Off
	for _, span := range op.Data {
		if err := s.run(op, off, span.ArenaOff(), uint64(span.Len), f); err != nil {
			return err
		}
		off += uint64(span.Len)
	}
	return nil
}

// run is each for one run of n bytes.
func (s *submission) run(op *backend.Op, off, at, n uint64, f func(s *stream, off, at uint64, n uint32)) error {
	for end := off + n; off < end; {
		to := s.streams[off/stripe%uint64(len(s.streams))]
		if to != s.locked {
			s.unlock()
			to.mu.Lock()
			s.locked = to
			s.gone = s.gone || op.Sink.Gone()
		}
		if s.gone {
			return backend.ErrGone
		}
		if err := to.core.life.refusal(); err != nil {
			return err
		}
		n := min(end-off, stripe-off%stripe)
		f(to, off, at, uint32(n))
		off, at = off+n, at+n
	}
	return nil
}
