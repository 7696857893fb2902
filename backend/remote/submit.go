package remote

import "pmnbd/backend"

// Submit implements backend.Device. An op's place is fixed under its lane's
// mutex, and there, each time anew, the client is asked whether it is still there.
func (d *Device) Submit(ops []*backend.Op) {
	s := submission{d: d}
	wrote, asked := false, false
	for _, op := range ops {
		switch op.Cmd {
		case backend.Read:
			op.Parts.Store(1) // ours, so that it cannot complete under us
			op.Err = s.each(op, func(l *lane, off, at uint64, n uint32) { l.read(op, off, at, n) })
			d.endPart(op)
		case backend.Write, backend.WriteZeroes:
			used := 0
			if op.Cmd == backend.Write {
				op.Err = s.each(op, func(l *lane, off, at uint64, n uint32) { l.write(off, at, n); used++ })
			} else {
				op.Err = s.run(op, op.Off, 0, op.Len, func(l *lane, off, _ uint64, n uint32) { l.zero(off, n); used++ })
			}
			d.arenas.Entries.GiveRest(op, used)
			wrote = true
			if op.FUA && op.Err == nil {
				s.unlock()
				d.commit(op)
				asked = true
			} else {
				op.Sink.Complete(op)
			}
		case backend.Trim:
			op.Err = d.failed()
			op.Sink.Complete(op)
		case backend.Flush:
			s.unlock()
			d.commit(op)
			asked = true
		}
	}
	s.unlock()
	if full := wrote && d.window.HalfFull(); asked || full {
		d.start(full)
	}
}

// endPart ends a part of op, and op with the last of them. Parts fail only when
// the device does; op.Err is set if Submit could not enqueue all of them.
func (d *Device) endPart(op *backend.Op) (completed bool) {
	if op.Parts.Add(-1) > 0 {
		return false
	}
	if op.Err == nil {
		op.Err = d.failed()
	}
	op.Sink.Complete(op)
	return true
}

// Post implements backend.Device.
func (d *Device) Post() {
	for _, l := range d.lanes {
		l.post()
	}
}

// A submission walks over the pieces of a batch, holding one lane's mutex at a
// time, and that for as long as the pieces stay on it.
type submission struct {
	d    *Device
	l    *lane // locked, or nil
	gone bool
}

func (s *submission) unlock() {
	if s.l != nil {
		s.l.mu.Unlock()
		s.l = nil
	}
}

// each calls f, under the lane's mutex, for each piece of op: a run of its spans,
// at offset at of their arena, cut where a stripe ends. It stops with an error if
// the client is gone or the lane closed.
func (s *submission) each(op *backend.Op, f func(l *lane, off, at uint64, n uint32)) error {
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
func (s *submission) run(op *backend.Op, off, at, n uint64, f func(l *lane, off, at uint64, n uint32)) error {
	for end := off + n; off < end; {
		l := s.d.lanes[off/stripe%uint64(len(s.d.lanes))]
		if l != s.l {
			s.unlock()
			l.mu.Lock()
			s.l = l
			s.gone = s.gone || op.Sink.Gone()
		}
		if s.gone {
			return backend.ErrGone
		}
		if l.closed != nil {
			return l.closed
		}
		n := min(end-off, stripe-off%stripe)
		f(l, off, at, uint32(n))
		off, at = off+n, at+n
	}
	return nil
}
