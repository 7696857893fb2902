package mutants

// followers are mutants of asynchronous members of a mirror, and of their promotion (mirror §7).
var followers = []mutant{
	{
		name: "interval-early", rule: "mirror §7.1 nothing of an interval before the one before is durable at the follower",
		in:  "backend/remote.copies.sendIntervalLocked",
		old: "from: l.queued, to: share.to}) l.queued = share.to", new: "from: l.queued, to: l.ring.Head()}); l.queued = l.ring.Head()",
		pkg: "./backend/remote", run: "^TestFollowerIsACrashedDisk$",
	}, {
		name: "a follower's payloads are freed", rule: "mirror §7.2 what a follower lacks stays in the window",
		in:  "backend/remote.groupCommit.freeLocked",
		old: "&& !c.env.needed(*c.retired.front())", new: "",
		pkg: "./backend/remote", run: "^TestHeldBarriersAreNotFreed$",
	}, {
		name: "no bound for a follower", rule: "mirror §7.2 at the bound no barrier begins",
		in:  "backend/remote.core.up",
		old: "!x.copies.lagsLocked() &&", new: "",
		pkg: "./backend/remote", run: "^TestFollowerAtTheBound$", hangs: true,
	}, {
		name: "a removed follower holds the window", rule: "mirror §7.2 only a follower that is a member is kept anything for",
		in:  "backend/remote.copies.forsakeLocked",
		old: "g.follow.dropped = g.follow.on", new: "",
		pkg: "./backend/remote", run: "^TestFollowerIsRemoved$",
	}, {
		name: "a target that leads to no member holds the window", rule: "mirror §7.2 only a follower that is a member is kept anything for",
		in:  "backend/remote.copies.followersLocked",
		old: "!k.view.Record.Async.Has(g.slot) && !k.view.Pending", new: "false",
		pkg: "./backend/remote", run: "^TestFollowerIsReachedAnotherWay$",
	}, {
		name: "clear-what-lags", rule: "mirror §7.3 bits are cleared only of chunks that no interval wrote which the follower lacks",
		in:  "backend/remote.followedBits.has",
		old: "if f.last[chunk] == b.seq {", new: "if true {",
		pkg: "./backend/remote", run: "^TestBitsOfAFollower$",
	}, {
		name: "follows-early", rule: "mirror §7.4 a resync becomes following between two barriers",
		in:  "backend/remote.copies.followLocked",
		old: "if k.core.commit.current == nil {", new: "if true {",
		pkg: "./backend/remote", run: "^TestFollowsBetweenBarriers$",
	}, {
		name: "bits of a follower that was removed are cleared", rule: "mirror §4.9 no bit is cleared for a member that was removed",
		in:  "backend/remote.copies.departLocked",
		old: "k.known = k.view.Record", new: "",
		pkg: "./backend/remote", run: "^TestNothingIsCleared$",
	}, {
		name: "a follower is torn for nothing", rule: "mirror §7.4 nobody copies to a follower while no member is there that it could follow",
		in:  "backend/remote.copies.mayMeetLocked",
		old: "if !k.view.Record.Async.Has(slot) {", new: "if true {",
		pkg: "./backend/remote", run: "^TestFollowerIsNotTornForNothing$", hangs: true,
	}, {
		name: "a follower waits for its next attempt although a member is back", rule: "a follower that found nobody to follow is asked at once when a member is back",
		in:  "backend/remote.leg.pauseAlone",
		old: "if g.core.copies.mayMeet(g) {", new: "if false {",
		pkg: "./backend/remote", run: "^TestFollowerWaitsForAMember$",
	}, {
		name: "a follower that finds nobody to follow is asked four times a second", rule: "a follower that finds nobody to follow is asked ever more rarely",
		in:  "backend/remote.leg.comeBack",
		old: "g.core.spares(g) || g.faulty || alone", new: "g.core.spares(g) || g.faulty",
		pkg: "./backend/remote", run: "^TestFollowerAloneBackoff$",
	}, {
		name: "a follower makes a majority", rule: "mirror §7 it counts in no majority",
		in:  "persist.Record.Voters",
		old: "r.Present() &^ r.Async", new: "r.Present()",
		pkg: "./internal/mirror", run: "^TestDecide$",
	}, {
		name: "a follower is taken in", rule: "mirror §7 it is never in F",
		in:  "internal/mirror.View.TakeIn",
		old: "case v.Record.Async.Has(leg):", new: "case false:",
		pkg: "./internal/mirror", run: "^TestFollowing$",
	}, {
		name: "promotion-forgets-nothing", rule: "mirror §7.6 nothing of the life that was followed is in the lineage of a promotion",
		in:  "internal/mirror.promoted",
		old: "a.Life >= followed", new: "a.Life > followed",
		pkg: "./internal/mirror", run: "^TestPromotionLeavesTheOthers$",
	}, {
		name: "a follower is promoted although a member is there that the arbiter has in F", rule: "mirror §7.6 with an arbiter no member of the F that it holds may be reached",
		in:  "internal/mirror.Found.promotion",
		old: "s.candidates(s.held|s.open|s.busy) != 0", new: "s.m == nil",
		pkg: "./internal/mirror", run: "^TestDecide$",
	}, {
		name: "a record of a session before says that a follower is not torn", rule: "mirror §5.1 before the first byte is copied its record says torn",
		in:  "backend/remote.leg.call",
		old: "|| g.generation.Load() != session", new: "",
		pkg: "./backend/remote", run: "^TestRecordOfAFollowerIsLate$",
	}, {
		name: "a torn follower is promoted", rule: "mirror §7.6 a promoted follower is not torn",
		in:  "internal/mirror.Leg.follows",
		old: "&& !l.Record.Torn", new: "",
		pkg: "./internal/mirror", run: "^TestDecide$",
	}, {
		name: "a follower without its contents is promoted", rule: "mirror §7.6 a promoted follower has the contents that its record names",
		in:  "internal/mirror.Found.promotable",
		old: "|| l.Lost(&l.Record)", new: "",
		pkg: "./internal/mirror", run: "^TestDecide$",
	}, {
		name: "--degraded has an older member copied to a follower", rule: "mirror §7.6 a follower that has more is promoted, or given up by the targets",
		in:  "internal/mirror.Found.outlived",
		old: "!f.Degraded ||", new: "true ||",
		pkg: "./internal/mirror", run: "^TestDecide$",
	}, {
		name: "a follower that comes back persists nothing", rule: "mirror §7 a follower's record says how far it is",
		in:  "backend/remote.leg.revive",
		old: "g.tell()", new: "",
		pkg: "./backend/remote", run: "^TestFollowerPersistsAgain$",
	}, {
		name: "a follower that was not told during a change is forgotten", rule: "mirror §7 a follower's record says how far it is",
		in:  "backend/remote.copies.activateLocked",
		old: "g.tell()", new: "_ = g",
		pkg: "./backend/remote", run: "^TestFollowerPersistsAfterAChange$",
	}, {
		name: "FLUSHes wait for a follower that has lost its contents", rule: "mirror §7 FLUSHes wait for one that can catch up",
		in:  "backend/remote.copies.meet",
		old: "commit.start(true)", new: "",
		pkg: "./backend/remote", run: "^TestNobodyWaitsForAFollowerWithoutContents$",
	}, {
		name: "followers persist one after the other", rule: "mirror §7 nobody waits for a follower",
		in:  "backend/remote.copies.teller",
		old: "k.tellOf(k.asking, g)", new: "k.adding <- struct{}{}; k.tellOf(k.asking, g); <-k.adding",
		pkg: "./backend/remote", run: "^TestFollowersPersistApart$",
	},
}
