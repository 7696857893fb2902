package mutants

// strangers are mutants of connections without a session, and of initiators with a key that
// take more than their share of the target.
var strangers = []mutant{
	{
		name: "the newest stranger is refused, not the oldest", rule: "strangers do not keep an owner out",
		in:  "persist/target.strangers.enter",
		old: "away = (*places)[i]; *places = slices.Delete(*places, i, i+1); away.evicted = true; s.leaving++",
		new: "_, c.evicted = i, true; s.leaving++; return c",
		pkg: "./backend/remote", run: "^TestSessionComesBackInAFlood$", hangs: true,
	}, {
		name: "the oldest stranger of any address loses its place", rule: "strangers of one address do not keep others out",
		in:  "persist/target.strangers.enter",
		old: "i := source.Crowded(*places, func(c *conn) netip.Prefix { return c.source })",
		new: "i := 0 * source.Crowded(*places, func(c *conn) netip.Prefix { return c.source })",
		pkg: "./persist/target", run: "^TestWhoLosesItsPlace$",
	}, {
		name: "a lane with a proof is a stranger", rule: "a lane that proved its key has a place",
		in:  "persist/target.Server.take",
		old: "if !lane { s.stranger(c, silent)", new: "if true { s.stranger(c, silent)",
		pkg: "./persist/target", run: "^TestStrangersKeepNobodyOut$",
	}, {
		name: "a proven key makes no difference among strangers", rule: "initiators with a proven key have places of their own",
		in:  "persist/target.conn.standBy",
		old: "at = proven", new: "",
		pkg: "./persist/target", run: "^TestProvenStrangers$",
	}, {
		name: "nobody waits for the end of a disconnected stranger", rule: "what strangers can hold is bounded",
		in:  "persist/target.strangers.wait",
		old: "for s.leaving >= maxStrangers {", new: "for false {",
		pkg: "./persist/target", run: "^TestLeavingIsBounded$",
	}, {
		name: "a connection request of an adapter is never abandoned", rule: "strangers do not keep an owner out",
		in:  "persist/target.conn.interrupt",
		old: "c.req.Abandon()", new: "",
		pkg: "./persist/target", run: "^TestUnconfirmedStrangers$", hangs: true,
	}, {
		name: "a connection without proof has as long as any other", rule: "a stranger has a short time for its proof",
		in:  "persist/target.conn.serve",
		old: "limit := s.cfg.ProofTimeout", new: "limit := s.cfg.OpenTimeout",
		pkg: "./persist/target", run: "^TestStrangersTime$", hangs: true,
	}, {
		name: "a flood from one address ends the half-open connection of another", rule: "strangers of one address do not keep others out",
		in:  "rdma/iwarp.listener.hold",
		old: "i := source.Crowded(ln.halfOpen, func(h halfOpen) netip.Prefix { return h.source })",
		new: "i := 0 * source.Crowded(ln.halfOpen, func(h halfOpen) netip.Prefix { return h.source })",
		pkg: "./rdma/iwarp", run: "^TestHalfOpenConnectionsOfAnotherAddress$", hangs: true,
	}, {
		name: "every user of the machine is served without a key", rule: "without keys loopback serves root and the target's own user",
		in:  "cmd/internal/localuser.Policy.Allow",
		old: "case uid != 0 && uid != p.own:", new: "case false:",
		pkg: "./cmd/internal/localuser", run: "^TestAllow$",
	}, {
		name: "the target does not ask for the user", rule: "without keys loopback serves root and the target's own user",
		in:  "cmd/pmnbd-target.config.transport",
		old: "if !c.authenticated() && !c.Insecure { p.Allow", new: "if false { p.Allow",
		pkg: "./cmd/pmnbd-target", run: "^TestUsersAreLookedAt$",
	}, {
		name: "a closed socket counts as root's", rule: "an unknown user is not served",
		in:  "cmd/internal/localuser.user",
		old: "if b[1] != established || binary.NativeEndian.Uint32(b[inodeAt:]) == 0 {", new: "if false {",
		pkg: "./cmd/internal/localuser", run: "^TestAnswers$",
	}, {
		name: "a listening socket counts as a connection", rule: "an unknown user is not served",
		in:  "cmd/internal/localuser.user",
		old: "if at != unmapped(socket) || to != unmapped(peer) {",
		new: "if at != unmapped(socket) && to != unmapped(peer) {",
		pkg: "./cmd/internal/localuser", run: "^TestAnswers$",
	}, {
		name: "all unmapped users count as one", rule: "an unknown user is not served",
		in:  "cmd/internal/localuser.Policy.Allow",
		old: "case uid == p.overflow:", new: "case false:",
		pkg: "./cmd/internal/localuser", run: "^TestAllow$",
	}, {
		name: "an adapter on loopback needs no key", rule: "an adapter needs keys",
		in:  "cmd/pmnbd-target.config.checkListener",
		old: `case l.Provider != "iwarp":`, new: "case false:",
		pkg: "./cmd/pmnbd-target", run: "^TestBeyondLoopback$",
	}, {
		name: "a listener does not ask which users to allow", rule: "without keys loopback serves root and the target's own user",
		in:  "rdma/iwarp.listener.readRequest",
		old: "if err := ln.allowed(nc); err != nil {", new: "if err := error(nil); err != nil {",
		pkg: "./rdma/iwarp", run: "^TestAllow$",
	}, {
		name: "a barrier writes overlapping ranges back twice", rule: "a barrier writes each byte back once",
		in:  "persist/target.conn.hand",
		old: "merge(slices.Clone(b.Ranges))", new: "slices.Clone(b.Ranges)",
		pkg: "./persist/target", run: "^TestBarrierWritesBackOnce$",
	}, {
		name: "a grant waits for a whole barrier", rule: "a grant waits for one step of a flush",
		in:  "persist/target.syncer.writeBack",
		old: "if j.c.ends() {", new: "if false {",
		pkg: "./persist/target", run: "^TestTakeoverDuringABarrier$",
	}, {
		name: "a lane goes on behind its interruption", rule: "§3.8: a grant waits for a step of a flush at most",
		in:  "persist/target.conn.flush",
		old: "c.dead.Load()", new: "false",
		pkg: "./persist/target", run: "^TestNothingAfterAnInterrupt$",
	}, {
		name: "CLOSE waits for a whole barrier", rule: "a grant waits for one step of a flush",
		in:  "persist/target.syncer.forget",
		old: "c.leaves.Store(true)", new: "c.leaves.Store(c.dead.Load())",
		pkg: "./persist/target", run: "^TestCloseDuringAWriteBack$", hangs: true,
	}, {
		name: "a part that names nothing follows a part that failed, and counts as durable", rule: "no acknowledgement after a failure",
		in:  "persist/target.syncer.finish",
		old: "err = y.e.r.Failed()", new: "",
		pkg: "./persist/target", run: "^TestWriteBackFails$",
	}, {
		name: "parts keep their credits after their answers", rule: "an answer gives a credit back",
		in:  "persist/target.syncer.work",
		old: "y.answered++", new: "",
		pkg: "./persist/target", run: "^TestAnswersGiveCreditsBack$", hangs: true,
	}, {
		name: "a lane writes back as much as a barrier names", rule: "what a lane's messages wait for at the target is bounded",
		in:  "persist/target.conn.beside",
		old: "if g.Len > left {", new: "if false {",
		pkg: "./persist/target", run: "^TestHeartbeatsDuringAWriteBack$", hangs: true,
	}, {
		name: "a lane writes back as much as a barrier names of a part that is no file", rule: "what a lane's messages wait for at the target is bounded",
		in:  "persist/target.conn.flush",
		old: "e.r.Notes()", new: "false",
		pkg: "./persist/target", run: "^TestHeartbeatsDuringAWriteBack$", hangs: true,
	}, {
		name: "a small part of a barrier overtakes a large one", rule: "the target answers parts of barriers in their order",
		in:  "persist/target.conn.beside",
		old: "if c.follows() {", new: "if false {",
		pkg: "./persist/target", run: "^TestHeartbeatsDuringAWriteBack$",
	}, {
		name: "a part of a barrier overtakes an older sync", rule: "the target answers parts of barriers in their order",
		in:  "persist/target.conn.flush",
		old: "(b.Last || c.follows())", new: "b.Last",
		pkg: "./persist/target", run: "^TestPartsWaitForAnOlderSync$",
	}, {
		name: "a session's parts of barriers outlive its CLOSE", rule: "docs/protocol.md, overwriting: a barrier of the same session",
		in:  "persist/target.session.endLease",
		old: "e.settlings.forget(s.conn)", new: "",
		pkg: "./persist/target", run: "^TestSettlingsEndWithTheirSession$",
	}, {
		name: "a refusal moves the cursor", rule: "a peer's text reaches people as plain text",
		in:  "persist/wire.text",
		old: "fit(plain.Text(string(b[1 : 1+int(b[0])])))", new: `fit(string(b[1 : 1+int(b[0])]) + plain.Text(""))`,
		pkg: "./persist/wire", run: "^TestTexts$",
	}, {
		name: "a rejection moves the cursor", rule: "a peer's text reaches people as plain text",
		in:  "rdma.RejectError.Error",
		old: `"connection refused by the peer: %q"`, new: `"connection refused by the peer: \"%s\""`,
		pkg: "./rdma", run: "^TestRejectError$",
	}, {
		name: "a status moves the cursor", rule: "a peer's text reaches people as plain text",
		in:  "cmd/internal/status.plainly",
		old: "return plain.Text(v)", new: "return v",
		pkg: "./cmd/internal/status", run: "^TestWhatIsFoundIsPlain$",
	}, {
		name: "a log line moves the cursor", rule: "commands and logs print plain text",
		in:  "cmd/internal/daemon.plainWriter.Write",
		old: "w.Writer.Write(plain.JSON(b))", new: "w.Writer.Write(append(b, plain.JSON(nil)...))",
		pkg: "./cmd/internal/daemon", run: "^TestLogIsPlain$",
	},
}
