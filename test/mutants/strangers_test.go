package mutants

// strangers is of connections that have no session, and of holders of a key that take
// more than their share of the target.
var strangers = []mutant{
	{
		name: "the newest stranger is refused", rule: "strangers keep no owner out",
		file: "persist/target/strangers.go",
		old:  "		away = (*places)[i]\n		*places = slices.Delete(*places, i, i+1)\n		away.evicted = true\n		s.leaving++\n",
		new:  "		_, c.evicted = i, true\n		s.leaving++\n		return c\n",
		pkg:  "./backend/remote", run: "^TestSessionComesBackInAFlood$", hangs: true,
	}, {
		name: "the oldest stranger of all loses its place", rule: "strangers of one address keep no other out",
		file: "persist/target/strangers.go", old: "i := rdma.Crowded(*places, func(c *conn) netip.Prefix { return c.source })", new: "i := 0 * rdma.Crowded(*places, func(c *conn) netip.Prefix { return c.source })",
		pkg: "./persist/target", run: "^TestWhoLosesItsPlace$",
	}, {
		name: "a lane with a proof is a stranger", rule: "a proven connection request has a place",
		file: "persist/target/target.go", old: "	if !lane {\n		s.stranger(c, silent)\n", new: "	if true {\n		s.stranger(c, silent)\n",
		pkg: "./persist/target", run: "^TestStrangersKeepNobodyOut$",
	}, {
		name: "a key makes no difference among strangers", rule: "a proven key has places of its own",
		file: "persist/target/grant.go", old: "		at = proven\n", new: "",
		pkg: "./persist/target", run: "^TestProvenStrangers$",
	}, {
		name: "strangers that were ended are not waited for", rule: "what strangers hold is bounded",
		file: "persist/target/strangers.go", old: "	for s.leaving >= maxStrangers {\n", new: "	for false {\n",
		pkg: "./persist/target", run: "^TestLeavingIsBounded$",
	}, {
		name: "an adapter's request is not abandoned", rule: "strangers keep no owner out",
		file: "persist/target/conn.go", old: "		c.req.Abandon()\n", new: "",
		pkg: "./persist/target", run: "^TestUnconfirmedStrangers$", hangs: true,
	}, {
		name: "those who prove nothing have as long as others", rule: "strangers: a short time until the proof",
		file: "persist/target/conn.go", old: "limit := s.cfg.ProofTimeout", new: "limit := s.cfg.OpenTimeout",
		pkg: "./persist/target", run: "^TestStrangersTime$", hangs: true,
	}, {
		name: "a flood from one address ends the half-open connection of another", rule: "strangers of one address keep no other out",
		file: "rdma/iwarp/listener.go", old: "i := rdma.Crowded(ln.halfOpen, func(h halfOpen) netip.Prefix { return h.source })", new: "i := 0 * rdma.Crowded(ln.halfOpen, func(h halfOpen) netip.Prefix { return h.source })",
		pkg: "./rdma/iwarp", run: "^TestHalfOpenConnectionsOfAnotherAddress$", hangs: true,
	}, {
		name: "every user of the machine is served without a key", rule: "without keys loopback serves root and the target's own user",
		file: "cmd/internal/localuser/localuser.go", old: "case uid != 0 && uid != p.own:", new: "case false:",
		pkg: "./cmd/internal/localuser", run: "^TestAdmit$",
	}, {
		name: "nobody asks for the user", rule: "without keys loopback serves root and the target's own user",
		file: "cmd/pmnbd-target/serve.go", old: "if !c.authenticated() && !c.Insecure {\n		p.Admit", new: "if false {\n		p.Admit",
		pkg: "./cmd/pmnbd-target", run: "^TestUsersAreLookedAt$",
	}, {
		name: "a socket that was closed is root's", rule: "what the kernel does not say lets nobody in",
		file: "cmd/internal/localuser/diag.go", old: "if b[1] != established || binary.NativeEndian.Uint32(b[inodeAt:]) == 0 {", new: "if false {",
		pkg: "./cmd/internal/localuser", run: "^TestAnswers$",
	}, {
		name: "a listener is taken for a connection", rule: "what the kernel does not say lets nobody in",
		file: "cmd/internal/localuser/diag.go", old: "if at != unmapped(socket) || to != unmapped(peer) {", new: "if at != unmapped(socket) && to != unmapped(peer) {",
		pkg: "./cmd/internal/localuser", run: "^TestAnswers$",
	}, {
		name: "users that are not known are all one", rule: "what the kernel does not say lets nobody in",
		file: "cmd/internal/localuser/localuser.go", old: "case uid == p.overflow:", new: "case false:",
		pkg: "./cmd/internal/localuser", run: "^TestAdmit$",
	}, {
		name: "an adapter on loopback is free for all", rule: "an adapter needs keys",
		file: "cmd/pmnbd-target/config.go", old: "case l.Provider != \"iwarp\":", new: "case false:",
		pkg: "./cmd/pmnbd-target", run: "^TestBeyondLoopback$",
	}, {
		name: "a listener does not ask whom to admit", rule: "without keys loopback serves root and the target's own user",
		file: "rdma/iwarp/listener.go", old: "if err := ln.admitted(nc); err != nil {", new: "if err := error(nil); err != nil {",
		pkg: "./rdma/iwarp", run: "^TestAdmit$",
	}, {
		name: "a barrier writes back what it names twice", rule: "a barrier writes each byte back once",
		file: "persist/target/writeback.go", old: "return c.writeBackMuch(merge(ranges))", new: "return c.writeBackMuch(ranges)",
		pkg: "./persist/target", run: "^TestBarrierWritesBackOnce$",
	}, {
		name: "a grant waits for a whole barrier", rule: "a grant waits for a step of a flush",
		file: "persist/target/writeback.go", old: "if c.dead.Load() {", new: "if false {",
		pkg: "./persist/target", run: "^TestTakeoverDuringABarrier$",
	}, {
		name: "a refusal moves the cursor", rule: "text of a peer reaches people as plain text",
		file: "persist/wire/header.go", old: "fit(plain.Text(string(b[1 : 1+int(b[0])])))", new: "fit(string(b[1 : 1+int(b[0])]) + plain.Text(\"\"))",
		pkg: "./persist/wire", run: "^TestTexts$",
	}, {
		name: "a rejection moves the cursor", rule: "text of a peer reaches people as plain text",
		file: "rdma/errors.go", old: "refused by the peer: %q", new: "refused by the peer: \\\"%s\\\"",
		pkg: "./rdma", run: "^TestRejectError$",
	}, {
		name: "a status moves the cursor", rule: "text of a peer reaches people as plain text",
		file: "status/find.go", old: "		return plain.Text(v)\n", new: "		return v\n",
		pkg: "./status", run: "^TestWhatIsFoundIsPlain$",
	}, {
		name: "a log line moves the cursor", rule: "commands and logs print plain text",
		file: "cmd/internal/daemon/daemon.go", old: "w.Writer.Write(plain.JSON(b))", new: "w.Writer.Write(append(b, plain.JSON(nil)...))",
		pkg: "./cmd/internal/daemon", run: "^TestLogIsPlain$",
	},
}
