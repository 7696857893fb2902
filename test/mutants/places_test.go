package mutants

// places are mutants of what a stream's mutex fixes: the place of an op among all others.
var places = []mutant{
	{
		name: "a piece is numbered before the stream's mutex is held", rule: "§4.2 numbers follow the order of the queue",
		in:  "backend.Window.Publish",
		old: "e.Number = w.number.Add(1)", new: "if e.Number == 0 { e.Number = w.Number() }",
		also: []edit{
			{"backend.Window.Publish", "", "func (w *Window) Number() uint64 { return w.number.Add(1) }"},
			{"backend/remote.submission.run", "to.mu.Lock(); s.locked = to", "s.number = to.core.window.Number(); to.mu.Lock(); s.locked = to"},
			{"backend/remote.submission.run", "n := min(", "to.number, s.number = s.number, 0; n := min("},
			{"backend/remote.submission", "gone bool", "gone bool; number uint64"},
			{"backend/remote.stream", "wrote uint64", "wrote uint64; number uint64"},
			{"backend/remote.stream.writeLocked", "Src: src, Len: n, Kind: backend.EntryData})", "Src: src, Len: n, Kind: backend.EntryData, Number: s.number}); s.number = 0"},
		},
		pkg: "./backend/remote", run: "^TestNumberIsDrawnUnderTheMutex$",
	}, {
		name: "ranges are collected before the stream's mutex is held", rule: "§4.6 under the mutex that queues the barrier",
		in:  "backend/remote.stream.enqueueBarrier",
		old: "s.mu.Lock();", new: "to := s.ring.Head(); s.mu.Lock();",
		also: []edit{{"backend/remote.stream.enqueueBarrier", "pushBarrierLocked(seq, p.from, p.to, doubt)", "pushBarrierLocked(seq, p.from, to, doubt)"}},
		pkg:  "./backend/remote", run: "^TestRangesAreCollectedUnderTheMutex$",
	}, {
		name: "the hang-up check comes before the stream's mutex is held", rule: "§6 the check is under each stream's mutex",
		in:  "backend/remote.submission.run",
		old: "to.mu.Lock(); s.locked = to; s.gone = s.gone || op.Sink.Gone()",
		new: "s.gone = s.gone || op.Sink.Gone(); to.mu.Lock(); s.locked = to",
		pkg: "./backend/remote", run: "^TestHangUpIsAskedUnderTheMutex$",
	}, {
		name: "the hang-up check covers only an op's first stream", rule: "§6 the check is under each stream's mutex",
		in:  "backend/remote.submission.run",
		old: "s.gone = s.gone || op.Sink.Gone()", new: "s.gone = s.gone || off == op.Off && op.Sink.Gone()",
		pkg: "./backend/remote", run: "^TestHangUpIsAskedUnderTheMutex$",
	}, {
		name: "a failure does not wait for ops that are enqueued", rule: "§6 they complete with an error, and the window is freed",
		in:  "backend/remote.core.end",
		old: "x.quiesce();", new: "",
		pkg: "./backend/remote", run: "^TestEndWaitsForOpsThatAreEnqueued$",
	}, {
		name: "a socket's descriptor is closed under a thread that waits", rule: "§4.10 a descriptor is open while a call uses it",
		in:  "internal/sockio.Socket.leave",
		old: "s.users.Add(-1) == closing", new: "s.users.Add(-1)&closing != 0",
		pkg: "./internal/sockio", run: "^TestADescriptorOutlivesItsUsers$",
	}, {
		name: "a read asks an empty socket before it waits", rule: "§4.10 a message takes one or two system calls",
		in:  "internal/sockio.Socket.read",
		old: "err == nil && n < len(p)", new: "false",
		pkg: "./internal/sockio", run: "^TestAMessageTakesOneSystemCall$",
	}, {
		name: "a reader asks whether something is there before each read", rule: "§4.10 a message takes one or two system calls",
		in:  "internal/sockio.Socket.mayBlock",
		old: "s.in.until.Load() == 0", new: "false",
		pkg: "./internal/sockio", run: "^TestAMessageTakesOneSystemCall$",
	}, {
		name: "a reader that blocks in recv hears of no deadline", rule: "§4.10 a deadline is heard", hangs: true,
		in:  "internal/sockio.New",
		old: "block(s.fd, brief)", new: "block(s.fd, time.Hour)",
		pkg: "./internal/sockio", run: "^TestDeadlineOfABlockedReader$",
	}, {
		name: "a connection is given away with our options", rule: "docs/attach.md: the kernel's client gets it as it was",
		in:  "internal/sockio.Socket.Detach",
		old: "block(s.fd, 0)", new: "error(nil)",
		pkg: "./internal/sockio", run: "^TestDetachUndoesNew$",
	}, {
		name: "there is no hang-up check", rule: "§6 bytes of a client that has hung up are not submitted",
		in:  "backend/remote.submission.run",
		old: "s.gone = s.gone || op.Sink.Gone()", new: "",
		pkg: "./backend/remote", run: "^TestConformance$",
	}, {
		name: "stale bytes of a closed NBD connection are submitted", rule: "§6 bytes of a client that has hung up are not submitted",
		in:  "nbd.conn.Gone",
		old: "return c.sock.HungUp()", new: "return false",
		pkg: "./nbd", run: "^TestGone$",
	}, {
		name: "a connection that is alone again skips the hang-up check", rule: "§6, model F7",
		in:  "nbd.conn.Gone",
		old: "c.alone && c.exp.turns.Load() == c.turn", new: "c.alone",
		pkg: "./nbd", run: "^TestGone$",
	},
}
