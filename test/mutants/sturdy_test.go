package mutants

// sturdy are mutants of what a mirror does about members that hang, fail or lose their contents.
var sturdy = []mutant{
	{
		name: "equally slow disks", rule: "mirror §3.3 the time counts from when enough others were through",
		in:  "backend/remote.overdue.find",
		old: "if through&k.view.Equal == 0 && !source ||", new: "if",
		also: []edit{{"backend/remote.copies.throughLocked", "&& !k.owesLocked(other) {", "{"}},
		pkg:  "./backend/remote", run: "^TestSlowDiskIsNotLetGo$",
	}, {
		name: "hung disk below M", rule: "mirror §3.3 no generation begins with fewer than M members",
		in:  "backend/remote.copies.doesWithoutLocked",
		old: "return err == nil &&", new: "return (err == nil || true) &&",
		also: []edit{{"backend/remote.overdue.find", "|| through.Count() < int(k.view.Record.MinCopies) && !replaced {", "|| replaced && false {"}},
		pkg:  "./backend/remote", run: "^TestHungDiskBelowMin$",
	}, {
		name: "hung leg comes back at once", rule: "mirror §3.3 it stays out for longer each time",
		in:  "backend/remote.sitting.again",
		old: "s.pause *= 2", new: "s.pause *= 1",
		pkg: "./backend/remote", run: "^TestHungResync$", hangs: true,
	}, {
		name: "cleared member keeps its contents", rule: "mirror §3.6 one whose region is cleared gets a contents id that no record names",
		in:  "persist/region.Region.clear",
		old: "|| others {", new: "{",
		pkg: "./persist/region", run: "^TestClearDrawsContents$",
	}, {
		name: "useless member is asked again and again", rule: "a session changes the target's superblock: none that can only be in vain",
		in:  "backend/remote.leg.comeBack",
		old: "g.core.spares(g) || g.faulty", new: "g.core.spares(g)",
		pkg: "./backend/remote", run: "^TestNeededMemberIsAskedAgain$",
	}, {
		name: "sessions in vain have no back-off", rule: "a session changes the target's superblock: ever fewer that come to nothing",
		in:  "backend/remote.spareBackoff",
		old: "return min(sparePause<<vain, maxSparePause)", new: "return sparePause",
		pkg: "./backend/remote", run: "^TestSpareBackoff$",
	}, {
		name: "waiting start forgets what it found", rule: "mirror §4.1 nothing is destroyed before the start can succeed",
		in:  "backend/remote.beginning.contents",
		old: "o.Epoch != 0 &&", new: "false &&",
		pkg: "./backend/remote", run: "^TestWaitingStartLeavesMembersAlone$",
	}, {
		name: "copying life does not decide again", rule: "mirror §4.2 a member that comes with a newer generation before ours is active",
		in:  "backend/remote.copies.decideAgain",
		old: "case k.newer <- struct{}{}:", new: "case <-k.newer:",
		pkg: "./backend/remote", run: "^TestDecidesAgain$",
	}, {
		name: "a source that lost its contents before the first generation stays one", rule: "mirror §4.4 a life that copies first decides again when a member that counts as equal lost its contents",
		in:  "backend/remote.copies.meet",
		old: "restored && !serves", new: "false && !serves",
		pkg: "./backend/remote", run: "^TestSourceOfTheFirstCopiesIsLost$",
	}, {
		name: "a source that is away before the first generation is waited for", rule: "mirror §4.4 a life that copies first decides again when its source has been away for --leg-timeout",
		in:  "backend/remote.copies.sourceLocked",
		old: "if left <= 0 {", new: "if false {",
		pkg: "./backend/remote", run: "^TestSourceOfTheFirstCopiesIsAway$",
	}, {
		name: "a source that is away before the first generation has no time to come back", rule: "mirror §4.4 a life that copies first decides again when its source has been away for --leg-timeout",
		in:  "backend/remote.copies.sourceLocked",
		old: "max(k.timeout, leastPatience)-time.Since(g.silentAt)", new: "0",
		pkg: "./backend/remote", run: "^TestSourceOfTheFirstCopiesIsAway$",
	}, {
		name: "a source that is lost while the first generation is pending stays one", rule: "mirror §4.4 another member of F becomes the source before anybody is served",
		in:  "backend/remote.copies.leaverLocked",
		old: "waits := k.replaceSourceLocked()", new: "waits := false",
		pkg: "./backend/remote", run: "^TestSourceOfAPendingGenerationIsLost$",
	}, {
		name: "a member without its contents becomes the source", rule: "mirror §4.4 a source has the contents that the record names",
		in:  "backend/remote.copies.replaceSourceLocked",
		old: "g.granted.ContentsID != k.view.Record.Members[g.slot].Contents", new: "false",
		pkg: "./backend/remote", run: "^TestSourceOfAPendingGenerationIsLost$",
	}, {
		name: "a start that has lost its source waits for no other member", rule: "mirror §4.4 one that is away may become the source",
		in:  "backend/remote.copies.leaverLocked",
		old: "!waits", new: "!(waits && false)",
		pkg: "./backend/remote", run: "^TestSourceOfAPendingGenerationIsLost$",
	}, {
		name: "another source once clients were served", rule: "mirror §4.4 what a life has read stays for that life",
		in:  "internal/mirror.View.Sources",
		old: "!v.Pending || v.Serves()", new: "!v.Pending",
		pkg: "./internal/mirror", run: "^TestSources$",
	}, {
		name: "the first copies count against --loss-timeout", rule: "§5 --loss-timeout bounds the wait for a member that the mirror cannot do without",
		in:  "backend/remote.copies.leaverLocked",
		old: "min(now.Sub(since), now.Sub(k.copied))", new: "now.Sub(since)",
		pkg: "./backend/remote", run: "^TestLossTimeoutAndTheFirstCopies$",
	}, {
		name: "an attempt has the number of the one before", rule: "mirror §2 a life's number is larger than every number that it found on a member",
		in:  "backend/remote.beginning.attempt",
		old: "slices.Max(b.life)+1", new: "slices.Max(b.life)",
		pkg: "./backend/remote", run: "^TestMemberOfAnEarlierAttemptComesBack$",
	}, {
		name: "restored member keeps its contents id", rule: "mirror §3.6 whose epoch is smaller than the recorded one",
		in:  "backend/remote.copies.probe",
		old: "if g.restored = l.Epoch <", new: "if g.restored = false && l.Epoch <",
		pkg: "./backend/remote", run: "^TestRestoredMemberGetsOtherContents$",
	}, {
		name: "a member that this life finds restored counts by its bits", rule: "mirror §3.6 one outside F that is refused so is named without contents",
		in:  "backend/remote.copies.blames",
		old: "k.disownLocked(g)", new: "_ = g",
		pkg: "./backend/remote", run: "^TestMemberIsRestoredWhileAway$",
	}, {
		name: "a copy of an earlier life ends the life", rule: "mirror §4.5 a member whose epoch and life are lower was put back from a copy, and ends no life",
		in:  "backend/remote.copies.blames",
		old: "&& !g.wentBack(&refused.said)", new: "",
		pkg: "./backend/remote", run: "^TestMemberInSyncIsRestoredFromTheLifeBefore$",
	}, {
		name: "a mirror waits for its last member, which was put back from a copy of an earlier life", rule: "mirror §4.5 without a member that has everything a life cannot go on",
		in:  "backend/remote.copies.leaverLocked",
		old: "|| g.notOurs()", new: "",
		pkg: "./backend/remote", run: "^TestLastMemberInSyncIsRestoredFromTheLifeBefore$",
	}, {
		name: "a life that goes on does not disown a member that it has not met", rule: "mirror §3.6 one outside F that is refused so is named without contents",
		in:  "backend/remote.copies.disownLocked",
		old: "l.Record, _ = k.view.RecordFor(g.slot)", new: "l.Record = g.record",
		pkg: "./backend/remote", run: "^TestMemberIsRestoredBehindAKill$",
	}, {
		name: "nobody names the session in which bits are cleared", rule: "mirror §3.6 all of F name the session in which its bits may be cleared",
		in:  "backend/remote.copies.namesLocked",
		old: "return m.Contents", new: "return true || m.Contents",
		pkg: "./backend/remote", run: "^TestFollowerIsRestoredFromBeforeItFollowed$",
	}, {
		name: "a start forgets the sessions that the members in F name", rule: "mirror §3.6 a start takes the names of those outside from the members in F",
		in:  "internal/mirror.Decide",
		old: "f.nameOutside(&d.Newest)", new: "",
		pkg: "./backend/remote", run: "^TestNamedSessionsOutliveALife$",
	}, {
		name: "bits of a resync are cleared before its session is named", rule: "mirror §3.6 all of F name the session in which its bits may be cleared",
		in:  "backend/remote.stream.carryLocked",
		old: "&& (most == nil || n > len(most.copying.shares[s.index].clean)) && s.core.copies.namesLocked(l.leg)", new: "&& (most == nil || n > len(most.copying.shares[s.index].clean))",
		pkg: "./backend/remote", run: "^TestNothingIsCleared$",
	}, {
		name: "bits of a follower are cleared before its session is named", rule: "mirror §3.6 all of F name the session in which its bits may be cleared",
		in:  "backend/remote.stream.carryLocked",
		old: "l.leg.follow.bits.untell(s.index) && s.core.copies.namesLocked(l.leg)", new: "l.leg.follow.bits.untell(s.index)",
		pkg: "./backend/remote", run: "^TestNothingIsCleared$",
	}, {
		name: "a copy that is older than the last session counts by its bits", rule: "mirror §3.6 each generation names the epochs of the last sessions",
		in:  "backend/remote.copies.changeLocked",
		old: "k.nameEpochsLocked(&next)", new: "",
		pkg: "./backend/remote", run: "^TestMemberIsRestoredWhileAway$",
	}, {
		name: "a generation that some members have names other epochs", rule: "mirror §3.6 each generation names the epochs of the last sessions",
		in:  "backend/remote.copies.nameEpochsLocked",
		old: "v.Record.Generation == k.view.Record.Generation", new: "false",
		pkg: "./backend/remote", run: "^TestMemberIsAddedTwice$",
	}, {
		name: "restored member keeps the contents id of its time alone", rule: "mirror §3.6 gets a contents id that no record names",
		in:  "persist/region.Superblock.Forget",
		old: "forgottenRecord(s.Record), newID()", new: "forgottenRecord(s.Record), s.Contents",
		pkg: "./backend/remote", run: "^TestRestoredMemberGetsOtherContents$",
	}, {
		name: "a stray that stood in seems to have been served alone", rule: "mirror §4.6 nor can one that stands in, whose own record names no contents of it",
		in:  "persist/region.Superblock.Forget",
		old: "forgottenRecord(s.Record)", new: "aloneRecord(s.Record)",
		pkg: "./backend/remote", run: "^TestDegradedStartBehindAStandIn$",
	}, {
		name: "restored follower is opened although it has nobody to follow", rule: "mirror §7.4 a life that has no equal member of F there does not begin to copy to a follower",
		in:  "backend/remote.copies.probe",
		old: "return k.mayMeetLocked(int(said.Record.Slot))", new: "return nil",
		pkg: "./backend/remote", run: "^TestRestoredFollowerIsNotOpenedTooEarly$",
	}, {
		name: "a life that copies first changes the newest generation", rule: "mirror §5.1 its record says torn",
		in:  "internal/mirror.View.Torn",
		old: "if !v.Serves() &&", new: "if false &&",
		pkg: "./backend/remote", run: "^TestMemberAloneAndTheFirstCopies$",
	}, {
		name: "a stray keeps its contents id", rule: "mirror §5.1 the F of its generation has bits for it, which say nothing of the first copies",
		in:  "backend/remote.copies.probe",
		old: "k.view.Strays(&l)", new: "false",
		pkg: "./backend/remote", run: "^TestFirstCopiesToAStray$",
	}, {
		name: "a start opens a stray", rule: "mirror §5.1 the F of its generation has bits for it, which say nothing of the first copies",
		in:  "internal/mirror.Found.survey",
		old: ", strays(&l.Record, m):", new: ":",
		pkg: "./backend/remote", run: "^TestFirstCopiesToAStray$",
	}, {
		name: "CLOSE of unequal members", rule: "mirror §4.3 CLOSE comes after a barrier on all of F, and all of F is equal",
		in:  "backend/remote.Device.endUnequal",
		old: "d.leave(ctx, false)", new: "d.leave(ctx, true)",
		pkg: "./backend/remote", run: "^TestCloseBeforeMembersAreEqual$", hangs: true,
	}, {
		name: "Close leaves the last barrier to the resync", rule: "mirror §4.3 Close waits for no resync",
		in:  "backend/remote.core.flush",
		old: "x.commit.start(true)", new: "x.commit.start(false)",
		pkg: "./backend/remote", run: "^TestCloseBeforeMembersAreEqual$",
	}, {
		name: "adoption closes unequal members", rule: "mirror §4.3 CLOSE comes after a barrier on all of F, and all of F is equal",
		in:  "backend/remote.replayer.flush",
		old: "return false, nil", new: "return true, nil",
		pkg: "./backend/remote", run: "^TestAdoptionBeforeMembersAreEqual$",
	}, {
		name: "verify believes the first sums", rule: "mirror §5.7 a write that is on its way is no difference",
		in:  "backend/remote.resync.differsLocked",
		old: "if r.verify == nil || p.state == pieceCompare {", new: "if r.verify == nil {",
		pkg: "./backend/remote", run: "^TestVerifyUnderLoad$",
	}, {
		name: "verify sums what comes later", rule: "mirror §5.7 nothing passes the second DIGEST",
		in:  "backend/remote.lane.buildCopyLocked",
		old: "return l.digests.n == 0", new: "return true",
		pkg: "./backend/remote", run: "^TestNothingPassesAwait$",
	}, {
		name: "verify copies unasked", rule: "mirror §5.7 nobody knows which member is right",
		in:  "backend/remote.resync.differsLocked",
		old: "return r.verify.copying", new: "return true",
		pkg: "./backend/remote", run: "^TestVerify$",
	}, {
		name: "verify does not wait for the barrier", rule: "mirror §5.7 what is copied is durable",
		in:  "backend/remote.resync.step",
		old: "case busy > 0 || unsettled > 0 ||", new: "case busy > 0 ||",
		pkg: "./backend/remote", run: "^TestVerifyCopiesDurably$",
	}, {
		name: "verify copies from a later session", rule: "mirror §5.7 a source that left F is no source",
		in:  "backend/remote.verification.sourceLocked",
		old: "if l.conn != v.conns[s.index] {", new: "if l == nil {",
		pkg: "./backend/remote", run: "^TestVerifyEndsWithItsSourceSession$",
	}, {
		name: "verify goes on without a member", rule: "mirror §5.7 all members in sync are compared",
		in:  "backend/remote.verification.holds",
		old: "return view.Flushes() &&", new: "return true || view.Flushes() &&",
		pkg: "./backend/remote", run: "^TestVerifyIsCutShort$", hangs: true,
	}, {
		name: "a verify that is cut short leaves its copies alone", rule: "mirror §5.7 no lane waits for a Verify that is over",
		in:  "backend/remote.resync.drain",
		old: "r.copies.core.post()", new: "",
		pkg: "./backend/remote", run: "^TestVerifyIsCutShortInACopy$",
	}, {
		name: "verify forgets what was under way", rule: "mirror §5.7 chunks under way begin anew in the next sessions",
		in:  "backend/remote.resync.reclaim",
		old: "r.todo.put(p.start)", new: "",
		pkg: "./backend/remote", run: "^TestVerifyGoesOn$",
	}, {
		name: "verify takes copies for durable", rule: "mirror §5.7 what was copied and is not durable is compared again",
		in:  "backend/remote.resync.reclaim",
		old: "for _, c := range r.shares[i].copied {", new: "for _, c := range r.shares[i].copied[:0] {",
		pkg: "./backend/remote", run: "^TestVerifyCopiesAgain$",
	}, {
		name: "verify goes on with another member", rule: "mirror §5.7 it ends if a member is another one, or has other contents",
		in:  "backend/remote.verification.standsLocked",
		old: "(now.UUID != then.UUID || now.Contents != then.Contents)", new: "now == then",
		pkg: "./backend/remote", run: "^TestVerifyStands$",
	}, {
		name: "hung disk has no loss timeout", rule: "§5 --loss-timeout bounds a barrier that the target is working on",
		in:  "backend/remote.overdue.find",
		old: "if k.loss > 0 && late > k.loss && !goes {", new: "if false {",
		pkg: "./backend/remote", run: "^TestHungDiskAndLossTimeout$", hangs: true,
	}, {
		name: "cleared member has no owner", rule: "mirror §3.6 it keeps the owner of a session that was not closed",
		in:  "persist/region.Region.clear",
		old: "if sb.Clean || !others {", new: "{",
		pkg: "./persist/region", run: "^TestClearDrawsContents$",
	},
}
