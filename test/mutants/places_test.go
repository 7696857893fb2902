package mutants

// places is of what a lane's mutex fixes: an op's place among all others.
var places = []mutant{
	{
		name: "a piece is numbered before its lane's mutex", rule: "§4.2 numbers are the order of the queue",
		file: "backend/window.go", old: "	e.Number = w.number.Add(1)\n",
		new: "	if e.Number == 0 {\n		e.Number = w.Number()\n	}\n",
		also: []edit{
			{"backend/window.go", "// Free releases", "func (w *Window) Number() uint64 { return w.number.Add(1) }\n\n// Free releases"},
			{"backend/remote/submit.go", "			l.mu.Lock()\n			s.l = l\n", "			number := s.d.window.Number()\n			l.mu.Lock()\n			s.l, l.number = l, number\n"},
			{"backend/remote/lane.go", "	current uint64     // the barrier that was queued last\n", "	current uint64\n	number  uint64\n"},
			{
				"backend/remote/lane.go",
				"Src: src, Len: n, Kind: backend.EntryData})\n", "Src: src, Len: n, Kind: backend.EntryData, Number: l.number})\n	l.number = 0\n",
			},
		},
		pkg: "./backend/remote", run: "^TestNumberIsDrawnUnderTheMutex$",
	}, {
		name: "ranges are collected before the lane's mutex", rule: "§4.6 the same hold of the mutex",
		file: "backend/remote/barrier.go", old: "		l.mu.Lock()\n		if l.behind {", new: "		to := l.ring.Head()\n		l.mu.Lock()\n		if l.behind {",
		also: []edit{{"backend/remote/barrier.go", "l.enqueueBarrier(b.seq, c.from[i], c.to[i], method)", "l.enqueueBarrier(b.seq, c.from[i], to, method)"}},
		pkg:  "./backend/remote", run: "^TestRangesAreCollectedUnderTheMutex$",
	}, {
		name: "the hang-up check before the lane's mutex", rule: "§6 under each lane's mutex",
		file: "backend/remote/submit.go",
		old:  "			l.mu.Lock()\n			s.l = l\n			s.gone = s.gone || op.Sink.Gone()\n",
		new:  "			s.gone = s.gone || op.Sink.Gone()\n			l.mu.Lock()\n			s.l = l\n",
		pkg:  "./backend/remote", run: "^TestHangUpIsAskedUnderTheMutex$",
	}, {
		name: "the hang-up check on an op's first lane alone", rule: "§6 under each lane's mutex",
		file: "backend/remote/submit.go", old: "s.gone = s.gone || op.Sink.Gone()", new: "s.gone = s.gone || off == op.Off && op.Sink.Gone()",
		pkg: "./backend/remote", run: "^TestHangUpIsAskedUnderTheMutex$",
	}, {
		name: "no hang-up check", rule: "§6 bytes of a connection that its client closed",
		file: "backend/remote/submit.go", old: "s.gone = s.gone || op.Sink.Gone()", new: "",
		pkg: "./backend/remote", run: "^TestConformance$",
	}, {
		name: "stale bytes of a closed NBD connection", rule: "§6 they are not submitted",
		file: "nbd/reply.go", old: "	return c.sock.HungUp()\n", new: "	return false\n",
		pkg: "./nbd", run: "^TestGone$",
	}, {
		name: "the hang-up check is skipped by a connection that is alone again", rule: "§6, model F7",
		file: "nbd/reply.go", old: "c.alone && c.exp.entered.Load() == c.number", new: "c.alone",
		pkg: "./nbd", run: "^TestGone$",
	},
}
