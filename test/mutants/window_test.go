package mutants

// window is of the window's bound in bytes, and of who waits for what (design §4.8).
var window = []mutant{
	{
		name: "what is received into counts as the window's", rule: "§4.8 receive chunks have a budget of their own",
		file: "nbd/receive.go", old: "		c.chunk = got[0]\n", new: "		if c.chunk = got[0]; c.pin() != nil {\n			return errStalled\n		}\n",
		pkg: "./nbd", run: "^TestReadsNeedNothingOfTheWindow$", hangs: true,
	}, {
		name: "a connection takes a second chunk to receive into", rule: "§4.8 one per connection",
		file: "nbd/receive.go", old: "		c.chunk.Release() // whoever", new: "		defer c.chunk.Release() // whoever",
		pkg: "./nbd", run: "^TestHeaderAcrossAChunksEnd$", hangs: true,
	}, {
		name: "who waits for a reservation keeps the batch's pins", rule: "§4.8 every wait has an owner",
		file: "nbd/receive.go", old: "	c.submit()\n	if !c.exp.reservations", new: "	if !c.exp.reservations",
		pkg: "./nbd", run: "^TestReservationBehindALargePayload$", hangs: true,
	}, {
		name: "who leaves keeps the entries it waited with", rule: "§4.8 nothing is lost or leaked",
		file: "nbd/receive.go", old: "		c.exp.arenas.Entries.Give(rq.op.Entries)\n", new: "",
		pkg: "./nbd", run: "^TestLeavingAFullWindow$", hangs: true,
	}, {
		name: "the window takes the chunks to receive into as well", rule: "§4.8 bounded in pinned bytes",
		file: "backend/window.go", old: "arena.LimitPins(chunks)", new: "arena.LimitPins(len(arena.chunks))",
		pkg: "./backend/remote", run: "^TestWindowIsExact$",
	}, {
		name: "unflushed payloads are not pinned", rule: "§4.8 bounded in pinned bytes",
		file: "backend/window.go", old: "		c.repin()\n", new: "",
		also: []edit{{"backend/window.go", "				c.Unpin()\n			}\n		}\n	}\n	w.entries.Give", "			}\n		}\n	}\n	w.entries.Give"}},
		pkg:  "./backend/remote", run: "^TestWindowIsExact$",
	}, {
		name: "no barrier for who waits with half of the window clean", rule: "§4.8 every wait has an owner",
		file: "backend/window.go", old: "pins.Waiting() || w.entries.Waiting() ||", new: "",
		pkg: "./backend/remote", run: "^TestWaitBeforeTheWritesThatItWaitsFor$", hangs: true,
	},
}
