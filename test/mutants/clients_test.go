package mutants

// clients are mutants of what one NBD client does, and of what others must not notice of it
// (design §4.2, §4.8).
var clients = []mutant{
	{
		name: "the common chunks are the whole read arena", rule: "§4.2 a cap per connection",
		in:  "nbd.newExport",
		old: "backend.NewBudget(sinks - maxConns*ownSinks)", new: "backend.NewBudget(sinks)",
		pkg: "./nbd", run: "^TestSilentReaders$", hangs: true,
	}, {
		name: "a connection may hold any number of chunks", rule: "§4.2 a cap per connection",
		in:  "nbd.conn.mayHoldLocked",
		old: "c.held == 0 || c.held+n <= c.exp.sinkCap", new: "true",
		pkg: "./nbd", run: "^TestNeverReading$", hangs: true,
	}, {
		name: "other replies come between the parts of a READ", rule: "§4.2 a cap per connection",
		in:  "nbd.conn.readInParts",
		old: "== maxInFlight-1", new: "> 0",
		pkg: "./nbd", run: "^TestNothingBetweenParts$", hangs: true,
	}, {
		name: "a part that fails after others makes an error reply", rule: "§4.2 a cap per connection",
		in:  "nbd.conn.Complete",
		old: "if rq.headed && c.terms.replies == simple && op.Err != nil && c.broken == nil {", new: "if false {",
		pkg: "./nbd", run: "^TestPartFails$", hangs: true,
	}, {
		name: "a client is disconnected for using its own share", rule: "§4.8 a minimum pace",
		in:  "nbd.conn.writeBacklog",
		old: "&& c.common > 0", new: "",
		pkg: "./nbd", run: "^TestOwnPartIsNobodyElses$", hangs: true,
	}, {
		name: "a client is disconnected although nobody needs memory", rule: "§4.8 a minimum pace",
		in:  "nbd.conn.writeBacklog",
		old: "short.Load() != before ||", new: "short.Load() >= before ||",
		pkg: "./nbd", run: "^TestStalled$", hangs: true,
	}, {
		name: "a client that reads nothing is not disconnected", rule: "§4.8 a minimum pace",
		in:  "nbd.conn.readInParts",
		old: "c.exp.short.Add(1)", new: "",
		pkg: "./nbd", run: "^TestStalled$", hangs: true,
	}, {
		name: "a client whose small READs wait for each other does not go short", rule: "§4.8 a minimum pace",
		in:  "nbd.conn.awaitSinks",
		old: "c.exp.short.Add(1)", new: "",
		pkg: "./nbd", run: "^TestSmallReadsGoShort$", hangs: true,
	}, {
		name: "a client whose READ with DF is refused does not go short", rule: "§4.8 a minimum pace",
		in:  "nbd.conn.beginRead",
		old: "c.exp.short.Add(1)", new: "",
		pkg: "./nbd", run: "^TestSmallReadsGoShort$", hangs: true,
	}, {
		name: "nobody is cut off for a block device that goes short", rule: "§4.8 a minimum pace",
		in:  "nbd.conn.writeBacklog",
		old: "|| c.exp.arenas.Read.Waiting()", new: "",
		pkg: "./nbd", run: "^TestAnotherUserGoesShort$",
	}, {
		name: "a client that is cut off stays while its WRITE waits for room", rule: "docs/rules.md: a client that the server cuts off leaves at once",
		in:  "nbd.conn.failLocked",
		old: "c.kill()", new: "c.interrupt()",
		pkg: "./nbd", run: "^TestCutWhileWaiting$", hangs: true,
	}, {
		name: "each export hands out all memory of its device", rule: "§4.8 reservations take half of the window",
		in:  "nbd.newExport",
		old: "memories[x.arenas] = x.memory", new: "",
		pkg: "./nbd", run: "^TestExportsOfOneDevice$",
	}, {
		name: "a client comes back only by its own export", rule: "§6.5 no stale write",
		in:  "nbd.export.enter",
		old: "x.present == 1", new: "len(x.live) == 1",
		pkg: "./nbd", run: "^TestGone$",
	}, {
		name: "a small WRITE waits for other clients' payloads", rule: "§4.8 every wait has an owner",
		in:  "nbd.conn.reserve",
		old: "if c.missing <= backend.ChunkSize {", new: "if false {",
		pkg: "./nbd", run: "^TestHalfPayloads$", hangs: true,
	}, {
		name: "a host pushes out the negotiating clients of others", rule: "one client does not keep others out",
		in:  "nbd.Server.slowestLocked",
		old: "negotiate[c.host]++", new: "negotiate[c.host] = 1",
		pkg: "./nbd", run: "^TestSilentClientsOfOneHost$",
	}, {
		name: "the deadline ends before the connection is taken over", rule: "docs/rules.md: the negotiation has a deadline",
		in:  "nbd.conn.handshake",
		old: "return agreed, err", new: "_ = c.nc.SetWriteDeadline(time.Time{}); return agreed, err",
		pkg: "./nbd", run: "^TestNotTakenOver$",
	}, {
		name: "a client that leaves before its reply is logged as a warning", rule: "a client may leave while negotiating",
		in:  "nbd.left",
		old: "io.ErrUnexpectedEOF, syscall.EPIPE,", new: "io.ErrUnexpectedEOF,",
		pkg: "./nbd", run: "^TestLeavingWhileNegotiating$",
	}, {
		name: "a connection closes before the client has its replies", rule: "docs/rules.md: a client gets every reply to what was read",
		in:  "internal/sockio.Socket.Linger",
		old: "unsent == 0", new: "unsent >= 0",
		pkg: "./internal/sockio", run: "^TestLinger$",
	},
}
