package mutants

// barriers is of the group commit, and of the queue that it goes through.
var barriers = []mutant{
	{
		name: "a barrier skips a lane", rule: "§3.2 on every dirty lane",
		in:  "backend/remote.stream.enqueueBarrier",
		old: "if p.from != p.to || force {", new: "if s.index != 1 && p.from != p.to || force {",
		pkg: model, run: crashes, few: true,
	}, {
		name: "a barrier is done when one lane has answered", rule: "§3.2 when all have",
		in:  "backend/remote.groupCommit.done",
		old: "if b.remaining--; b.remaining > 0 {", new: "if b.remaining--; false {",
		pkg: "./backend/remote", run: "^TestBarrierWaitsForAllLanes$",
	}, {
		name: "a barrier in front of its writes", rule: "§4.6 covered means ahead of the barrier",
		in:  "backend/remote.lane.pushBarrierLocked",
		old: "to: to, next: from, method: method})",
		new: "to: to, next: from, method: method}); for range l.queue.n - 1 { l.queue.push(l.queue.pop()) }",
		pkg: "./backend/remote", run: "^TestBarrierIsBehindItsWrites$",
	}, {
		name: "barrier N+1 is answered before N", rule: "§3.7 barriers complete in order",
		in:  "backend/remote.groupCommit.nextLocked",
		old: "b.ops = append(b.ops, c.waiting...); c.waiting = c.waiting[:0]",
		new: "b = c.takeLocked(); b.ops, c.waiting = c.waiting, b.ops[:0]; return b",
		pkg: "./backend/remote", run: "^TestFlushJoinsTheBarrierInFlight$",
	}, {
		name: "a FLUSH joins a barrier ahead of its writes", rule: "§3.7 only one that covers it",
		in:  "backend/remote.groupCommit.nothingBehindLocked",
		old: "if c.env.head(i) != b.shares[i].to {", new: "if c.env.head(i) < b.shares[i].to {",
		pkg: model, run: crashes,
	}, {
		name: "marks move over what came behind the barrier", rule: "§4.6 covered means ahead of the barrier",
		in:  "backend/remote.core.cover",
		old: "ring.Cover(s.to)", new: "ring.Cover(x.head(i))",
		pkg: model, run: crashes,
	}, {
		name: "a span is freed by a barrier that began before the write", rule: "§4.6 covered means ahead of the barrier",
		in:  "backend/remote.groupCommit.retireLocked",
		old: "c.env.cover(i, &b.shares[i])", new: "b.shares[i].to = c.env.head(i); c.env.cover(i, &b.shares[i])",
		pkg: "./backend/remote", run: "^TestBarrierCoversNothingBehindIt$",
	}, {
		name: "a reply to FLUSH before the covered marks moved", rule: "§4.2 order of retiring, model R1",
		in:  "backend/remote.groupCommit.retireLocked",
		old: "for i := range b.shares { c.env.cover(", new: "b.answer(nil); for i := range b.shares { c.env.cover(",
		pkg: "./backend/remote", run: "^TestRetireOrder$",
	}, {
		name: "a covered mark moves after span reuse", rule: "§4.2 order of retiring",
		in:  "backend/remote.groupCommit.retireLocked",
		old: "c.env.cover(i, &b.shares[i])",
		new: "c.env.free(i, &b.shares[i]); b.shares[i].from = b.shares[i].to; c.env.cover(i, &b.shares[i])",
		pkg: "./backend/remote", run: "^TestRetireOrder$",
	}, {
		name: "spans free before the replies", rule: "§4.2 order of retiring",
		in:  "backend/remote.groupCommit.done",
		old: "b.answer(nil); if durable", new: "c.free(b); b.answer(nil); if durable",
		pkg: "./backend/remote", run: "^TestRetireOrder$",
	}, {
		name: "places come back out of order", rule: "§4.2 a place is not given out before it was read",
		in:  "backend/remote.groupCommit.free",
		old: "for !c.retired.empty() && (*c.retired.front()).answered {", new: "for !c.retired.empty() {",
		pkg: "./backend/remote", run: "^TestSpansComeBackInOrder$",
	}, {
		name: "FLUSH with nothing dirty is answered under doubt", rule: "§3.7, model F3",
		in:  "backend/remote.groupCommit.nextLocked",
		old: "i == 0 && c.inherits && len(b.ops)+len(c.listed) > 0", new: "false",
		pkg: model, run: crashes,
	}, {
		name: "FLUSH of a new session that only read", rule: "§3.7 OPENED carried doubt",
		in:  "backend/remote.leg.begin",
		old: "c.inherits = o.Flags&wire.OpenedDoubt != 0", new: "c.inherits = false",
		pkg: "./backend/remote", run: "^TestSameIDTakesItsOwnRegion$",
	}, {
		name: "a failed device says durable", rule: "§3.7 the failed state is tested first",
		in:  "backend/remote.groupCommit.add",
		old: "op.Err = err", new: "",
		pkg: model, run: crashes,
	}, {
		name: "FUA is not awaited", rule: "§3.7 FUA covers its write",
		in:  "backend/remote.Device.Submit",
		old: "if op.FUA && op.Err == nil {", new: "if false {",
		pkg: model, run: crashes,
	}, {
		name: "FUA of a zero in parts ends with the first", rule: "§3.7 FUA covers its write",
		in:  "nbd.conn.zeroInParts",
		old: "op.FUA = fua", new: "_ = fua",
		pkg: "./nbd", run: "^TestZeroInParts$",
	}, {
		name: "a zero's range is not covered", rule: "§4.7 zeroes are covered",
		in:  "backend/remote.lane.collectLocked",
		old: "e := l.ring.At(from)", new: "e := l.ring.At(from); if e.Kind == 2 { continue }",
		pkg: model, run: crashes,
	}, {
		name: "an op slips past a stopped queue", rule: "§4.7 what overlaps a zero waits",
		in:  "backend/remote.lane.buildLocked",
		old: "if l.zeroes.overlap(e.Off, uint64(e.Len)) {", new: "if false {",
		pkg: "./backend/remote", run: "^TestStoppedQueueHoldsItsBarrier$",
	}, {
		name: "a READ slips past a stopped queue", rule: "§4.7 what overlaps a zero waits",
		in:  "backend/remote.lane.buildLocked",
		old: "if l.zeroes.overlap(p.off, uint64(p.len)) {", new: "if false {",
		pkg: model, run: crashes,
	}, {
		name: "a barrier slips past a stopped queue", rule: "§4.7 barriers too",
		in:  "backend/remote.lane.buildLocked",
		old: "if l.zeroes.overlap(e.Off, uint64(e.Len)) {",
		new: `if l.zeroes.overlap(e.Off, uint64(e.Len)) {
			for i := 1; i < l.queue.n; i++ {
				if b := &l.queue.ring[(l.queue.head+i)%len(l.queue.ring)]; b.kind == itemBarrier {
					*it, *b = *b, *it
					break
				}
			}
			if it.kind == itemBarrier {
				continue
			}`,
		pkg: "./backend/remote", run: "^TestStoppedQueueHoldsItsBarrier$",
	}, {
		name: "a barrier is done by its Send", rule: "§4.6 by ack and Send",
		in:  "backend/remote.gpspm.finish",
		old: "if !p.sent || !p.acked {", new: "if !p.sent {",
		pkg: model, run: crashes,
	}, {
		name: "a barrier is done by its ack", rule: "§4.6 by ack and Send: its memory is free then",
		in:  "backend/remote.gpspm.finish",
		old: "if !p.sent || !p.acked {", new: "if !p.acked {",
		pkg: "./backend/remote", run: "^TestBarrierNeedsAckAndSend$",
	}, {
		name: "a credit comes back with the Send", rule: "§5 credits, the initiator's half",
		in:  "backend/remote.gpspm.sent",
		old: "g.parts[i].sent = true", new: "g.parts[i].sent = true; g.free = append(g.free, i)",
		pkg: "./backend/remote", run: "^TestPartsKeepCredits$",
	}, {
		name: "a barrier is done with its first part", rule: "§4.6 the last part's ack covers all",
		in:  "backend/remote.gpspm.finish",
		old: "return p.last", new: "return true",
		pkg: "./backend/remote", run: "^TestPartsKeepCredits$",
	}, {
		name: "two pollers take turns", rule: "§4.5 what completes is handled in its order",
		in:  "backend/remote.lane.handle",
		old: "l.polling.Lock(); defer l.polling.Unlock(); if n, err", new: "if n, err",
		pkg: "./backend/remote", run: "^TestOnePollerAtATime$",
	}, {
		name: "Close does not flush", rule: "§6 SIGTERM",
		in:  "backend/remote.core.flush",
		old: "x.commit.add(&backend.Op{Cmd: backend.Flush, Sink: last})", new: "last.Complete(&backend.Op{})",
		pkg: "./backend/remote", run: "^TestCloseFlushes$",
	},
}
