package remote

import "pmnbd/persist"

const (
	// maxTold is how many ranges a barrier clears at most on a stream. The others come with the next
	// one.
	maxTold = 192
	// settleRanges is after how many ranges of a stream a resync asks for a barrier. It is less than
	// maxTold, so that what is clean does not pile up.
	settleRanges = 128
)

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

// unsettled is how many ranges a stream has at most that were copied and that no barrier is behind. The doubt of the
// leg's target counts as one.
func (r *resync) unsettled() (ranges int) {
	c := &r.copies.core.commit
	c.mu.Lock()
	if r.doubtedLocked() {
		ranges = 1
	}
	c.mu.Unlock()
	for i, s := range r.copies.core.streams {
		s.mu.Lock()
		ranges = max(ranges, len(r.shares[i].copied))
		s.mu.Unlock()
	}
	return ranges
}

// doubtedLocked reports whether the leg must acknowledge a barrier even if nothing is copied to it: its target is in doubt,
// so what the leg has may not be durable there, and F counts as if it were (mirror §5.5). An asynchronous member is not
// going to be in F. The caller holds commit.mu.
func (r *resync) doubtedLocked() bool {
	k, slot := r.copies, r.leg.slot
	return r.verify == nil && k.core.commit.doubts.Has(slot) && !k.view.Record.Async.Has(slot)
}

// carriesLocked reports whether a barrier has something to do for a resync, even if nothing is dirty. The caller holds
// commit.mu.
func (s *stream) carriesLocked() bool {
	for _, l := range s.lanes {
		if r := l.copying; r != nil && l.connected {
			share := &r.shares[s.index]
			if len(share.copied) > 0 || len(share.clean) > 0 && s.core.copies.namesLocked(l.leg) || s.index == 0 && r.doubtedLocked() {
				return true
			}
		}
	}
	return false
}

// carryLocked gives the barrier that was just queued on all lanes what it has to do for resyncs. A
// barrier clears bits of one member: of the one that has most to clear, and whose session all of F name. The caller
// holds commit.mu.
func (s *stream) carryLocked() {
	var most *lane
	var follower *leg
	for _, l := range s.lanes {
		if l.follows && l.leg.follow.bits.untell(s.index) && s.core.copies.namesLocked(l.leg) {
			follower = l.leg
		}
		if l.copying == nil || !l.connected {
			continue
		}
		s.carries = true
		share := &l.copying.shares[s.index]
		share.named, share.told = len(share.copied), 0
		if share.named > 0 {
			it := l.queue.back()
			it.method = persist.MethodGPSPM // the others do not name it
			it.carriedOf().named = share.copied[:share.named]
		}
		if n := len(share.clean); n > 0 && (most == nil || n > len(most.copying.shares[s.index].clean)) && s.core.copies.namesLocked(l.leg) {
			most = l
		}
	}
	if most != nil {
		share := &most.copying.shares[s.index]
		share.told = s.tellLocked(most.leg.slot, share.clean)
	} else if follower != nil {
		f := &follower.follow.bits
		s.carries = true
		f.told[s.index] = s.tellLocked(follower.slot, f.tell(s.index, maxTold))
	}
}

// tellLocked has the barrier that was just queued clear bits of the member in slot, on the legs of F, and
// returns how many of clean it has.
func (s *stream) tellLocked(slot int, clean []persist.Range) int {
	f := s.core.copies.view.Active
	n := min(len(clean), maxTold)
	if n == 0 {
		return 0
	}
	for _, l := range s.lanes {
		if l.connected && f.Has(l.leg.slot) {
			n = min(n, l.barrier.perPart)
		}
	}
	for _, l := range s.lanes {
		if l.connected && f.Has(l.leg.slot) {
			it := l.queue.back()
			it.method = persist.MethodGPSPM // likewise
			x := it.carriedOf()
			x.clear, x.slot, x.fills = clean[:n:n], uint8(slot), l.leg.fills
		}
	}
	return n
}

// carriedOf is what barrier it carries.
func (it *item) carriedOf() *carried {
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
		if l.follows {
			l.leg.follow.bits.settle(s.index)
		}
		r := l.copying
		if r == nil || !l.connected {
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
