package mutants

// clients is of what one NBD client does, and what others must not notice of it (design
// §4.2, §4.8).
var clients = []mutant{
	{
		name: "the common chunks are all of the read arena", rule: "§4.2 a cap per connection",
		in:  "nbd.newExport",
		old: "backend.NewBudget(sinks - maxConns*ownSinks)", new: "backend.NewBudget(sinks)",
		pkg: "./nbd", run: "^TestSilentReaders$", hangs: true,
	}, {
		name: "a connection may hold any number of chunks", rule: "§4.2 a cap per connection",
		in:  "nbd.conn.mayHoldLocked",
		old: "c.held == 0 || c.held+n <= c.exp.sinkCap", new: "true",
		pkg: "./nbd", run: "^TestNeverReading$", hangs: true,
	}, {
		name: "replies come between the parts of a READ", rule: "§4.2 a cap per connection",
		in:  "nbd.conn.readInParts",
		old: "== maxInFlight-1", new: "> 0",
		pkg: "./nbd", run: "^TestNothingBetweenParts$", hangs: true,
	}, {
		name: "a part that fails behind others is an error reply", rule: "§4.2 a cap per connection",
		in:  "nbd.conn.Complete",
		old: "if rq.headed && op.Err != nil && c.broken == nil {", new: "if false {",
		pkg: "./nbd", run: "^TestPartFails$", hangs: true,
	}, {
		name: "a client is cut off for its own part", rule: "§4.8 a minimum pace",
		in:  "nbd.conn.writeBacklog",
		old: "&& c.common > 0", new: "",
		pkg: "./nbd", run: "^TestOwnPartIsNobodyElses$", hangs: true,
	}, {
		name: "a client is cut off though nobody goes short", rule: "§4.8 a minimum pace",
		in:  "nbd.conn.writeBacklog",
		old: "short.Load() != before:", new: "short.Load() >= before:",
		pkg: "./nbd", run: "^TestStalled$", hangs: true,
	}, {
		name: "a client that fetches nothing is not cut off", rule: "§4.8 a minimum pace",
		in:  "nbd.conn.readInParts",
		old: "c.exp.short.Add(1)", new: "",
		pkg: "./nbd", run: "^TestStalled$", hangs: true,
	}, {
		name: "each export divides the memory of its device anew", rule: "§4.8 reservations are half of the window",
		in:  "nbd.newExport",
		old: "memories[x.arenas] = x.memory", new: "",
		pkg: "./nbd", run: "^TestExportsOfOneDevice$",
	}, {
		name: "a small WRITE waits for the payloads of others", rule: "§4.8 every wait has an owner",
		in:  "nbd.conn.reserve",
		old: "if c.missing <= backend.ChunkSize {", new: "if false {",
		pkg: "./nbd", run: "^TestHalfPayloads$", hangs: true,
	}, {
		name: "a host pushes out those of others who negotiate", rule: "one client does not keep others out",
		in:  "nbd.Server.slowestLocked",
		old: "negotiate[c.host]++", new: "negotiate[c.host] = 1",
		pkg: "./nbd", run: "^TestSilentClientsOfOneHost$",
	}, {
		name: "a client that is gone when it is answered makes a warning", rule: "a client may leave while negotiating",
		in:  "nbd.left",
		old: "io.ErrUnexpectedEOF, syscall.EPIPE,", new: "io.ErrUnexpectedEOF,",
		pkg: "./nbd", run: "^TestLeavingWhileNegotiating$",
	},
}
