package mutants

// recovery are mutants of how a lost session comes back.
var recovery = []mutant{
	{
		name: "nothing is replayed", rule: "§6 replay",
		in:  "backend/remote.lane.advanceLocked",
		old: "l.queue.push(item{kind: itemWrites, from: from, to: l.queued})", new: "_ = from",
		pkg: model, run: crashes, few: true,
	}, {
		name: "the replay is out of order", rule: "§6 the replay keeps the order of the queue",
		in:  "backend/remote.lane.advanceLocked",
		old: "l.queue.push(item{kind: itemWrites, from: from, to: l.queued})",
		new: "for to := l.queued; to > from; to-- { l.queue.push(item{kind: itemWrites, from: to - 1, to: to}) }",
		pkg: model, run: crashes,
	}, {
		name: "READs complete before the replay", rule: "§6 READs are queued behind the replay",
		in:  "backend/remote.lane.advanceLocked",
		old: "l.queue.push(item{kind: itemWrites,", new: "l.queueReadsLocked(); l.queue.push(item{kind: itemWrites,",
		pkg: "./backend/remote", run: "^TestTargetRestarts$",
	}, {
		name: "a READ passes writes that wait for their slice", rule: "§6 READs are queued behind the replay",
		in:  "backend/remote.lane.queueReadsLocked",
		old: "r.lane == nil && (!l.behind || r.at <= l.queued) {", new: "r.lane == nil {",
		pkg: "./backend/remote", run: "^TestRequestsDuringReplay$",
	}, {
		name: "a replay is all or nothing", rule: "§6 replay, in slices",
		in:  "backend/remote.firstSlice",
		old: "const firstSlice = 64 << 10", new: "const firstSlice = 64 << 40",
		pkg: "./backend/remote", run: "^TestReplayOverABreakingNetwork$",
	}, {
		name: "a slice's barrier covers writes behind it", rule: "§4.6 a barrier covers only what is ahead of it",
		in:  "backend/remote.stream.enqueueBarrier",
		old: "if l.queued < p.to {", new: "if false {",
		pkg: "./backend/remote", run: "^TestReplayOverABreakingNetwork$",
	}, {
		name: "any slice's barrier completes a FLUSH", rule: "§3.7 a FLUSH covers every write that had completed before",
		in:  "backend/remote.groupCommit.reachesLocked",
		old: "if b.shares[i].to < c.upTo[i] {", new: "if b.shares[i].to < c.upTo[i] && false {",
		pkg: "./backend/remote", run: "^TestRequestsDuringReplay$",
	}, {
		name: "newer writes hold a FLUSH back", rule: "§6 replay, in slices",
		in:  "backend/remote.groupCommit.listLocked",
		old: "c.waiting = append(c.waiting, came...); return", new: "came = append(came, c.listed...); c.clearListedLocked()",
		pkg: "./backend/remote", run: "^TestReplayOverABreakingNetwork$",
	}, {
		name: "an outage ends with the first slice", rule: "§6 after --loss-timeout requests fail with EIO",
		in:  "backend/remote.core.answered",
		old: "s.fetched < n || s.ring.Covered() < o.heads[i]", new: "s.fetched < n",
		pkg: "./backend/remote", run: "^TestRequestsDuringReplay$",
	}, {
		name: "a session that comes back and does nothing ends an outage", rule: "§6 after --loss-timeout requests fail with EIO",
		in:  "backend/remote.leg.keep",
		old: "g.core.commit.succeeded(), g.owes.any(),", new: "g.core.commit.succeeded(), false,",
		pkg: "./backend/remote", run: "^TestBackForNothing$",
	}, {
		name: "a slow sync interrupts the session", rule: "§5 a barrier's deadline counts time without progress",
		in:  "backend/remote.stall.find",
		old: "case !atTarget && stays > patience:", new: "case stays > patience:",
		pkg: "./backend/remote", run: "^TestSlowSyncIsWaitedFor$",
	}, {
		name: "a device waits for an endless sync beyond --loss-timeout", rule: "§6 after --loss-timeout requests fail with EIO",
		in:  "backend/remote.stall.find",
		old: "case atTarget && g.cfg.LossTimeout > 0 &&", new: "case false && atTarget &&",
		pkg: "./backend/remote", run: "^TestSlowSyncAndLossTimeout$",
	}, {
		name: "the outage before a slow sync is forgotten", rule: "§6 after --loss-timeout requests fail with EIO",
		in:  "backend/remote.stall.find",
		old: "hangs+c.lost >", new: "hangs >",
		pkg: "./backend/remote", run: "^TestSlowSyncAndLossTimeout$",
	}, {
		name: "an outage that is over goes on counting", rule: "§6 after --loss-timeout requests fail with EIO",
		in:  "backend/remote.groupCommit.nextLocked",
		old: "c.lost = 0; return b", new: "return b",
		pkg: "./backend/remote", run: "^TestIdleOutageIsOver$",
	}, {
		name: "a completion ahead of a heartbeat is no sign of life", rule: "§5 a heartbeat has a deadline of its own",
		in:  "backend/remote.pulse.moved",
		old: "if p.waits.Load() {", new: "if false {",
		pkg: "./backend/remote", run: "^TestSlowNetworkIsNotLost$",
	}, {
		name: "parts of messages are no sign of life", rule: "§5 a heartbeat has a deadline of its own",
		in:  "backend/remote.leg.heartbeats",
		old: "now != arrived {", new: "now != arrived && false {",
		also: []edit{{"backend/remote.pulse.moved", "if p.waits.Load() {", "if false {"}},
		pkg:  "./backend/remote", run: "^TestSlowNetworkIsNotLost$",
	}, {
		name: "any amount is posted ahead of a heartbeat", rule: "§5 a heartbeat has a deadline of its own",
		in:  "backend/remote.lane.mayPostLocked",
		old: "return ahead == 0 ||", new: "return true || ahead == 0 ||",
		pkg: "./backend/remote", run: "^TestPostedAheadIsBounded$",
	}, {
		name: "Writes ask for no completions however many bytes they have", rule: "§4.3 signalled at least every half send queue",
		in:  "backend/remote.lane.countLocked",
		old: "|| l.out.bytes-l.asked >= maxAhead/4 {", new: "{",
		pkg: "./backend/remote", run: "^TestPostedAheadIsBounded$", hangs: true,
	}, {
		name: "a barrier that was synced without its session is replayed", rule: "§4.2 retiring, §6 replay",
		in:  "backend/remote.groupCommit.resumeLocked",
		old: "if b == nil || doubt ||", new: "if true || b == nil || doubt ||",
		pkg: "./backend/remote", run: "^TestSyncOutlivesItsSession$",
	}, {
		name: "a barrier number of another session counts", rule: "§6 a late completion is ignored, model R2",
		in:  "backend/remote.durableOn",
		old: "conns[lane].durable == wire.Durable{Epoch: epoch, Barrier: seq}",
		new: "conns[lane].durable == wire.Durable{Epoch: conns[lane].durable.Epoch, Barrier: seq}",
		pkg: "./backend/remote", run: "^TestWhatTheTargetSaysOfACutBarrier$",
	}, {
		name: "one lane decides for all lanes of a barrier that was cut off", rule: "§3.2 when all lanes have acknowledged it",
		in:  "backend/remote.groupCommit.resumeLocked",
		old: "if b.shares[i].owes != 0 &&", new: "if b.shares[i].owes != 0 && i == 0 &&",
		pkg: "./backend/remote", run: "^TestWhatTheTargetSaysOfACutBarrier$",
	}, {
		name: "a barrier that was cut off counts in doubt", rule: "§3.8 only the target settles doubt",
		in:  "backend/remote.groupCommit.resumeLocked",
		old: "b == nil || doubt", new: "b == nil",
		pkg: "./backend/remote", run: "^TestWhatTheTargetSaysOfACutBarrier$",
	}, {
		name: "a barrier that was cut off is remembered beyond the next", rule: "§6 replay, then a barrier",
		in:  "backend/remote.groupCommit.nextLocked",
		old: "c.spare = append(c.spare, c.broken); c.broken = nil", new: "",
		pkg: "./backend/remote", run: "^TestNextBarrierForgetsTheCutOne$",
	}, {
		name: "no barrier follows the replay", rule: "§6 replay, then a barrier",
		in:  "backend/remote.leg.resume",
		old: "g.core.commit.start(true)", new: "",
		pkg: "./backend/remote", run: "^TestSessionGoesOn$", hangs: true,
	}, {
		name: "a barrier that was cut off counts", rule: "§4.6 the ranges of a failed barrier stay dirty",
		in:  "backend/remote.groupCommit.interruptLocked",
		old: "b.ops, b.remaining, b.epoch = nil, 0, epoch",
		new: "for i := range b.shares { c.env.cover(i, &b.shares[i]) }; b.ops, b.remaining, b.epoch = nil, 0, epoch",
		pkg: model, run: crashes,
	}, {
		name: "a late acknowledgement of a barrier that was cut off counts", rule: "§6 a late completion is ignored, model R2",
		in:  "backend/remote.groupCommit.done",
		old: "b == nil || b.seq != seq {", new: "b == nil {",
		pkg: "./backend/remote", run: "^TestCutBarrierDoesNotCount$", hangs: true,
	}, {
		name: "a late completion of a destroyed queue pair counts", rule: "§6 a late completion is ignored, model R2",
		in:  "backend/remote.lane.handle",
		old: "if l.ended {", new: "if false {",
		pkg: "./backend/remote", run: "^TestNothingCountsAfterTheEnd$",
	}, {
		name: "RESUME forgets doubt", rule: "§3.8 OPENED says so to a RESUME too",
		in:  "backend/remote.groupCommit.resumeLocked",
		old: "c.doubts |= persist.Member(leg)", new: "_ = doubt",
		pkg: "./backend/remote", run: "^TestResumedInDoubt$",
	}, {
		name: "a session goes on over lost contents", rule: "§6 the contents id is compared",
		in:  "backend/remote.leg.compare",
		old: "case o.ContentsID != old.ContentsID:", new: "case false:",
		pkg: model, run: crashes,
	}, {
		name: "a session goes on in a different region", rule: "§6 the region's UUID is compared",
		in:  "backend/remote.leg.compare",
		old: "case o.UUID != old.UUID:", new: "case false:",
		pkg: "./backend/remote", run: "^TestElsewhere$",
	}, {
		name: "Close waits for nothing", rule: "§6 SIGTERM: exit 1 with one line",
		in:  "backend/remote.Device.close",
		old: "case <-away: if d.idle() {", new: "case <-away: if false {",
		pkg: "./backend/remote", run: "^TestCloseWithTheTargetAway$", hangs: true,
	}, {
		name: "Close does not wait for unflushed writes", rule: "§6 SIGTERM: barrier, CLOSE",
		in:  "backend/remote.core.empty",
		old: "if s.ring.Covered() != s.ring.Head() {", new: "if s == nil {",
		pkg: "./backend/remote", run: "^TestCloseWaitsForTheTarget$",
	}, {
		name: "another region's refusal is final", rule: "§6 only the region itself can fail its device",
		in:  "backend/remote.leg.refusal",
		old: "case r.UUID != [16]byte{} && r.UUID != g.granted.UUID:", new: "case false:",
		also: []edit{{"backend/remote.leg.refusal", "case r.UUID == g.granted.UUID && (r.Code", "case (r.Code"}},
		pkg:  "./backend/remote", run: "^TestElsewhere$",
	}, {
		name: "a RESUME with a later epoch is granted", rule: "§6 the target compares the epoch",
		in:  "persist/target.export.check",
		old: "case resume && m.Epoch > sb.Epoch:", new: "case false:",
		pkg: "./backend/remote", run: "^TestRowsOfFailure$",
	}, {
		name: "a session goes on in a region whose epoch went back", rule: "§6 the initiator compares the epoch, too",
		in:  "backend/remote.leg.compare",
		old: "case o.Epoch <= old.Epoch:", new: "case false:",
		pkg: "./backend/remote", run: "^TestCompare$",
	}, {
		name: "a device resumes after a failed barrier", rule: "§6 a failed barrier fails the device",
		in:  "backend/remote.leg.lasting",
		old: "case errors.As(cause, &barrier), errors.Is", new: "case false && errors.As(cause, &barrier), errors.Is",
		pkg: "./backend/remote", run: "^TestInheritance$",
	}, {
		name: "a device resumes after each access error", rule: "§6 a second access error fails the device",
		in:  "backend/remote.leg.lasting",
		old: "case accused && g.accused &&", new: "case false &&",
		pkg: "./backend/remote", run: "^TestAccusedTwice$", hangs: true,
	}, {
		name: "access errors days apart fail the device", rule: "a session that lasted wipes the slate",
		in:  "backend/remote.leg.keep",
		old: "g.faulty, g.accused = false, false", new: "g.faulty = false",
		pkg: "./backend/remote", run: "^TestAccusedLater$",
	}, {
		name: "damaged bytes are placed", rule: "§6 damage on the way, §7 CRC before placement",
		in:  "rdma/iwarp.nextFPDU",
		old: "if crc &&", new: "if false &&",
		pkg: "./rdma/iwarp", run: "^TestFPDU$",
	},
}
