package mutants

// recovery is of a lost session that comes back.
var recovery = []mutant{
	{
		name: "nothing is replayed", rule: "§6 replay",
		in:  "backend/remote.lane.advanceLocked",
		old: "l.queue.push(item{kind: itemWrites, from: from, to: l.queued})", new: "_ = from",
		pkg: model, run: crashes, few: true,
	}, {
		name: "replay out of order", rule: "§6 through the same queue, in order",
		in:  "backend/remote.lane.advanceLocked",
		old: "l.queue.push(item{kind: itemWrites, from: from, to: l.queued})",
		new: "for to := l.queued; to > from; to-- { l.queue.push(item{kind: itemWrites, from: to - 1, to: to}) }",
		pkg: model, run: crashes,
	}, {
		name: "READs are answered before the replay", rule: "§6 replay, then answer",
		in:  "backend/remote.lane.advanceLocked",
		old: "l.queue.push(item{kind: itemWrites,", new: "l.queueReadsLocked(); l.queue.push(item{kind: itemWrites,",
		pkg: "./backend/remote", run: "^TestTargetRestarts$",
	}, {
		name: "a READ passes writes that wait for their slice", rule: "§6 replay, then answer",
		in:  "backend/remote.lane.queueReadsLocked",
		old: "!r.queued && r.at <= l.queued {", new: "!r.queued {",
		pkg: "./backend/remote", run: "^TestRequestsDuringReplay$",
	}, {
		name: "a replay is all or nothing", rule: "§6 replay, in slices",
		in:  "backend/remote.firstSlice",
		old: "const firstSlice = 64 << 10", new: "const firstSlice = 64 << 40",
		pkg: "./backend/remote", run: "^TestReplayOverABreakingNetwork$",
	}, {
		name: "a slice's barrier covers what is behind it", rule: "§4.6 covered means ahead of that lane's barrier",
		in:  "backend/remote.lane.extentLocked",
		old: "if l.behind { return l.queued, l.counted", new: "if false { return l.queued, l.counted",
		pkg: "./backend/remote", run: "^TestReplayOverABreakingNetwork$",
	}, {
		name: "a FLUSH is answered by any slice", rule: "§3.7 FLUSH covers every write replied to before",
		in:  "backend/remote.groupCommit.reachesLocked",
		old: "if b.shares[i].to < c.upTo[i] {", new: "if b.shares[i].to < c.upTo[i] && false {",
		pkg: "./backend/remote", run: "^TestRequestsDuringReplay$",
	}, {
		name: "who writes on keeps a FLUSH back", rule: "§6 replay, in slices",
		in:  "backend/remote.groupCommit.listLocked",
		old: "c.waiting = append(c.waiting, came...); return", new: "came = append(came, c.listed...); c.clearListedLocked()",
		pkg: "./backend/remote", run: "^TestReplayOverABreakingNetwork$",
	}, {
		name: "an outage ends with the first slice", rule: "§6 --loss-timeout, then EIO",
		in:  "backend/remote.core.answered",
		old: "s.fetched < n || s.ring.Covered() < o.heads[i]", new: "s.fetched < n",
		pkg: "./backend/remote", run: "^TestRequestsDuringReplay$",
	}, {
		name: "a session that came back for nothing ends an outage", rule: "§6 --loss-timeout, then EIO",
		in:  "backend/remote.leg.keep",
		old: "g.core.commit.succeeded(), g.owes.any(),", new: "g.core.commit.succeeded(), false,",
		pkg: "./backend/remote", run: "^TestBackForNothing$",
	}, {
		name: "a slow sync interrupts the session", rule: "§5 a barrier's deadline counts time without progress",
		in:  "backend/remote.stall.find",
		old: "case !atTarget && stays > patience:", new: "case stays > patience:",
		pkg: "./backend/remote", run: "^TestSlowSyncIsWaitedFor$",
	}, {
		name: "a sync without end is waited for beyond --loss-timeout", rule: "§6 --loss-timeout, then EIO",
		in:  "backend/remote.stall.find",
		old: "case atTarget && g.cfg.LossTimeout > 0 &&", new: "case false && atTarget &&",
		pkg: "./backend/remote", run: "^TestSlowSyncAndLossTimeout$",
	}, {
		name: "the outage before a slow sync is forgotten", rule: "§6 --loss-timeout, then EIO",
		in:  "backend/remote.stall.find",
		old: "hangs+c.lost >", new: "hangs >",
		pkg: "./backend/remote", run: "^TestSlowSyncAndLossTimeout$",
	}, {
		name: "an outage that is over counts on", rule: "§6 --loss-timeout, then EIO",
		in:  "backend/remote.groupCommit.nextLocked",
		old: "c.lost = 0; return b", new: "return b",
		pkg: "./backend/remote", run: "^TestIdleOutageIsOver$",
	}, {
		name: "what is ahead of a heartbeat is no sign of life", rule: "§5 heartbeats have deadlines of our own",
		in:  "backend/remote.pulse.moved",
		old: "if p.waits.Load() {", new: "if false {",
		pkg: "./backend/remote", run: "^TestSlowNetworkIsNotLost$",
	}, {
		name: "parts of answers are no sign of life", rule: "§5 heartbeats have deadlines of our own",
		in:  "backend/remote.leg.heartbeats",
		old: "now != arrived {", new: "now != arrived && false {",
		also: []edit{{"backend/remote.pulse.moved", "if p.waits.Load() {", "if false {"}},
		pkg:  "./backend/remote", run: "^TestSlowNetworkIsNotLost$",
	}, {
		name: "any amount is posted ahead of a heartbeat", rule: "§5 heartbeats have deadlines of our own",
		in:  "backend/remote.lane.mayPostLocked",
		old: "return ahead == 0 ||", new: "return true || ahead == 0 ||",
		pkg: "./backend/remote", run: "^TestPostedAheadIsBounded$",
	}, {
		name: "bytes do not ask for completions", rule: "§4.3 signalled at least every half send queue",
		in:  "backend/remote.lane.countLocked",
		old: "|| l.out.bytes-l.asked >= maxAhead/4 {", new: "{",
		pkg: "./backend/remote", run: "^TestPostedAheadIsBounded$", hangs: true,
	}, {
		name: "what a sync got done without its session is replayed", rule: "§4.2 retiring, §6 replay",
		in:  "backend/remote.groupCommit.resumeLocked",
		old: "if b == nil || doubt ||", new: "if true || b == nil || doubt ||",
		pkg: "./backend/remote", run: "^TestSyncOutlivesItsSession$",
	}, {
		name: "the number of another session counts", rule: "§6 nothing that completes late counts, model R2",
		in:  "backend/remote.durableOn",
		old: "conns[lane].durable == wire.Durable{Epoch: epoch, Barrier: seq}",
		new: "conns[lane].durable == wire.Durable{Epoch: conns[lane].durable.Epoch, Barrier: seq}",
		pkg: "./backend/remote", run: "^TestWhatTheTargetSaysOfACutBarrier$",
	}, {
		name: "one lane speaks for all of a barrier that was cut off", rule: "§3.2 when all have",
		in:  "backend/remote.groupCommit.resumeLocked",
		old: "if b.shares[i].owes &&", new: "if b.shares[i].owes && i == 0 &&",
		pkg: "./backend/remote", run: "^TestWhatTheTargetSaysOfACutBarrier$",
	}, {
		name: "a barrier that was cut off counts in doubt", rule: "§3.8 only the target settles doubt",
		in:  "backend/remote.groupCommit.resumeLocked",
		old: "b == nil || doubt", new: "b == nil",
		pkg: "./backend/remote", run: "^TestWhatTheTargetSaysOfACutBarrier$",
	}, {
		name: "a barrier that was cut off is kept beyond the next", rule: "§6 replay, barrier",
		in:  "backend/remote.groupCommit.nextLocked",
		old: "c.spare = append(c.spare, c.broken); c.broken = nil", new: "",
		pkg: "./backend/remote", run: "^TestNextBarrierForgetsTheCutOne$",
	}, {
		name: "no barrier follows the replay", rule: "§6 replay, barrier",
		in:  "backend/remote.leg.resume",
		old: "g.core.commit.start(true)", new: "",
		pkg: "./backend/remote", run: "^TestSessionGoesOn$", hangs: true,
	}, {
		name: "a barrier that was cut off counts", rule: "§4.6 ranges of a failed barrier are dirty",
		in:  "backend/remote.groupCommit.interrupt",
		old: "b.ops, b.remaining, b.epoch = nil, 0, epoch",
		new: "for i := range b.shares { c.env.cover(i, &b.shares[i]) }; b.ops, b.remaining, b.epoch = nil, 0, epoch",
		pkg: model, run: crashes,
	}, {
		name: "a late answer to a barrier that was cut off counts", rule: "§6 nothing that completes late counts, model R2",
		in:  "backend/remote.groupCommit.done",
		old: "b == nil || b.seq != seq {", new: "b == nil {",
		pkg: "./backend/remote", run: "^TestCutBarrierDoesNotCount$", hangs: true,
	}, {
		name: "a late completion of a destroyed queue pair counts", rule: "§6 nothing that completes late counts, model R2",
		in:  "backend/remote.lane.handle",
		old: "if l.ended {", new: "if false {",
		pkg: "./backend/remote", run: "^TestNothingCountsAfterTheEnd$",
	}, {
		name: "doubt is forgotten by RESUME", rule: "§3.8 OPENED carries it, also to who resumes",
		in:  "backend/remote.groupCommit.resumeLocked",
		old: "c.inherits = doubt", new: "c.inherits = false",
		pkg: "./backend/remote", run: "^TestResumedInDoubt$",
	}, {
		name: "lost contents are gone on with", rule: "§6 contents id",
		in:  "backend/remote.leg.compare",
		old: "case o.ContentsID != old.ContentsID:", new: "case false:",
		pkg: model, run: crashes,
	}, {
		name: "a reconnect to a different region", rule: "§6 UUID",
		in:  "backend/remote.leg.compare",
		old: "case o.UUID != old.UUID:", new: "case false:",
		pkg: "./backend/remote", run: "^TestElsewhere$",
	}, {
		name: "an end waits for nothing", rule: "§6 SIGTERM: exit 1 with one line",
		in:  "backend/remote.Device.close",
		old: "case <-away: if d.idle() {", new: "case <-away: if false {",
		pkg: "./backend/remote", run: "^TestCloseWithTheTargetAway$", hangs: true,
	}, {
		name: "an end does not wait for what is not flushed", rule: "§6 SIGTERM: barrier, CLOSE",
		in:  "backend/remote.core.empty",
		old: "if s.ring.Covered() != s.ring.Head() {", new: "if s == nil {",
		pkg: "./backend/remote", run: "^TestCloseWaitsForTheTarget$",
	}, {
		name: "another region's refusal is for good", rule: "§6 RESUME refused by the region itself",
		in:  "backend/remote.leg.refusal",
		old: "case r.UUID != [16]byte{} && r.UUID != g.granted.UUID:", new: "case false:",
		also: []edit{{"backend/remote.leg.refusal", "case r.UUID == g.granted.UUID && (r.Code", "case (r.Code"}},
		pkg:  "./backend/remote", run: "^TestElsewhere$",
	}, {
		name: "a region that went back is gone on with", rule: "§6 epoch",
		in:  "persist/target.export.check",
		old: "case resume && m.Epoch > sb.Epoch:", new: "case false:",
		pkg: "./backend/remote", run: "^TestRowsOfFailure$",
	}, {
		name: "an epoch that went back is gone on with", rule: "§6 epoch, the initiator's look",
		in:  "backend/remote.leg.compare",
		old: "case o.Epoch <= old.Epoch:", new: "case false:",
		pkg: "./backend/remote", run: "^TestCompare$",
	}, {
		name: "a barrier that failed is resumed from", rule: "§6 a barrier error that is not a lost connection",
		in:  "backend/remote.leg.lasting",
		old: "case errors.As(cause, &barrier), errors.Is", new: "case false && errors.As(cause, &barrier), errors.Is",
		pkg: "./backend/remote", run: "^TestInheritance$",
	}, {
		name: "an access error again and again is resumed from", rule: "§6 it is no fault of the network",
		in:  "backend/remote.leg.lasting",
		old: "case accused && g.accused &&", new: "case false &&",
		pkg: "./backend/remote", run: "^TestAccusedTwice$", hangs: true,
	}, {
		name: "damaged bytes are placed", rule: "§6 data damaged on the way, §7 CRC before placement",
		in:  "rdma/iwarp.nextFPDU",
		old: "if crc &&", new: "if false &&",
		pkg: "./rdma/iwarp", run: "^TestFPDU$",
	},
}
