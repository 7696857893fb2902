package remote

import "pmnbd/persist"

// maxTold is how many ranges a barrier clears at most. The others come with the next one.
const maxTold = 64

// A settlement is what becomes of the chunks of one stream that a leg has got. They are clean once the
// leg itself has acknowledged a barrier behind the copies (mirror §3.5). Then the next barrier has the
// legs of F clear their bits.
//
//	copied ──barrier that names them to the leg──► clean ──barrier that clears their bits in F──► gone
//
// A barrier that is cut off leaves all where it was. If the leg is lost all is forgotten: the bits stay,
// and cost a copy.
type settlement struct {
	copied []persist.Range // by chunks
	named  int             // of copied, the first ones: the barrier in flight has them
	clean  []persist.Range // only where bits are kept
	told   int             // of clean, likewise
}

// carried is what a barrier has for one lane beside the entries of the ring.
type carried struct {
	clear []persist.Range // ranges whose bits of member slot are to be cleared
	slot  uint8
	fills uint8           // how many fills the leg had been sent
	named []persist.Range // of copies, to make durable
	at    int             // earlier parts have those of named before it
	begun bool            // an earlier part has clear
}

// copiedLocked notes that r's leg has the chunk of p: the Writes are built, and a barrier that is
// queued from now on comes behind them.
func (r *resync) copiedLocked(p *piece) {
	share := &r.shares[p.stream.index]
	chunk := persist.Range{Off: p.start, Len: p.end - p.start}
	r.bytes += chunk.Len
	r.leg.progress.add(chunk.Len)
	if n := len(share.copied); n > share.named {
		if last := &share.copied[n-1]; last.Off+last.Len == chunk.Off {
			last.Len += chunk.Len
			return
		}
	}
	share.copied = append(share.copied, chunk)
}

// unsettled reports whether something was copied that no barrier is behind.
func (r *resync) unsettled() bool {
	for i, s := range r.copies.core.streams {
		s.mu.Lock()
		n := len(r.shares[i].copied)
		s.mu.Unlock()
		if n > 0 {
			return true
		}
	}
	return false
}

// carriesLocked reports whether a barrier has something to do for a resync, even if nothing is dirty.
func (s *stream) carriesLocked() bool {
	for _, l := range s.lanes {
		if r := l.copying; r != nil && l.connected {
			if share := &r.shares[s.index]; len(share.copied)+len(share.clean) > 0 {
				return true
			}
		}
	}
	return false
}

// carryLocked gives the barrier that was just queued on all lanes what it has to do for resyncs. A
// barrier clears bits of one member: of the first that has some to clear. The caller holds commit.mu.
func (s *stream) carryLocked() {
	told := false
	for _, l := range s.lanes {
		if l.copying == nil || !l.connected {
			continue
		}
		share := &l.copying.shares[s.index]
		share.named, share.told = len(share.copied), 0
		if share.named > 0 {
			it := l.queue.back()
			it.method = persist.MethodGPSPM // the others do not name it
			l.carriedOf(it).named = share.copied[:share.named]
		}
		if !told && len(share.clean) > 0 {
			told = true
			s.tellLocked(uint8(l.leg.slot), share)
		}
		s.carries = true
	}
}

// tellLocked has the barrier that was just queued clear bits of the member in slot, on the legs of F.
func (s *stream) tellLocked(slot uint8, share *settlement) {
	f := s.core.copies.view.Active
	n := min(len(share.clean), maxTold)
	for _, l := range s.lanes {
		if l.connected && f.Has(l.leg.slot) {
			n = min(n, l.barrier.perPart)
		}
	}
	for _, l := range s.lanes {
		if l.connected && f.Has(l.leg.slot) {
			it := l.queue.back()
			it.method = persist.MethodGPSPM // likewise
			x := l.carriedOf(it)
			x.clear, x.slot, x.fills = share.clean[:n:n], slot, l.leg.fills
		}
	}
	share.told = n
}

func (*lane) carriedOf(it *item) *carried {
	if it.carried == nil {
		it.carried = new(carried)
	}
	return it.carried
}

// settle notes that the barrier in flight has succeeded, on all legs. The caller holds commit.mu.
func (s *stream) settle() {
	s.carries = false
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.lanes {
		r := l.copying
		if r == nil {
			continue
		}
		share := &r.shares[s.index]
		share.clean = share.clean[share.told:]
		if r.clears {
			share.clean = append(share.clean, share.copied[:share.named]...)
		}
		share.copied = share.copied[share.named:]
		share.named, share.told = 0, 0
		r.rouse()
	}
}

// buildPartLocked builds the next part of barrier it, as a message. It reports whether the barrier is
// complete, and false for ok while there is no credit.
func (l *lane) buildPartLocked(it *item) (complete, ok bool) {
	limit := l.barrier.perPart
	x := it.carried
	if x == nil {
		next := l.collectLocked(it.next, it.to, limit)
		l.batch, ok = l.barrier.appendPart(l.batch, it.seq, l.ranges, next == it.to)
		if ok {
			it.next = next
		}
		return next == it.to, ok
	}
	var clear []persist.Range
	if !x.begun { // the bits of all ranges are set behind it
		clear = x.clear
	}
	limit -= len(clear)
	next, at := l.collectLocked(it.next, it.to, limit), x.at
	for ; next == it.to && at < len(x.named) && len(l.ranges) < limit; at++ {
		l.ranges = append(l.ranges, x.named[at])
	}
	complete = next == it.to && at == len(x.named)
	l.batch, ok = l.barrier.appendClearing(l.batch, it.seq, l.ranges, clear, x, complete)
	if ok {
		it.next, x.at, x.begun = next, at, true
	}
	return complete, ok
}
