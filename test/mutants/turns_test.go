package mutants

// turns break the rules about how long a start of a mirror keeps the lease at the arbiter.
var turns = []mutant{
	{
		name: "a start that cannot begin keeps the lease at the arbiter", rule: "mirror §4.8 a start that cannot begin gives the lease back",
		in:  "backend/remote.beginning.turnOver",
		old: "return b.found.Asked &&", new: "return false && b.found.Asked &&",
		pkg: "./backend/remote", run: "^TestStandbyThatReachesNobody$",
	}, {
		name: "a start that has opened a member gives the lease back", rule: "mirror §4.8 a start does not yield once it has opened a member",
		in:  "backend/remote.beginning.turnOver",
		old: "slices.Max(b.life) != 0", new: "slices.Max(b.life) != 0 && false",
		pkg: "./backend/remote", run: "^TestStartThatOpenedAMemberKeepsTheLease$",
	}, {
		name: "it takes it again at once", rule: "mirror §4.8 it becomes active again once the members that it reaches let a life begin",
		in:  "backend/remote.beginning.yield",
		old: "next.Outcome != mirror.Wait ||", new: "true ||",
		pkg: "./backend/remote", run: "^TestStandbyThatReachesTooLittle$",
	}, {
		name: "it does not ask the arbiter again", rule: "mirror §4.8 and after a minute in any case",
		in:  "backend/remote.beginning.yield",
		old: "reached && time.Until(again) <= 0", new: "reached && time.Until(again) <= 0 && false",
		pkg: "./backend/remote", run: "^TestStandbyThatReachesTooLittle$",
	}, {
		name: "it gives the lease back to an arbiter that does not answer", rule: "mirror §4.8 while the arbiter answers",
		in:  "backend/remote.beginning.turnOver",
		old: "return b.found.Asked &&", new: "return",
		pkg: "./backend/remote", run: "^TestNoTurnEndsWithoutTheArbiter$",
	}, {
		name: "a wait for the source begins again with each turn", rule: "mirror §4.8 a start does not yield in the wait that --accept-loss ends",
		in:  "backend/remote.beginning.turnOver",
		old: "&& !bounded", new: "&& (!bounded || true)",
		pkg: "./backend/remote", run: "^TestWaitForTheSourceKeepsTheLease$",
	},
}
