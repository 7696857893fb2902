package mutants

// disks are mutants of what a protected region does with a disk that hangs, is slow, or has no room.
var disks = []mutant{
	{
		name: "a disk that hangs is given more", rule: "a disk that hangs holds nobody up, and a late write overtakes none",
		in:  "persist/region/internal/image.patient.do",
		old: "if p.hangs() {", new: "if false {",
		pkg: ofImages, run: "^TestDiskThatHangs$",
	}, {
		name: "a save tells nothing of its regions", rule: "who asked for a save hears of each region at once",
		in:  "persist/target.Server.SaveTelling",
		old: "tell(saved[i])", new: "_ = tell",
		pkg: "./persist/target", run: "^TestSaveTellsAtOnce$", hangs: true,
	}, {
		name: "targets are saved one after another", rule: "a disk that hangs holds up no other target",
		in:  "cmd/pmnbd-target.askAll",
		old: "all.Go(func() {", new: "func(f func()) { f() }(func() {",
		pkg: "./cmd/pmnbd-target", run: "^TestSaveAsksAllAtOnce$", hangs: true,
	}, {
		name: "a save at the shutdown needs what serving needs", rule: "save --config fails for nothing but memory and image",
		in:  "persist/region.saving.open",
		old: "if err == nil && !o.Saving {", new: "if err == nil {",
		pkg: "./persist/region", run: "^TestSaveWithoutWhatServingNeeds$",
	}, {
		name: "a mistake in the file costs all regions", rule: "save --config saves what it can read of the file",
		in:  "cmd/pmnbd-target.saveOffline",
		old: "c.Regions = salvage(file)", new: "return err",
		pkg: "./cmd/pmnbd-target", run: "^TestSaveOfAFileWithMistakes$",
	},
}
