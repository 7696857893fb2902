package mutants

// barriers are mutants of the group commit and of the queue that carries its barriers.
var barriers = []mutant{
	{
		name: "a barrier skips a lane", rule: "§3.2 on every dirty lane",
		in:  "backend/remote.stream.enqueueBarrier",
		old: "if p.from == p.to && !force &&", new: "if (p.from == p.to || s.index == 1) && !force &&",
		pkg: model, run: crashes, few: true,
	}, {
		name: "a barrier succeeds when one lane has acknowledged it", rule: "§3.2 when all lanes have acknowledged it",
		in:  "backend/remote.groupCommit.done",
		old: "if b.remaining--; b.remaining > 0 {", new: "if b.remaining--; false {",
		pkg: "./backend/remote", run: "^TestBarrierWaitsForAllLanes$",
	}, {
		name: "a barrier is queued in front of its writes", rule: "§4.6 a barrier covers only what is ahead of it",
		in:  "backend/remote.lane.pushBarrierLocked",
		old: "to: to, next: from, method: method})",
		new: "to: to, next: from, method: method}); for range l.queue.n - 1 { l.queue.push(l.queue.pop()) }",
		pkg: "./backend/remote", run: "^TestBarrierIsBehindItsWrites$",
	}, {
		name: "barrier N+1 completes before N", rule: "§3.7 barriers complete in order",
		in:  "backend/remote.groupCommit.nextLocked",
		old: "b.ops = append(b.ops, c.waiting...); c.waiting = c.waiting[:0]",
		new: "b = c.takeLocked(); b.ops, c.waiting = c.waiting, b.ops[:0]; return b",
		pkg: "./backend/remote", run: "^TestFlushJoinsTheBarrierInFlight$",
	}, {
		name: "a FLUSH joins a barrier ahead of its writes", rule: "§3.7 a FLUSH joins only a barrier that covers it",
		in:  "backend/remote.groupCommit.nothingBehindLocked",
		old: "if c.env.head(i) != b.shares[i].to {", new: "if c.env.head(i) < b.shares[i].to {",
		pkg: model, run: crashes,
	}, {
		name: "marks move past writes behind the barrier", rule: "§4.6 a barrier covers only what is ahead of it",
		in:  "backend/remote.core.cover",
		old: "ring.Cover(s.to)", new: "ring.Cover(x.head(i))",
		pkg: model, run: crashes,
	}, {
		name: "a span is freed by a barrier that began before the write", rule: "§4.6 a barrier covers only what is ahead of it",
		in:  "backend/remote.groupCommit.retireLocked",
		old: "c.env.cover(i, &b.shares[i])", new: "b.shares[i].to = c.env.head(i); c.env.cover(i, &b.shares[i])",
		pkg: "./backend/remote", run: "^TestBarrierCoversNothingBehindIt$",
	}, {
		name: "a FLUSH completes before the covered marks move", rule: "§4.2 the order of retiring, model R1",
		in:  "backend/remote.groupCommit.retireLocked",
		old: "for i := range b.shares { c.env.cover(", new: "b.answer(nil); for i := range b.shares { c.env.cover(",
		pkg: "./backend/remote", run: "^TestRetireOrder$",
	}, {
		name: "a covered mark moves after its spans are free", rule: "§4.2 the order of retiring",
		in:  "backend/remote.groupCommit.retireLocked",
		old: "c.env.cover(i, &b.shares[i])",
		new: "c.env.free(i, &b.shares[i]); b.shares[i].from = b.shares[i].to; c.env.cover(i, &b.shares[i])",
		pkg: "./backend/remote", run: "^TestRetireOrder$",
	}, {
		name: "spans are freed before the ops complete", rule: "§4.2 the order of retiring",
		in:  "backend/remote.groupCommit.done",
		old: "b.answer(nil); if durable", new: "c.free(b); b.answer(nil); if durable",
		pkg: "./backend/remote", run: "^TestRetireOrder$",
	}, {
		name: "places of the index are freed out of order", rule: "§4.2 nobody gets a place that is still to be read",
		in:  "backend/remote.groupCommit.freeLocked",
		old: "(*c.retired.front()).answered && !c.env", new: "!c.env",
		pkg: "./backend/remote", run: "^TestSpansComeBackInOrder$",
	}, {
		name: "a FLUSH with nothing dirty completes in doubt", rule: "§3.7, model F3",
		in:  "backend/remote.groupCommit.nextLocked",
		old: "i == 0 && doubt && asked", new: "false",
		pkg: model, run: crashes,
	}, {
		name: "a FLUSH of a new session that only read needs no barrier", rule: "§3.7 OPENED says that there is doubt",
		in:  "backend/remote.leg.begin",
		old: "if o.Flags&wire.OpenedDoubt != 0 {", new: "if false {",
		pkg: "./backend/remote", run: "^TestSameIDTakesItsOwnRegion$",
	}, {
		name: "a failed device completes a FLUSH", rule: "§3.7 the failed state is tested first",
		in:  "backend/remote.groupCommit.add",
		old: "op.Err = err", new: "",
		pkg: model, run: crashes,
	}, {
		name: "a FUA write completes before its barrier", rule: "§3.7 FUA waits for a barrier that covers it",
		in:  "backend/remote.Device.Submit",
		old: "if op.FUA && op.Err == nil {", new: "if false {",
		pkg: model, run: crashes,
	}, {
		name: "a FUA zero in parts completes with the first", rule: "§3.7 FUA waits for a barrier that covers it",
		in:  "nbd.conn.zeroInParts",
		old: "op.FUA = fua", new: "_ = fua",
		pkg: "./nbd", run: "^TestZeroInParts$",
	}, {
		name: "a barrier leaves out a zero's range", rule: "§4.7 a barrier covers zeroes",
		in:  "backend/remote.lane.collectLocked",
		old: "e := l.ring.At(from)", new: "e := l.ring.At(from); if e.Kind == 2 { continue }",
		pkg: model, run: crashes,
	}, {
		name: "an op passes a stopped queue", rule: "§4.7 an op that overlaps a zero waits",
		in:  "backend/remote.lane.buildLocked",
		old: "if l.zeroes.overlap(e.Off, uint64(e.Len)) {", new: "if false {",
		pkg: "./backend/remote", run: "^TestStoppedQueueHoldsItsBarrier$",
	}, {
		name: "a READ passes a stopped queue", rule: "§4.7 an op that overlaps a zero waits",
		in:  "backend/remote.lane.buildLocked",
		old: "if l.zeroes.overlap(p.off, uint64(p.len)) {", new: "if false {",
		pkg: model, run: crashes,
	}, {
		name: "a barrier passes a stopped queue", rule: "§4.7 and so do barriers",
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
		name: "a barrier succeeds with its Send alone", rule: "§4.6 it needs acknowledgement and Send",
		in:  "backend/remote.gpspm.finish",
		old: "if !p.sent || !p.acked {", new: "if !p.sent {",
		pkg: model, run: crashes,
	}, {
		name: "a barrier succeeds with its acknowledgement alone", rule: "§4.6 it needs both, because then its memory is free",
		in:  "backend/remote.gpspm.finish",
		old: "if !p.sent || !p.acked {", new: "if !p.acked {",
		pkg: "./backend/remote", run: "^TestBarrierNeedsAckAndSend$",
	}, {
		name: "a credit comes back with the Send", rule: "§5 credits, the initiator's half",
		in:  "backend/remote.gpspm.sent",
		old: "g.parts[i].sent = true", new: "g.parts[i].sent = true; g.free = append(g.free, i)",
		pkg: "./backend/remote", run: "^TestPartsKeepCredits$",
	}, {
		name: "a barrier succeeds with its first part", rule: "§4.6 the last part's acknowledgement covers all parts",
		in:  "backend/remote.gpspm.finish",
		old: "if !p.last {", new: "if false {",
		pkg: "./backend/remote", run: "^TestPartsKeepCredits$",
	}, {
		name: "two goroutines poll one lane at a time", rule: "§4.5 completions are handled in their order",
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
