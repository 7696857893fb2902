package mutants

// sturdy are mutants of what a mirror does about members that hang, fail or lose their contents.
var sturdy = []mutant{
	{
		name: "equally slow disks", rule: "mirror §3.3 the time counts from when enough others were through",
		in:  "backend/remote.overdue.find",
		old: "if through&k.view.Equal == 0 ||", new: "if",
		also: []edit{{"backend/remote.copies.throughLocked", "&& !k.owesLocked(other) {", "{"}},
		pkg:  "./backend/remote", run: "^TestSlowDiskIsNotLetGo$",
	}, {
		name: "hung disk below M", rule: "mirror §3.3 no generation begins with fewer than M members",
		in:  "backend/remote.copies.doesWithoutLocked",
		old: "return err == nil &&", new: "return (err == nil || true) &&",
		also: []edit{{"backend/remote.overdue.find", "|| through.Count() < int(k.view.Record.MinCopies) {", "{"}},
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
		name: "cleared member has no owner", rule: "mirror §3.6 it keeps the owner of a session that was not closed",
		in:  "persist/region.Region.clear",
		old: "if sb.Clean || !others {", new: "{",
		pkg: "./persist/region", run: "^TestClearDrawsContents$",
	},
}
