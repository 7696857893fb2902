package mutants

// mirrorCrashes knows what M copies must hold at any moment, and nothing of how.
const mirrorCrashes = "^TestMirrorCrashes$"

// mirrors are mutants of a device with several copies: those of the model M4, by the names that they
// have there (mirror §3 to §5). Of what a killed run leaves to the next see lives.
var mirrors = []mutant{
	{
		name: "ack-by-one-leg", rule: "mirror §3.2 when all of F have acknowledged one barrier",
		in:  "backend/remote.groupCommit.done",
		old: "if b.remaining--; b.remaining > 0 {", new: "if b.remaining--; b.owed(leg) > 0 {",
		pkg: model, run: mirrorCrashes, few: true,
	}, {
		name: "order-per-leg", rule: "mirror §3.1 one order",
		in:  "backend/remote.lane.buildLocked",
		old: "e := l.ring.At(it.from)", new: "at := it.from; if l.leg.slot == 1 { at = it.to - 1 }; e := l.ring.At(at)",
		also: []edit{{"backend/remote.lane.buildLocked", "if it.from++; it.from == it.to {", "if l.leg.slot == 1 { it.to-- } else { it.from++ }; if it.from == it.to {"}},
		pkg:  model, run: mirrorCrashes,
	}, {
		name: "READs wait for a slice whose barrier waits for a member that is away", rule: "mirror §3.3 READ goes on",
		in:  "backend/remote.core.pull",
		old: "if now.Sub(x.still.since) >= pullAfter {", new: "if b != nil && now.Sub(x.still.since) >= pullAfter {",
		pkg: "./backend/remote", run: "^TestReadsWithoutABarrier$",
	}, {
		name: "READs wait for a slice whose barrier waits for a disk that hangs", rule: "mirror §3.3 READ goes on",
		in:  "backend/remote.core.pull",
		old: "if now.Sub(x.still.since) >= pullAfter {", new: "if b == nil && now.Sub(x.still.since) >= pullAfter {",
		pkg: "./backend/remote", run: "^TestReadsBesideAHungDisk$",
	}, {
		name: "a READ has a replay go on without a barrier that is slow", rule: "§6 a network that breaks again and again carries a slice each time",
		in:  "backend/remote.core.pull",
		old: "if now.Sub(x.still.since) >= pullAfter {", new: "{",
		also: []edit{{"backend/remote.stream.pullLocked", "time.Since(l.leg.backAt) < pullAfter ||", ""}},
		pkg:  "./backend/remote", run: "^TestReadsBesideASlowDisk$",
	}, {
		name: "a READ has a replay go on while another member is away for a moment", rule: "§6 a network that breaks again and again carries a slice each time",
		in:  "backend/remote.core.pull",
		old: "x.still.flies != (b != nil)", new: "false",
		pkg: "./backend/remote", run: "^TestReadsWhileTheOtherIsAwayForAMoment$",
	}, {
		name: "a READ has a replay go on before another member is back", rule: "§6 a network that breaks again and again carries a slice each time",
		in:  "backend/remote.stream.pullLocked",
		old: "time.Since(l.leg.backAt) < pullAfter ||", new: "",
		pkg: "./backend/remote", run: "^TestReadsBeforeTheOtherIsBack$",
	}, {
		name: "a READ has the member that owes the barrier go without slices", rule: "§6 a network that breaks again and again carries a slice each time",
		in:  "backend/remote.stream.pullLocked",
		old: "|| b != nil && b.owed(l.leg.slot) > 0", new: "",
		pkg: "./backend/remote", run: "^TestReadsBesideAHungDisk$",
	}, {
		name: "no-replay", rule: "mirror §6 unflushed writes go to every member of F again",
		in:  "backend/remote.lane.connect",
		old: "l.behind = l.queued != l.ring.Head()", new: "if l.core.copies != nil { l.queued, l.counted = l.ring.Head(), l.wrote }; l.behind = l.queued != l.ring.Head()",
		pkg: "./backend/remote", run: "^TestLegComesBack$",
	}, {
		name: "drop-without-record", rule: "mirror §3.3 a leg is let go in a generation that is active before anything is acknowledged that it lacks",
		in:  "backend/remote.copies.act",
		old: "if todo == 0 {", new: "if todo == 0 || k.view.Serves() {",
		pkg: "./backend/remote", run: "^TestLegIsLetGo$",
	}, {
		name: "active-at-one", rule: "mirror §2 a generation is active when its record is durable on every member of its F",
		in:  "internal/mirror.View.Next",
		old: "if !v.Pending {", new: "if !v.Pending || written & v.Record.F != 0 {",
		pkg: "./internal/mirror", run: "^TestViewProperty$",
	}, {
		name: "old-barrier-counts", rule: "mirror §3.2 when the generation changes, the barrier is cut off on all legs",
		in:  "backend/remote.copies.changeLocked",
		old: "k.core.commit.interruptLocked(0)", new: "",
		also: []edit{{
			"backend/remote.core.lost", "c.interruptLocked(epoch) } c.mu.Unlock()",
			"}; b := c.current; c.mu.Unlock(); if b != nil { for i := range b.shares { if b.shares[i].owes.Has(g.slot) { defer c.done(i, g.slot, b.seq) } } }",
		}},
		pkg: model, run: mirrorCrashes,
	}, {
		name: "below-min", rule: "mirror §3.3 no generation begins with fewer than M members",
		in:  "internal/mirror.View.suffices",
		old: "case f.Count() < int(v.Record.MinCopies):", new: "case f == 0:",
		pkg: "./internal/mirror", run: "^TestLetGoRules$",
	}, {
		name: "none equal is left", rule: "mirror §3.3 no generation begins without an equal member",
		in:  "internal/mirror.View.suffices",
		old: "case f&v.Equal == 0:", new: "case false:",
		pkg: "./internal/mirror", run: "^TestLetGoRules$",
	}, {
		name: "bits-not-set", rule: "mirror §3.4 the target sets bits for each member outside F",
		in:  "persist/target.conn.keepBits",
		old: "outside := r.Outside()", new: "outside := r.Outside() & 0",
		pkg: "./persist/target", run: "^TestBarrierKeepsBits$",
	}, {
		name: "bits are acknowledged before they are durable", rule: "mirror §3.4 durable before it acknowledges the barrier",
		in:  "persist/target.conn.keepBits",
		old: "return r.FlushBits(outside, b.Ranges)", new: "return nil",
		pkg: "./persist/target", run: "^TestBarrierKeepsBits$",
	}, {
		name: "barriers pass the targets by while a member is out", rule: "mirror §3.4 barriers are gpspm while a member is out",
		in:  "backend/remote.core.bits",
		old: "x.copies != nil &&", new: "false && x.copies != nil &&",
		pkg: model, run: mirrorCrashes,
	}, {
		name: "clear-on-rejoin", rule: "mirror §3.5 no handshake clears a bit",
		in:  "backend/remote.resync.readBits",
		old: "c.count()", new: "clear(c.bits); c.count()",
		pkg: "./backend/remote", run: "^TestResync$",
	}, {
		name: "clear-before-durable", rule: "mirror §3.5 behind a barrier that the copied member acknowledged after the copy",
		in:  "backend/remote.resync.copiedLocked",
		old: "r.bytes += chunk.Len", new: "r.bytes += chunk.Len; if r.clears { share.clean = append(share.clean, chunk) }",
		pkg: model, run: mirrorCrashes,
	}, {
		name: "unequal-leaves-with-its-bits", rule: "mirror §3.6 a member that leaves F before it was equal leaves with all its bits",
		in:  "internal/mirror.View.begin",
		old: "v.Lacking |= had &^ v.Equal &^ f", new: "",
		pkg: "./internal/mirror", run: "^TestEnough$",
	}, {
		name: "contents-forgotten", rule: "mirror §3.6 it gets all its bits on all of F before anything is sent to it",
		in:  "backend/remote.copies.meet",
		old: "if meeting == mirror.ResyncAll && serves {", new: "if false && serves {",
		pkg: "./backend/remote", run: "^TestAllBitsOfLostContents$",
	}, {
		name: "contents-named-early", rule: "mirror §3.6 a recorded contents id changes only while no record that may be the newest names the member",
		in:  "internal/mirror.View.Name",
		old: "case v.Pending || !v.Serves():", new: "case false:",
		pkg: "./internal/mirror", run: "^TestCopyFirst$",
	}, {
		name: "read-from-any", rule: "mirror §3.7 READs come from an equal leg",
		in:  "backend/remote.copies.servesLocked",
		old: "k.view.Equal.Has(g.slot)", new: "k.view.Record.F.Has(g.slot)",
		pkg: "./backend/remote", run: "^TestReadsWaitForAnEqualLeg$",
	}, {
		name: "post-before-active", rule: "mirror §4.1 before its own generation is active nothing is served",
		in:  "backend/remote.Device.awaitMirror",
		old: "select {", new: "d.log = d.cfg.Log; early := make(chan struct{}); close(early); select { case <-early:",
		pkg: model, run: mirrorCrashes,
	}, {
		name: "numbers-alone", rule: "mirror §4.2 by life, then by count",
		in:  "persist.Generation.Before",
		old: "g.Life < h.Life || g.Life == h.Life && g.Count < h.Count", new: "g.Count < h.Count",
		pkg: "./internal/mirror", run: "^TestDecide$",
	}, {
		name: "no-fence", rule: "mirror §4.2 in sessions and not in probes",
		in:  "internal/mirror.Found.survey",
		old: "s.open |= bit", new: "s.held |= bit",
		pkg: "./internal/mirror", run: "^TestDecide$",
	}, {
		name: "a target grants an earlier life", rule: "mirror §2 the target refuses a life that is not larger than the persisted one",
		in:  "persist/target.unfit",
		old: "m.Life <= sb.Life:", new: "m.Life < sb.Life:",
		pkg: "./persist/target", run: "^TestLife$",
	}, {
		name: "gone-counts", rule: "mirror §4.2 with the contents that m names",
		in:  "internal/mirror.Found.survey",
		old: "s.lost |= bit", new: "s.held |= bit",
		pkg: "./internal/mirror", run: "^TestDecide$",
	}, {
		name: "start-without-proof", rule: "mirror §4.2 (a) to (d)",
		in:  "internal/mirror.survey.proof",
		old: `return ""; case s.arbiter`, new: `return ""; case s.m.F & held != 0: return "some"; case s.arbiter`,
		pkg: "./internal/mirror", run: "^TestDecide$",
	}, {
		name: "start-with-any", rule: "mirror §4.2 one of F",
		in:  "internal/mirror.survey.candidates",
		old: "return s.m.F & held &^ s.torn", new: "return held &^ s.torn",
		pkg: "./internal/mirror", run: "^TestDecide$",
	}, {
		name: "close-without-barrier", rule: "mirror §4.3 CLOSE comes after a barrier on all of F",
		in:  "backend/remote.Device.close",
		old: "err := <-last", new: "var err error; go func() { <-last }()",
		pkg: model, run: mirrorCrashes,
	}, {
		name: "a device closes in a change", rule: "mirror §4.3 CLOSE comes after a barrier on all of F",
		in:  "backend/remote.core.leave",
		old: "k.settle(ctx)", new: "",
		pkg: "./backend/remote", run: "^TestCloseInAChange$",
	}, {
		name: "no-equalize", rule: "mirror §4.4 one member of F is the source, and alone equal",
		in:  "internal/mirror.Found.begin",
		old: "if !d.Clean {", new: "if false {",
		pkg: "./internal/mirror", run: "^TestDecide$",
	}, {
		name: "bits-not-filled", rule: "mirror §4.4 all others get all their bits set",
		in:  "internal/mirror.Found.begin",
		old: "d.Fill = m.Present() &^ d.Equal", new: "",
		pkg: "./internal/mirror", run: "^TestDecide$",
	}, {
		name: "doubt-ignored", rule: "mirror §4.4 the source's own doubt stays until its target settles it",
		in:  "backend/remote.leg.begin",
		old: "if o.Flags&wire.OpenedDoubt != 0 {", new: "if o.Flags&wire.OpenedDoubt != 0 && g.core.copies == nil {",
		pkg: "./backend/remote", run: "^TestSourceInDoubt$",
	}, {
		name: "unequal-counts", rule: "mirror §3.2 all of F are equal",
		in:  "internal/mirror.View.Flushes",
		old: "v.Active&^v.Equal == 0 &&", new: "",
		pkg: "./internal/mirror", run: "^TestEnough$",
	}, {
		name: "a life that copies first changes a generation", rule: "mirror §4.4 begins with all members of F that it holds",
		in:  "internal/mirror.Found.begin",
		old: "d.Outcome, d.F = Copy, 0 } else {", new: "d.Outcome, d.F = Copy, 0 }; {",
		pkg: "./internal/mirror", run: "^TestCopyFirst$",
	}, {
		name: "no-lineage", rule: "mirror §4.6 behind, if the newest generation of its record is in this mirror's lineage",
		in:  "internal/mirror.Behind",
		old: "if !refutes(m, r, a) { return false }", new: "",
		pkg: "./internal/mirror", run: "^TestBehind$",
	}, {
		name: "nothing-is-refuted", rule: "mirror §4.6 a later life refutes a generation if it held a member of its F",
		in:  "internal/mirror.refutes",
		old: "b.Life > a.Life &&", new: "false &&",
		pkg: "./internal/mirror", run: "^TestBehind$",
	}, {
		name: "attempts-forgotten", rule: "mirror §4.6 what a life began is in its lineage, active or not",
		in:  "internal/mirror.View.begin",
		old: "v.Record = Descend(&v.Record, g, f)", new: "lineage := v.Record.Lineage; v.Record = Descend(&v.Record, g, f); if v.Pending { v.Record.Lineage = lineage }",
		pkg: "./internal/mirror", run: "^TestGivenUpGeneration$",
	}, {
		name: "split-ignored", rule: "mirror §4.6 a start that sees a member that went its own way is refused",
		in:  "internal/mirror.Found.conflict",
		old: "if len(ways) == 0 {", new: "if true {",
		pkg: "./internal/mirror", run: "^TestDecide$",
	}, {
		name: "an adopted change that no member has is a loss", rule: "mirror §4.5 a life that goes on finishes the change that its header names",
		in:  "backend/remote.legacy.judgeMirror",
		old: "case s.adopted && s.before(v):", new: "case false:",
		pkg: "./backend/remote", run: "^TestDecideMirrorAfterAnAdoptionInAChange$",
	}, {
		name: "a lane without a connection is posted on", rule: "mirror §3.1 every leg with a session gets every write",
		in:  "backend/remote.lane.post",
		old: "l.conn == nil ||", new: "",
		pkg: "./backend/remote", run: "^TestWritesWithoutALeg$",
	}, {
		name: "READs go on although another life may have begun", rule: "mirror §4.7 a device serves READs only if it has heard from enough members",
		in:  "backend/remote.copies.servesLocked",
		old: "&& !k.fence.closed", new: "",
		also: []edit{{"backend/remote.copies.over", "return until != math.MaxInt64 &&", "return false && until != math.MaxInt64 &&"}},
		pkg:  "./backend/remote", run: "^TestReadsAreFenced$",
	}, {
		name: "data that come after the fence has closed are an answer", rule: "mirror §4.7 whether anybody has looked at the clock or not",
		in:  "backend/remote.copies.over",
		old: "return until != math.MaxInt64 &&", new: "return false && until != math.MaxInt64 &&",
		pkg: "./backend/remote", run: "^TestReadIsFencedWhenItsDataCome$",
	}, {
		name: "a late answer opens the fence", rule: "mirror §4.7 a member is heard from when what its target answered was sent",
		in:  "backend/remote.pulse.took",
		old: "p.proves(b.at)", new: "p.proves(p.clock())",
		pkg: "./backend/remote", run: "^TestLateAnswerOpensNoFence$",
	}, {
		name: "READs go on without the lease at the arbiter", rule: "mirror §4.7 with an arbiter none without its lease, unless all of F are heard",
		in:  "backend/remote.copies.aloneUntilLocked",
		old: "case k.office.term != nil:", new: "case false:",
		pkg: "./backend/remote", run: "^TestArbiterAway$",
	}, {
		name: "legs-before-arbiter", rule: "mirror §4.8 before it is written to a leg",
		in:  "backend/remote.office.agreedLocked",
		old: "return o.term == nil || o.agreed", new: "return true",
		pkg: "./backend/remote", run: "^TestArbiterKnowsFirst$",
	}, {
		name: "no-compare", rule: "mirror §4.8 a change is a compare-and-swap",
		in:  "backend/remote.copies.swap",
		old: "held != o.held && v.Own(&held) && v.Replaces(&held)", new: "held != o.held",
		pkg: "./backend/remote", run: "^TestArbiterKnowsAnother$",
	}, {
		name: "a lost answer of the arbiter makes the own generation another life's", rule: "mirror §4.8 a change takes the place of one of the same life that the arbiter kept",
		in:  "backend/remote.copies.swap",
		old: "held != o.held && v.Own(&held) && v.Replaces(&held)", new: "false",
		pkg: "./backend/remote", run: "^TestArbiterAnswerLostAndAnotherChange$",
	}, {
		name: "a life begins although the arbiter has forgotten", rule: "mirror §4.8 a change takes the place of what the life has seen there, or of its own",
		in:  "backend/remote.copies.swap",
		old: "held != o.held && v.Own(&held) && v.Replaces(&held)", new: "held != o.held && v.Replaces(&held)",
		pkg: "./backend/remote", run: "^TestArbiterForgetsBeforeALifeBegins$",
	}, {
		name: "a generation begins while the arbiter is away", rule: "mirror §4.8 while the arbiter does not answer no generation begins",
		in:  "backend/remote.office.mayChangeLocked",
		old: "if o.term == nil ||", new: "if true ||",
		pkg: "./backend/remote", run: "^TestArbiterAway$",
	}, {
		name: "a life goes on over another one at the arbiter", rule: "mirror §4.8 a killed life goes on only from a generation at the arbiter that it descends from",
		in:  "backend/remote.copies.swap",
		old: "if !v.Replaces(&held) {", new: "if !v.Replaces(&held) && false {",
		pkg: "./backend/remote", run: "^TestArbiterAndAKill$",
	}, {
		name: "a standby serves while the life before may answer READs", rule: "mirror §4.7 a life that does not hold all of F waits for a lease of the targets",
		in:  "backend/remote.beginning.quietAfter",
		old: "return b.opened.Add(lease), by", new: "return t, 0",
		pkg: "./backend/remote", run: "^TestStandbyBehindAPartition$",
	}, {
		name: "a takeover serves while the life before may answer READs", rule: "mirror §4.7 a life that does not hold all of F waits for a lease of the targets",
		in:  "backend/remote.beginning.fences",
		old: "b.behindUnserved()) && byMajority", new: "b.behindUnserved()) && byMajority && false",
		pkg: "./backend/remote", run: "^TestTakeoverAwaitsTheFence$",
	}, {
		name: "the wait for the fence counts from before the grant", rule: "mirror §4.7 waits one lease of the targets after the last grant",
		in:  "backend/remote.beginning.open",
		old: "b.life[i] = b.number", new: "b.life[i], b.opened = b.number, time.Now()",
		also: []edit{{"backend/remote.beginning.open", "b.opened = time.Now()", ""}},
		pkg:  "./backend/remote", run: "^TestTakeoverOfASlowMemberAwaitsTheFence$",
	}, {
		name: "the lease at the arbiter takes members from a life that does not ask it", rule: "mirror §4.8 the lease says nothing of who does not ask the arbiter",
		in:  "backend/remote.leg.probe",
		old: "g.cfg.Arbiter != nil && said.Record.Arbiter", new: "g.cfg.Arbiter != nil",
		pkg: "./backend/remote", run: "^TestArbiterTakesNothingFromOthers$",
	}, {
		name: "a start forgets the wait of the one before", rule: "mirror §4.7 a start behind one that served nobody waits for a lease of the targets",
		in:  "backend/remote.beginning.behindUnserved",
		old: "return b.device.behind", new: "return b.device.behind && false",
		pkg: "./backend/remote", run: "^TestTheNextStartAwaitsTheFenceToo$",
	}, {
		name: "a start on another host forgets it", rule: "mirror §4.7 a start behind a life that may have served nobody waits for the life before, too",
		in:  "backend/remote.beginning.quietAfter",
		old: "mirror.ReadFrom(&d.Newest)", new: "d.Newest.F",
		pkg: "./backend/remote", run: "^TestStartElsewhereAwaitsTheFenceToo$",
	}, {
		name: "a life of several generations has served", rule: "mirror §4.7 a life that waits for the fence changes its generation, too",
		in:  "internal/mirror.ReadFrom",
		old: "first = a.F", new: "if first = a.F; a.Count > 1 { break }",
		pkg: "./backend/remote", run: "^TestStartElsewhereAwaitsTheFenceToo$",
	}, {
		name: "a start awaits the fence of members that a later life has opened", rule: "mirror §4.7 a life reads no more from what another one has opened",
		in:  "internal/mirror.ReadFrom",
		old: "a.F &^ opened", new: "a.F",
		pkg: "./internal/mirror", run: "^TestReadFrom$",
	}, {
		name: "a lease that was gained again opens the fence", rule: "mirror §4.7 a lease that was gained again counts only once the arbiter was asked",
		in:  "backend/remote.office.untilLocked",
		old: "gained != o.gained {", new: "gained != o.gained && false {",
		pkg: "./backend/remote", run: "^TestLeaseGainedAgain$",
	}, {
		name: "a lease that was gained again counts whatever the arbiter holds", rule: "mirror §4.7 the arbiter still holds a generation of its own",
		in:  "backend/remote.copies.greet",
		old: "case held == o.held ||", new: "case true || held == o.held ||",
		pkg: "./backend/remote", run: "^TestLeaseGainedAgain$",
	}, {
		name: "nobody asks the arbiter", rule: "mirror §4.8 a mirror that has an arbiter does not begin without it",
		in:  "internal/mirror.Found.unasked",
		old: "case !f.Asked:", new: "case !f.Asked && false:",
		pkg: "./internal/mirror", run: "^TestDecideWithAnArbiter$",
	}, {
		name: "regained-is-equal", rule: "mirror §3.6 a member that lost its contents is equal no more",
		in:  "internal/mirror.View.Regains",
		old: "v.Equal &^= member", new: "",
		pkg: "./internal/mirror", run: "^TestRegain$",
	}, {
		name: "regains-in-a-change", rule: "mirror §3.6 one that a pending generation needs gets the record without its contents",
		in:  "internal/mirror.View.Regains",
		old: "if !v.Pending && !v.Serves() ||", new: "if v.Pending || !v.Serves() ||",
		pkg: "./internal/mirror", run: "^TestRegainInAChange$",
	}, {
		name: "needs-who-is-away", rule: "mirror §3.3 of two that are away and cannot both be missed, none is let go",
		in:  "backend/remote.copies.letGoLocked",
		old: "err = next.Needs(k.awayLocked(0))", new: "",
		pkg: "./backend/remote", run: "^TestEitherOfAllComesBack$",
	}, {
		name: "never-taken-back", rule: "mirror §3.3 one that was let go is taken back while the generation without it waits for another one",
		in:  "backend/remote.copies.leaverLocked",
		old: "if why != nil { if next, ok := k.view.TakeBack(); ok &&", new: "if false { if next, ok := k.view.TakeBack(); ok &&",
		pkg: "./backend/remote", run: "^TestMemberIsTakenBack$",
	}, {
		name: "nobody-stands-in", rule: "mirror §3.3 one that was let go stands in for one that is lost and cannot be missed",
		in:  "backend/remote.copies.standInLocked",
		old: "if !ok || g.joins ||", new: "if true || !ok || g.joins ||",
		pkg: "./backend/remote", run: "^TestMemberStandsIn$",
	}, {
		name: "stand-in-is-named", rule: "mirror §3.3 no record names what a member has that stands in",
		in:  "internal/mirror.View.StandIn",
		old: "next.Record.Members[leg].Contents = [16]byte{}", new: "",
		pkg: "./internal/mirror", run: "^TestStandIn$",
	}, {
		name: "the arbiter is asked behind the session", rule: "mirror §3.3 with an arbiter a member stands in as soon as that answers",
		in:  "backend/remote.copies.meet",
		old: "k.greetsFor(ctx, g, int(o.Record.Slot))", new: "",
		pkg: "./backend/remote", run: "^TestMemberStandsInWithAnArbiter$",
	}, {
		name: "a stand-in that hangs is never replaced", rule: "mirror §3.3 one that hangs while another could be in F instead is replaced by that",
		in:  "backend/remote.overdue.find",
		old: "(replaced || source || k.doesWithoutLocked(g))", new: "k.doesWithoutLocked(g)",
		pkg: "./backend/remote", run: "^TestStandInHangs$",
	}, {
		name: "one that hangs waits for a member that cannot stand in for all that are away", rule: "mirror §3.3 nor does one begin that needs a leg which is away as well",
		in:  "backend/remote.copies.replacedLocked",
		old: "k.awayLocked(k.timeout) | persist.Member(g.slot)", new: "persist.Member(g.slot)",
		pkg: "./backend/remote", run: "^TestNobodyReplacesOneThatHangs$",
	}, {
		name: "a member that hangs is ended while nobody can let it go", rule: "mirror §3.3 a member that hangs keeps its session while the arbiter is away",
		in:  "backend/remote.overdue.find",
		old: "goes && k.view.Record.F.Has(g.slot) && k.arbiterAwayLocked()", new: "false",
		pkg: "./backend/remote", run: "^TestHungDiskWhileTheArbiterIsAway$",
	}, {
		name: "a member that hung stays out while the arbiter is away", rule: "mirror §3.3 it comes back while the arbiter is away",
		in:  "backend/remote.copies.sitsOut",
		old: "case inF && g.hung != nil && k.arbiterAwayLocked():", new: "case false:",
		pkg: "./backend/remote", run: "^TestHungDiskWhileTheArbiterIsAway$",
	}, {
		name: "a member that hung waits for a stand-in while the arbiter is away", rule: "mirror §3.3 it comes back while the arbiter is away",
		in:  "backend/remote.copies.sitsOut",
		old: "case inF && g.hung != nil && k.arbiterAwayLocked():", new: "case inF && g.hung != nil && !k.replacedLocked(g) && k.arbiterAwayLocked():",
		pkg: "./backend/remote", run: "^TestNobodyStandsInWhileTheArbiterIsAway$",
	}, {
		name: "an arbiter that was away once stays away", rule: "mirror §3.3 the arbiter is asked again before a member that hangs keeps its session",
		in:  "backend/remote.copies.arbiterAwayLocked",
		old: "o.wanted = true", new: "",
		pkg: "./backend/remote", run: "^TestHungDiskLongAfterTheArbiterWasAway$",
	}, {
		name: "the next run takes another source", rule: "mirror §4.4 the next life under the same window waits for what the one before has read from",
		in:  "internal/mirror.Found.goesBack",
		old: "return f.Read &&", new: "return false && f.Read &&",
		pkg: "./backend/remote", run: "^TestSourceOfTheLifeBefore$",
	}, {
		name: "a start refuses at the first look", rule: "mirror §4.1 a start refuses only what two looks tell",
		in:  "backend/remote.beginning.decide",
		old: "mirror.Refuse && d.Why != b.refused", new: "mirror.Refuse && false",
		pkg: "./backend/remote", run: "^TestStartLooksTwiceBeforeItRefuses$",
	}, {
		name: "a start with a window refuses at the first look", rule: "mirror §4.1 a start refuses only what two looks tell",
		in:  "backend/remote.beginning.regard",
		old: "b.decide()", new: "mirror.Decide(b.found)",
		pkg: "./backend/remote", run: "^TestStartLooksTwiceBeforeItRefuses$",
	}, {
		name: "a start without a window refuses at the first look", rule: "mirror §4.1 a start refuses only what two looks tell",
		in:  "backend/remote.beginning.attempt",
		old: "b.decide()", new: "mirror.Decide(b.found)",
		pkg: "./backend/remote", run: "^TestStartLooksTwiceBeforeItRefuses$",
	}, {
		name: "looks count with a wait between them", rule: "mirror §4.1 two looks in a row",
		in:  "backend/remote.beginning.decide",
		old: "case d.Outcome == mirror.Wait:", new: "case false:",
		pkg: "./backend/remote", run: "^TestTwoLooksInARow$",
	}, {
		name: "a start that waits for the source opens the others", rule: "mirror §4.1 nothing is destroyed before the start can succeed",
		in:  "internal/mirror.Decide",
		old: "if f.goesBack(", new: "if s.open == 0 && f.goesBack(",
		pkg: "./backend/remote", run: "^TestWaitForTheSourceOpensNothing$",
	}, {
		name: "a start that waits for the source looks for no loss", rule: "mirror §4.4 a start ends once another initiator has had the mirror",
		in:  "backend/remote.beginning.attempt",
		old: "if decision.GoesBack {", new: "if false {",
		pkg: "./backend/remote", run: "^TestWaitForTheSourceBesideAnother$",
	}, {
		name: "a start that waits for the source takes nothing for settled", rule: "mirror §4.4 a start ends once another initiator has had the mirror",
		in:  "backend/remote.legacy.judgeMirror",
		old: "s.decision.GoesBack ||", new: "",
		pkg: "./backend/remote", run: "^TestWaitForTheSourceBesideAnother$",
	}, {
		name: "an accepted loss does not end the wait for the source", rule: "mirror §4.4 with --accept-loss no client is attached",
		in:  "backend/remote.beginning.goesBack",
		old: "if !decision.GoesBack ||", new: "if true || !decision.GoesBack ||",
		pkg: "./backend/remote", run: "^TestSourceOfTheLifeBeforeIsGivenUp$",
	}, {
		name: "an accepted loss gives the source up at once", rule: "mirror §4.4 what can come back is waited for",
		in:  "backend/remote.beginning.goesBack",
		old: "time.Since(b.waits) < max(cfg.LegTimeout, leastPatience)", new: "false",
		pkg: "./backend/remote", run: "^TestSourceOfTheLifeBeforeIsGivenUp$",
	}, {
		name: "a source that is given up does not end the lineage", rule: "mirror §4.4 its clients have another device",
		in:  "backend/remote.beginning.accept",
		old: "lost, uuid.New()", new: "lost, uuid.UUID(d.lineage)",
		pkg: "./backend/remote", run: "^TestSourceOfTheLifeBeforeIsGivenUp$",
	}, {
		name: "a start that waits for the source forgets a clean end", rule: "mirror §4.3 one member that was closed makes it a clean end",
		in:  "backend/remote.beginning.probe",
		old: "l.Clean = b.told[i].Flags&wire.OpenedUnclean == 0", new: "",
		pkg: "./backend/remote", run: "^TestClosedMemberIsAsGoodAsTheSource$",
	}, {
		name: "an adoption that meets a closed member is a loss", rule: "mirror §4.5 the end before was clean, and the start decides again",
		in:  "backend/remote.Device.adoptMirror",
		old: "errors.As(err, new(closedError)) && !s.again", new: "false",
		pkg: "./backend/remote", run: "^TestClosedMemberIsFoundWhileAdopting$",
	}, {
		name: "an adoption forgets that its window had writes", rule: "mirror §4.5 only the end before a clean one loses nothing",
		in:  "backend/remote.replayer.left",
		old: "r.file.header().State == windowDrained && ", new: "",
		pkg: "./backend/remote", run: "^TestOnlyACleanEndIsNoLoss$",
	}, {
		name: "a start decides again at each closed member", rule: "mirror §4.5 the start decides again",
		in:  "backend/remote.Device.adoptMirror",
		old: "errors.As(err, new(closedError)) && !s.again", new: "errors.As(err, new(closedError))",
		pkg: "./backend/remote", run: "^TestClosedMemberEndsTheSecondAdoption$",
	}, {
		name: "the next run takes another source while its generation is pending", rule: "mirror §4.4 the next life under the same window waits for what the one before has read from",
		in:  "internal/mirror.Found.begin",
		old: "d.Sources &= f.Prefer", new: "",
		pkg: "./backend/remote", run: "^TestSourceOfTheLifeBefore$",
	}, {
		name: "a start in vain forgets the source", rule: "mirror §4.4 the next life under the same window waits for what the one before has read from",
		in:  "backend/remote.Device.prepareMirror",
		old: "from.Equal = open.from.Mirror.Equal", new: "_ = s",
		pkg: "./backend/remote", run: "^TestSourceBehindAStartInVain$",
	}, {
		name: "a source that hangs holds the start", rule: "mirror §4.4 if the source hangs another member becomes the source",
		in:  "backend/remote.overdue.find",
		old: "source := k.otherSourceLocked(g, through)", new: "source := false",
		pkg: "./backend/remote", run: "^TestSourceHangs$",
	}, {
		name: "an operator's force waits for who is gone", rule: "mirror §4.5 --degraded --accept-loss gives up what the run before waited for",
		in:  "backend/remote.replayer.goOn",
		old: "cfg.Degraded && cfg.AcceptLoss", new: "false",
		pkg: "./backend/remote", run: "^TestNeededMembersAreGoneForGood$",
	}, {
		name: "a run that accepts losses gives up a window that waits for its source", rule: "§6 --accept-loss matters only where there is a loss",
		in:  "backend/remote.replayer.goOn",
		old: "cfg.Degraded && cfg.AcceptLoss", new: "cfg.AcceptLoss",
		pkg: "./backend/remote", run: "^TestWindowIsNotGivenUpWithTheSource$",
	}, {
		name: "stand-in-went-its-own-way", rule: "mirror §4.6 a member that stands in cannot have gone its own way",
		in:  "internal/mirror.Leg.Torn",
		old: "|| standsIn(r, int(r.Slot))", new: "",
		pkg: "./backend/remote", run: "^TestDegradedStartBehindAStandIn$",
	}, {
		name: "a member that was restored leaves F without its bits", rule: "mirror §3.6 one that failed, or was put back from a copy, leaves F with all its bits set",
		in:  "backend/remote.copies.standInLocked",
		old: "k.uselessLocked()", new: "0",
		pkg: "./backend/remote", run: "^TestStandInForARestoredMember$",
	}, {
		name: "enough that are away", rule: "mirror §4.4 no generation of the equal members alone begins while one of them is away",
		in:  "backend/remote.copies.enoughLocked",
		old: "next.Record.F&k.awayLocked(0) == 0 &&", new: "",
		pkg: "./backend/remote", run: "^TestEnoughWithoutOneThatIsAway$",
	}, {
		name: "the end waits for the arbiter and a comparison", rule: "mirror §4.3 Close waits for no resync",
		in:  "backend/remote.core.unequal",
		old: "_, enough := k.enoughLocked()", new: "_, enough := k.view.Enough()",
		pkg: "./backend/remote", run: "^TestCloseWithoutEnough$",
	}, {
		name: "an adoption waits for no member that makes enough equal", rule: "mirror §4.3 Close and adoption wait for a member that makes enough of them equal",
		in:  "backend/remote.core.awaitEqual",
		old: "max(patience, k.timeout+departAfter)", new: "patience",
		pkg: "./backend/remote", run: "^TestAdoptionWithEnoughEqual$",
	}, {
		name: "the end waits for no answer of the arbiter", rule: "mirror §4.3 Close and adoption wait for the answer of the arbiter",
		in:  "backend/remote.core.awaitEqual",
		old: "w.soon += askTimeout", new: "",
		pkg: "./backend/remote", run: "^TestCloseAwaitsTheArbiter$",
	}, {
		name: "a device fails before the arbiter is asked", rule: "§5 --loss-timeout bounds the wait for a member that cannot be let go while the arbiter is away",
		in:  "backend/remote.overdue.find",
		old: "late = waited", new: "late = owed",
		pkg: "./backend/remote", run: "^TestHungDiskBesideASlowOneAndLossTimeout$",
	}, {
		name: "a stand-in needs one that is away", rule: "mirror §3.3 no member stands in while another one is away that the mirror would need then",
		in:  "backend/remote.copies.standsInLocked",
		old: "ok && next.Needs(k.awayLocked(0)&^persist.Member(slot)) == nil", new: "ok",
		pkg: "./backend/remote", run: "^TestStandInWithTwoAway$",
	}, {
		name: "taken-back-from-few", rule: "mirror §3.3 not if a start could find all of one attempt and none of the other",
		in:  "internal/mirror.View.TakeBack",
		old: "|| !electorate(&v.Record).votes()", new: "",
		pkg: "./internal/mirror", run: "^TestTakeBack$",
	}, {
		name: "one that is taken back is equal", rule: "mirror §3.6 one that lost its contents, or was not equal, is not equal when it is taken back",
		in:  "internal/mirror.View.TakeBack",
		old: "whole := back &^ v.Lacking", new: "whole := back",
		pkg: "./internal/mirror", run: "^TestTakeBack$",
	}, {
		name: "one that a pending generation lets go lacks nothing", rule: "mirror §3.6 a member that leaves F before it was equal leaves with all its bits set",
		in:  "internal/mirror.View.begin",
		old: "had |= v.Record.F &^ v.Joiner", new: "",
		pkg: "./internal/mirror", run: "^TestViewProperty$",
	}, {
		name: "lost-joiner-is-equal", rule: "mirror §3.6 a pending generation does not take in a member that lost its contents",
		in:  "internal/mirror.View.Regains",
		old: "v.Joiner &^= member", new: "",
		pkg: "./internal/mirror", run: "^TestRegainInAChange$",
	}, {
		name: "a member that the mirror needs is not asked again", rule: "mirror §3.3 the device goes on when a member is back that it cannot do without",
		in:  "backend/remote.copies.sitsOut",
		old: "case inF && g.bad != nil: return k.doesWithoutLocked(g)", new: "case inF && g.bad != nil: return true",
		pkg: "./backend/remote", run: "^TestNeededMemberIsAskedAgain$",
	}, {
		name: "a mirror waits for data that are gone", rule: "mirror §4.5 a lost leg ends the device if it is the last equal one and cannot come back",
		in:  "backend/remote.copies.leaverLocked",
		old: "if last && (errors.Is(g.bad, errContents) || g.notOurs()) {", new: "if last && g.notOurs() {",
		pkg: "./backend/remote", run: "^TestLastEqualMemberLosesItsContents$",
	}, {
		name: "the end waits for a record of a member that hangs", rule: "the end of a device waits for no disk that hangs",
		in:  "backend/remote.copies.end",
		old: "context.WithTimeout(ctx, closeTimeout)", new: "context.WithCancel(ctx)",
		pkg: "./backend/remote", run: "^TestCloseInAChangeThatHangs$",
	}, {
		name: "a killed life ends while a member regains its contents", rule: "mirror §4.5 only the life itself knows what its members have",
		in:  "backend/remote.replayer.flush",
		old: "|| r.core.copies.regains()", new: "",
		pkg: "./backend/remote", run: "^TestKilledWhileAMemberRegains$", hangs: true,
	}, {
		name: "a removal that a next run finishes is not told", rule: "mirror §4.9 when the generation is active, the member gets the zero record",
		in:  "backend/remote.replayer.goOn",
		old: "if r.core.copies.known = h.departing(); !h.Mirror.Pending {", new: "if !h.Mirror.Pending {",
		pkg: "./backend/remote", run: "^TestMirrorKilledInARemoval$",
	}, {
		name: "--degraded begins without the arbiter", rule: "mirror §4.8 an operator has to say that the arbiter is not asked",
		in:  "internal/mirror.Found.unasked",
		old: "(f.Asked || f.WithoutArbiter)", new: "true",
		pkg: "./internal/mirror", run: "^TestDecideWithAnArbiter$",
	}, {
		name: "a life without an arbiter asks one after a kill", rule: "mirror §4.8 a life that began without the arbiter goes on without it",
		in:  "backend/remote.replayer.goOn",
		old: "if r.core.copies.view.Arbiter {", new: "if r.core.copies.view.Arbiter || true {",
		pkg: "./backend/remote", run: "^TestBegunWithoutTheArbiter$",
	}, {
		name: "a start waits for the clock although it holds all of F", rule: "mirror §4.7 a life that does not hold all of F waits for a lease of the targets",
		in:  "backend/remote.copies.holds",
		old: "return members == 0, k.came", new: "return members == 0 && false, k.came",
		pkg: "./backend/remote", run: "^TestQuietEndsWithTheMember$",
	}, {
		name: "a member is copied to before its record says so", rule: "mirror §5.1 before the first byte its record says torn",
		in:  "backend/remote.copies.meet",
		old: "if _, err := g.ask(ctx, &plain, m.Append(nil), &done, &refused); err != nil {",
		new: "_, _, _, _ = &plain, &m, &done, &refused; if err := ctx.Err(); err != nil {",
		pkg: model, run: mirrorCrashes,
	}, {
		name: "torn-serves", rule: "mirror §5.1 a start that finds nothing newer than a torn member's own record does not begin",
		in:  "internal/mirror.survey.candidates",
		old: "s.m.F & held &^ s.torn", new: "(s.m.F | s.torn) & held",
		pkg: "./internal/mirror", run: "^TestDecide$",
	}, {
		name: "a copy of a lost session counts", rule: "mirror §5.4 a leg that is lost starts again from its bits",
		in:  "backend/remote.copies.startResyncsLocked",
		old: "r.pieces[p].state = pieceFree", new: "_ = p",
		pkg: "./backend/remote", run: "^TestResyncForgetsTheSessionBefore$",
	}, {
		name: "a barrier that covers nothing is left to a native FLUSH", rule: "mirror §5.4 barriers wait for the leg, too",
		in:  "backend/remote.lane.pushBarrierLocked",
		old: "|| from == to", new: "",
		pkg: "./backend/remote", run: "^TestEmptyBarrierHasAnAnswer$",
	}, {
		name: "any-source", rule: "mirror §5.2 the source is an equal leg of this life",
		in:  "backend/remote.piece.pushLocked",
		old: "s.reader, r.leg.lanes[s.index]",
		new: "s.reader, r.leg.lanes[s.index]; for _, l := range s.lanes { if l != dst && l.connected { src = l } }",
		pkg: model, run: mirrorCrashes,
	}, {
		name: "read-while-syncing", rule: "mirror §5.2 a leg that is being copied to answers no READ",
		in:  "backend/remote.core.servesLocked",
		old: "x.copies == nil || x.copies.servesLocked(g)", new: "true",
		pkg: "./backend/remote", run: "^TestReadsNeverComeFromResync$",
	}, {
		name: "no-hold-back", rule: "mirror §5.3 everything behind it in that queue waits until the data are there",
		in:  "backend/remote.lane.buildCopyLocked",
		old: "default: return false", new: "default: if l.queue.n == 1 || l.queue.at(1).kind != itemWrites { return false }; l.queue.push(*it)",
		pkg: "./backend/remote", run: "^TestWriteBehindCopy$",
	}, {
		name: "doubt-is-taken-in", rule: "mirror §5.5 a member in doubt acknowledges a barrier before that",
		in:  "backend/remote.resync.unsettled",
		old: "if r.doubtedLocked() {", new: "if false {",
		pkg: "./backend/remote", run: "^TestMemberInDoubtIsNotTakenIn$",
	}, {
		name: "a barrier that settles the doubt of a member has nothing to do", rule: "mirror §5.5 even if nothing was copied to it",
		in:  "backend/remote.stream.carriesLocked",
		old: "|| s.index == 0 && r.doubtedLocked()", new: "",
		pkg: "./backend/remote", run: "^TestMemberInDoubtIsNotTakenIn$",
	}, {
		name: "a member that is to follow settles its doubt first", rule: "mirror §5.5 a member in doubt acknowledges a barrier before a generation begins that has it in F",
		in:  "backend/remote.resync.doubtedLocked",
		old: "&& !k.view.Record.Async.Has(slot)", new: "",
		pkg: "./backend/remote", run: "^TestFollowerInDoubt$",
	}, {
		name: "joiner-without-bits", rule: "mirror §5.5 the member gets all bits of members that stay out",
		in:  "internal/mirror.View.RecordFor",
		old: "return r, r.Present() &^ r.F", new: "return r, 0",
		pkg: "./internal/mirror", run: "^TestTakeIn$",
	}, {
		name: "a late barrier clears the bits of a fill", rule: "mirror §3.5 only behind a barrier that the copied member acknowledged after the copy",
		in:  "persist/target.fills.clear",
		old: "counted != f.n ||", new: "",
		pkg: "./persist/target", run: "^TestClearBehindAFill$",
	}, {
		name: "a record counts before the bits that it means are set", rule: "mirror §4.4 all others get all their bits set",
		in:  "persist/region.Region.recordLocked",
		old: "if err := r.fillBitsLocked(&sb.Record, fill); err != nil { return err }; for", new: "defer func() { _ = r.fillBitsLocked(&sb.Record, fill) }(); for",
		pkg: "./persist/region", run: "^TestBitsSurviveCrashes$",
	},
}
