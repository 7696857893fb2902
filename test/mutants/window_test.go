package mutants

// window are mutants of the window's bound in bytes, and of who waits for what (design §4.8).
var window = []mutant{
	{
		name: "receive memory counts as the window's", rule: "§4.8 receive chunks have a budget of their own",
		in:  "nbd.conn.makeRoom",
		old: "c.chunk = got[0]", new: "c.chunk = got[0]; pin := func(stop <-chan struct{}) error { _, err := c.room.Reserve(c.chunk, nil, 0, stop); return err }; if c.submit(); c.await(pin) != nil { return errStalled }",
		pkg: "./nbd", run: "^TestReadsNeedNothingOfTheWindow$", hangs: true,
	}, {
		name: "a connection takes a second receive chunk", rule: "§4.8 one receive chunk per connection",
		in:  "nbd.conn.makeRoom",
		old: "c.chunk.Release()", new: "defer c.chunk.Release()",
		pkg: "./nbd", run: "^TestHeaderAcrossAChunksEnd$", hangs: true,
	}, {
		name: "a client that waits for a reservation keeps its batch's pins", rule: "§4.8 every wait has an owner",
		in:  "nbd.conn.reserve",
		old: "c.submit(); if !c.exp.reservations", new: "if !c.exp.reservations",
		pkg: "./nbd", run: "^TestReservationBehindALargePayload$", hangs: true,
	}, {
		name: "a client that leaves keeps the pins with which it waited", rule: "§4.8 nothing is lost or leaked",
		in:  "nbd.conn.dropReceived",
		old: "c.room.Unpin()", new: "",
		pkg: "./nbd", run: "^TestHangUpWhileWaiting$", hangs: true,
	}, {
		name: "entries are taken before the pins", rule: "§4.8 every wait has an owner",
		in:  "backend.Admission.Admit",
		old: "for c := a.missing(op)", new: "if a.arenas.Entries != nil { if err := a.arenas.Entries.Take(a.arenas.Entries.of(op), stop); err != nil { return err } }; for c := a.missing(op)",
		also: []edit{{"backend.Admission.Admit", "return a.arenas.Entries.Take(a.arenas.Entries.of(op), stop)", "return nil"}},
		pkg:  "./nbd", run: "^TestLeavingAFullWindow$",
	}, {
		name: "the window takes the receive chunks as well", rule: "§4.8 bounded in pinned bytes",
		in:  "backend.NewWindowOn",
		old: "arena.limitPins(chunks)", new: "arena.limitPins(len(arena.chunks))",
		pkg: "./backend/remote", run: "^TestWindowIsExact$",
	}, {
		name: "unflushed payloads are not pinned", rule: "§4.8 bounded in pinned bytes",
		in:  "backend.Window.pin",
		old: "c.repin()", new: "",
		also: []edit{{"backend.Window.Free", "c.unpin() } } }; w.entries.Give", "} } }; w.entries.Give"}},
		pkg:  "./backend/remote", run: "^TestWindowIsExact$",
	}, {
		name: "no barrier comes for a client that waits while half of the window is clean", rule: "§4.8 every wait has an owner",
		in:  "backend.Window.HalfFull",
		old: "pins.Waiting() || w.entries.Waiting() ||", new: "",
		pkg: "./backend/remote", run: "^TestWaitBeforeTheWritesThatItWaitsFor$", hangs: true,
	},
}
