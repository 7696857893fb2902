package mutants

// barriers is of the group commit, and of the queue that it goes through.
var barriers = []mutant{
	{
		name: "a barrier skips a lane", rule: "§3.2 on every dirty lane",
		file: "backend/remote/barrier.go", old: "if c.from[i] != c.to[i] || (", new: "if i != 1 && c.from[i] != c.to[i] || (",
		pkg: model, run: crashes, few: true,
	}, {
		name: "a barrier is done when one lane has answered", rule: "§3.2 when all have",
		file: "backend/remote/barrier.go", old: "if c.remaining--; c.remaining > 0 {", new: "if c.remaining--; false {",
		pkg: "./backend/remote", run: "^TestBarrierWaitsForAllLanes$",
	}, {
		name: "a barrier in front of its writes", rule: "§4.6 covered means ahead of the barrier",
		file: "backend/remote/lane.go",
		old:  "to: to, next: from, method: m})\n", new: "to: to, next: from, method: m})\n	for range l.queue.n - 1 {\n		l.queue.push(l.queue.pop())\n	}\n",
		pkg: "./backend/remote", run: "^TestBarrierIsBehindItsWrites$",
	}, {
		name: "barrier N+1 is answered before N", rule: "§3.7 barriers complete in order",
		file: "backend/remote/barrier.go",
		old:  "			c.ops = append(c.ops, b.waiting...)\n			b.waiting = b.waiting[:0]\n",
		new:  "			c = b.take(len(d.lanes))\n			c.ops, b.waiting = b.waiting, c.ops[:0]\n			return c\n",
		pkg:  "./backend/remote", run: "^TestFlushJoinsTheBarrierInFlight$",
	}, {
		name: "a FLUSH joins a barrier ahead of its writes", rule: "§3.7 only one that covers it",
		file: "backend/remote/barrier.go", old: "if l.ring.Head() != c.to[i] {", new: "if l.ring.Head() < c.to[i] {",
		pkg: model, run: crashes,
	}, {
		name: "marks move over what came behind the barrier", rule: "§4.6 covered means ahead of the barrier",
		file: "backend/remote/barrier.go", old: "l.ring.Cover(c.to[i])", new: "l.ring.Cover(l.ring.Head())",
		pkg: model, run: crashes,
	}, {
		name: "a span is freed by a barrier that began before the write", rule: "§4.6 covered means ahead of the barrier",
		file: "backend/remote/barrier.go", old: "		l.ring.Cover(c.to[i])", new: "		c.to[i] = l.ring.Head()\n		l.ring.Cover(c.to[i])",
		pkg: "./backend/remote", run: "^TestBarrierCoversNothingBehindIt$",
	}, {
		name: "a reply to FLUSH before the covered marks moved", rule: "§4.2 order of retiring, model R1",
		file: "backend/remote/barrier.go",
		old:  "	for i, l := range d.lanes {\n		l.ring.Cover(", new: "	c.answer(nil)\n	for i, l := range d.lanes {\n		l.ring.Cover(",
		pkg: "./backend/remote", run: "^TestRetireOrder$",
	}, {
		name: "a covered mark moves after span reuse", rule: "§4.2 order of retiring",
		file: "backend/remote/barrier.go", old: "		l.ring.Cover(c.to[i])",
		new: "		d.window.Free(i, c.from[i], c.to[i])\n		c.from[i] = c.to[i]\n		l.ring.Cover(c.to[i])",
		pkg: "./backend/remote", run: "^TestRetireOrder$",
	}, {
		name: "spans free before the replies", rule: "§4.2 order of retiring",
		file: "backend/remote/barrier.go", old: "	c.answer(nil)\n	if durable", new: "	d.free(c)\n	c.answer(nil)\n	if durable",
		pkg: "./backend/remote", run: "^TestRetireOrder$",
	}, {
		name: "places come back out of order", rule: "§4.2 a place is not given out before it was read",
		file: "backend/remote/barrier.go", old: "for !b.retired.empty() && (*b.retired.front()).answered {", new: "for !b.retired.empty() {",
		pkg: "./backend/remote", run: "^TestSpansComeBackInOrder$",
	}, {
		name: "FLUSH with nothing dirty is answered under doubt", rule: "§3.7, model F3",
		file: "backend/remote/barrier.go", old: "(i == 0 && b.inherits && len(c.ops)+len(b.listed) > 0)", new: "false",
		pkg: model, run: crashes,
	}, {
		name: "FLUSH of a new session that only read", rule: "§3.7 OPENED carried doubt",
		file: "backend/remote/session.go", old: "d.barriers.inherits = g.Flags&wire.OpenedDoubt != 0", new: "d.barriers.inherits = false",
		pkg: "./backend/remote", run: "^TestSameIDTakesItsOwnRegion$",
	}, {
		name: "a failed device says durable", rule: "§3.7 the failed state is tested first",
		file: "backend/remote/barrier.go", old: "		op.Err = err\n		op.Sink.Complete(op)\n	}\n}\n\n// start", new: "		op.Sink.Complete(op)\n	}\n}\n\n// start",
		pkg: model, run: crashes,
	}, {
		name: "FUA is not awaited", rule: "§3.7 FUA covers its write",
		file: "backend/remote/submit.go", old: "if op.FUA && op.Err == nil {", new: "if false {",
		pkg: model, run: crashes,
	}, {
		name: "FUA of a zero in parts ends with the first", rule: "§3.7 FUA covers its write",
		file: "nbd/receive.go", old: "	op.FUA = fua // the last part's barrier covers them all\n", new: "	_ = fua\n",
		pkg: "./nbd", run: "^TestZeroInParts$",
	}, {
		name: "a zero's range is not covered", rule: "§4.7 zeroes are covered",
		file: "backend/remote/queue.go",
		old:  "		e := l.ring.At(from)\n", new: "		e := l.ring.At(from)\n		if e.Kind == 2 {\n			continue\n		}\n",
		pkg: model, run: crashes,
	}, {
		name: "an op slips past a stopped queue", rule: "§4.7 what overlaps a zero waits",
		file: "backend/remote/post.go",
		old:  "			if l.zeroes.overlap(e.Off, uint64(e.Len)) {", new: "			if false {",
		pkg: "./backend/remote", run: "^TestStoppedQueueHoldsItsBarrier$",
	}, {
		name: "a READ slips past a stopped queue", rule: "§4.7 what overlaps a zero waits",
		file: "backend/remote/post.go",
		old:  "			if l.zeroes.overlap(p.off, uint64(p.len)) {", new: "			if false {",
		pkg: model, run: crashes,
	}, {
		name: "a barrier slips past a stopped queue", rule: "§4.7 barriers too",
		file: "backend/remote/post.go",
		old:  "			if l.zeroes.overlap(e.Off, uint64(e.Len)) {\n",
		new: `			if l.zeroes.overlap(e.Off, uint64(e.Len)) {
				for i := 1; i < l.queue.n; i++ {
					if b := &l.queue.ring[(l.queue.head+i)%len(l.queue.ring)]; b.kind == itemBarrier {
						*it, *b = *b, *it
						break
					}
				}
				if it.kind == itemBarrier {
					continue
				}
`,
		pkg: "./backend/remote", run: "^TestStoppedQueueHoldsItsBarrier$",
	}, {
		name: "a barrier is done by its Send", rule: "§4.6 by ack and Send",
		file: "backend/remote/gpspm.go", old: "if !p.sent || !p.acked {", new: "if !p.sent {",
		pkg: model, run: crashes,
	}, {
		name: "a barrier is done by its ack", rule: "§4.6 by ack and Send: its memory is free then",
		file: "backend/remote/gpspm.go", old: "if !p.sent || !p.acked {", new: "if !p.acked {",
		pkg: "./backend/remote", run: "^TestBarrierNeedsAckAndSend$",
	}, {
		name: "a credit comes back with the Send", rule: "§5 credits, the initiator's half",
		file: "backend/remote/gpspm.go",
		old:  "	g.parts[i].sent = true\n", new: "	g.parts[i].sent = true\n	g.free = append(g.free, i)\n",
		pkg: "./backend/remote", run: "^TestPartsKeepCredits$",
	}, {
		name: "a barrier is done with its first part", rule: "§4.6 the last part's ack covers all",
		file: "backend/remote/gpspm.go", old: "	return p.last\n", new: "	return true\n",
		pkg: "./backend/remote", run: "^TestPartsKeepCredits$",
	}, {
		name: "two pollers take turns", rule: "§4.5 what completes is handled in its order",
		file: "backend/remote/lane.go", old: "	l.polling.Lock()\n	defer l.polling.Unlock()\n	if n, err", new: "	if n, err",
		pkg: "./backend/remote", run: "^TestOnePollerAtATime$",
	}, {
		name: "Close does not flush", rule: "§6 SIGTERM",
		file: "backend/remote/close.go", old: "	d.commit(op)\n", new: "	last.Complete(op)\n",
		pkg: "./backend/remote", run: "^TestCloseFlushes$",
	},
}
