package mutants

// memberships are mutants of changes of a mirror's members, and of M (mirror §4.9).
var memberships = []mutant{
	{
		name: "a late barrier clears the bits of who has the place next", rule: "mirror §3.5 only behind a barrier that the copied member acknowledged after the copy",
		in:  "persist/target.fills.clear",
		old: "|| f.left.Has(slot)", new: "",
		pkg: "./persist/target", run: "^TestClearOvertakenByARemoval$",
	}, {
		name: "the session of another member is forgotten", rule: "docs/rules.md: the session that is forgotten is that of the removed member",
		in:  "backend/remote.Device.forgetSession",
		old: "h.Sessions[slot].UUID == region", new: "slot == 2",
		pkg: "./backend/remote", run: "^TestForgetsTheSessionOfTheRemoved$",
	}, {
		name: "an M that was replaced is a success", rule: "docs/rules.md: whoever asked for an M that a smaller one replaced is told",
		in:  "backend/remote.Device.SetMinCopies",
		old: "int(has.MinCopies) != m", new: "false",
		pkg: "./backend/remote", run: "^TestMinCopiesIsReplaced$",
	}, {
		name: "change-passes-by", rule: "mirror §4.9 no generation becomes active on an F that a majority of the members before leaves out",
		in:  "internal/mirror.View.suffices",
		old: "case v.Before.passesBy(f):", new: "case false:",
		pkg: "./internal/mirror", run: "^TestMembershipChanges$",
	}, {
		name: "start-in-a-change", rule: "mirror §4.9 a start that finds another membership in F begins with an F that its majorities cannot leave out",
		in:  "internal/mirror.Found.begin",
		old: "m.MinCopies == 1 && !d.Before.passesBy(d.Equal)", new: "m.MinCopies == 1",
		pkg: "./internal/mirror", run: "^TestMembershipChanges$",
	}, {
		name: "a start in a change forgets it", rule: "mirror §4.9 both memberships count until the change is active",
		in:  "internal/mirror.Start",
		old: ", Before: d.Before", new: "",
		pkg: "./internal/mirror", run: "^TestMembershipChanges$",
	}, {
		name: "a half-made mirror begins", rule: "mirror §4.2 rules (b) and (c) count only if m has a lineage or all members have records",
		in:  "internal/mirror.Found.made",
		old: "if m.Lineage[0] != (persist.Ancestor{}) {", new: "if true {",
		pkg: "./internal/mirror", run: "^TestDecideCreated$",
	}, {
		name: "a half-made mirror begins with its arbiter", rule: "mirror §4.2 rule (c) counts only if m has a lineage or all members have records",
		in:  "internal/mirror.survey.proof",
		old: "case s.arbiter && f.made(s.m):", new: "case s.arbiter:",
		pkg: "./internal/mirror", run: "^TestDecideCreated$",
	}, {
		name: "a member below M is removed", rule: "mirror §4.9 never below M",
		in:  "internal/mirror.View.Remove",
		old: "case f.Count() < int(v.Record.MinCopies):", new: "case f == 0:",
		pkg: "./internal/mirror", run: "^TestRemove$",
	}, {
		name: "the last equal member is removed", rule: "mirror §4.9 never the last equal one",
		in:  "internal/mirror.View.Remove",
		old: "case f&v.Equal == 0:", new: "case false:",
		pkg: "./internal/mirror", run: "^TestRemove$",
	}, {
		name: "taken-back-is-read", rule: "mirror §4.7 while a generation is pending READs come only from members in the F of each one that it replaces",
		in:  "backend/remote.copies.servesLocked",
		old: "k.office.shared.Has(g.slot)", new: "(k.office.shared.Has(g.slot) || true)",
		pkg: "./backend/remote", run: "^TestTakenBackIsNotReadFrom$",
	}, {
		name: "leaver-is-read", rule: "mirror §4.7 while a generation is pending READs come only from members in its F",
		in:  "backend/remote.copies.changeLocked",
		old: "k.core.readableLocked()", new: "",
		pkg: "./backend/remote", run: "^TestLeaverIsNotReadFrom$",
	}, {
		name: "an added member has no bits", rule: "mirror §4.9 a member that is added has all its bits set on all of F",
		in:  "internal/mirror.View.Add",
		old: "next.Lacking |= persist.Member(slot)", new: "",
		pkg: "./internal/mirror", run: "^TestAdd$",
	}, {
		name: "one-change-at-a-time", rule: "mirror §4.9 a smaller M may replace a pending generation",
		in:  "internal/mirror.View.SetMinCopies",
		old: "if v.Pending && m <", new: "if false && m <",
		pkg: "./internal/mirror", run: "^TestSmallerMinCopiesEndsAWait$",
	}, {
		name: "chain-forgets", rule: "mirror §4.9 every M by which a start may begin still counts",
		in:  "internal/mirror.View.SetMinCopies",
		old: "before, ok = cover(v.Before, before)", new: "before, ok = v.Before, true",
		pkg: "./internal/mirror", run: "^TestMembershipChanges$",
	}, {
		name: "a change begins that needs who is away", rule: "mirror §4.9 no change begins that needs a member which is away and cannot be let go",
		in:  "backend/remote.copies.alter",
		old: "case needs != nil:", new: "case false:",
		pkg: "./backend/remote", run: "^TestChangeWaitsForANeededMember$",
	}, {
		name: "bits-of-a-leaver", rule: "mirror §4.9 a generation that replaces a removal names the leaver nowhere",
		in:  "internal/mirror.View.begin",
		old: "v.Lacking &= v.Record.Present()", new: "",
		pkg: "./internal/mirror", run: "^TestRemoveThenLetGo$",
	}, {
		name: "a start opens who had the slot before", rule: "mirror §4.9 a slot can have another member",
		in:  "backend/remote.beginning.leg",
		old: "l.MemberOf(m) &&", new: "",
		pkg: "./backend/remote", run: "^TestASlotHasAnotherMember$",
	}, {
		name: "a member that is being removed is needed", rule: "mirror §4.5 a life that goes on finishes the change that its header names",
		in:  "backend/remote.header.relies",
		old: "& h.Mirror.Record.Present()", new: "",
		pkg: "./backend/remote", run: "^TestMirrorKilledInARemoval$",
	}, {
		name: "a change begins that nobody asks for any more", rule: "an order ends with whoever gave it",
		in:  "backend/remote.copies.alter",
		old: "case ctx.Err() != nil:", new: "case false:",
		pkg: "./backend/remote", run: "^TestChangeThatNobodyAwaits$",
	}, {
		name: "a removed member keeps its contents", rule: "mirror §4.9 the zero record, and with it a new contents id",
		in:  "persist/region.Region.SetRecord",
		old: "sb.Life, sb.Contents = 0, newID()", new: "sb.Life = 0",
		pkg: "./backend/remote", run: "^TestRemoveMember$",
	}, {
		name: "a removed member is not told", rule: "mirror §4.9 the member gets the zero record",
		in:  "backend/remote.leg.farewell",
		old: "return g.renounce(ctx, &c, o.Epoch)", new: "return nil",
		pkg: "./backend/remote", run: "^TestRemoveMember$",
	}, {
		name: "a removed member is told when it has sat out", rule: "mirror §4.9 when the generation is active, the member gets the zero record",
		in:  "backend/remote.copies.sitsOut",
		old: "case g.leaver != nil:", new: "case false:",
		pkg: "./backend/remote", run: "^TestRemoveAMemberThatSitsOut$",
	}, {
		name: "a region that others had is added", rule: "an added region was in no other hands since somebody looked at it",
		in:  "backend/remote.leg.untouched",
		old: "|| said.Epoch != p.Epoch", new: "",
		pkg: "./backend/remote", run: "^TestAddMemberIsRefused$",
	}, {
		name: "replace removes before it looks", rule: "a member of four that is replaced stays until the new region is found fit",
		in:  "cmd/pmnbd.replaceMember",
		old: "p, err := a.prepare(call, m, old)", new: "if full { if err := m.remove(call, order{Member: old}); err != nil { return err } }; p, err := a.prepare(call, m, old)",
		pkg: "./test/e2e", run: "^TestMirrorReplaceMistakes$",
	}, {
		name: "replace believes the command alone", rule: "a member of four that is replaced stays until the new region is found fit",
		in:  "cmd/pmnbd.initiator.carryOut",
		old: `if o.Target != "" {`, new: "if false {",
		pkg: "./test/e2e", run: "^TestMirrorReplaceMistakes$",
	}, {
		name: "a removed member is copied to", rule: "mirror §4.9 the targets keep no bits of a member that was removed",
		in:  "backend/remote.copies.startResyncsLocked",
		old: "g.vacant ||", new: "",
		pkg: "./backend/remote", run: "^TestRemovedMemberIsNotCopiedTo$",
	}, {
		name: "bits of a member are asked for while it is removed", rule: "mirror §4.9 the targets keep no bits of a member that was removed",
		in:  "backend/remote.copies.keepBits",
		old: "k.view.Record.Present().Has(slot) && (", new: "(",
		pkg: "./backend/remote", run: "^TestBitsOfAMemberThatLeavesOrComes$",
	}, {
		name: "bits of a member are asked for while it is added", rule: "mirror §4.9 the targets keep no bits of a member that they do not know yet",
		in:  "backend/remote.copies.keepBits",
		old: "(!k.view.Serves() || k.known.Present().Has(slot))", new: "true",
		pkg: "./backend/remote", run: "^TestBitsOfAMemberThatLeavesOrComes$",
	}, {
		name: "a member comes in that was removed", rule: "mirror §4.9 the targets keep no bits of a member that was removed",
		in:  "backend/remote.leg.revive",
		old: "if g.leaver != nil {", new: "if false {",
		pkg: "./backend/remote", run: "^TestRemovedWhileItComesBack$", hangs: true,
	}, {
		name: "a member goes on that was let go while it came back", rule: "mirror §5.1 before the first byte is copied its record says torn",
		in:  "backend/remote.copies.leftLocked",
		old: "return resumes ||", new: "_ = resumes; return",
		pkg: "./backend/remote", run: "^TestGivenUpWhileItComesBack$",
	}, {
		name: "a follower goes on that was given up while it came back", rule: "mirror §7.1 a follower has no writes without those before",
		in:  "backend/remote.copies.leftLocked",
		old: "return resumes || g.goesOn && !g.follow.on", new: "return resumes",
		pkg: "./backend/remote", run: "^TestGivenUpWhileItComesBack$",
	}, {
		name: "a half copied member of the other side cannot be given up", rule: "mirror §4.6 a record of a side that is given up counts until its member is given up, too",
		in:  "internal/mirror.Leg.Parted",
		old: "(!l.Torn() || !r.Before(m.Generation))", new: "!l.Torn()",
		pkg: "./internal/mirror", run: "^TestDiscardsEndASplit$",
	}, {
		name: "discard takes a member that stood in for one with writes of its own", rule: "mirror §4.6 discard says what is given up",
		in:  "backend/remote.FindDiscard",
		old: "!x.half && is.Torn()", new: "!x.half && !told.Record.F.Has(slot)",
		pkg: "./backend/remote", run: "^TestDiscardOfAStandIn$",
	}, {
		name: "giving up names what goes with the last life alone", rule: "mirror §4.6 a later life refutes each generation that had its member in F",
		in:  "internal/mirror.Leg.GivenUpWith",
		old: "if a.F.Has(slot) {", new: "if a.F.Has(slot) && a.Life == l.Record.Life {",
		pkg: "./internal/mirror", run: "^TestParted$",
	},
}
