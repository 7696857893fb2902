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
		in:  "cmd/pmnbd-target.regionsOf",
		old: "c.Regions = salvage(file)", new: "c.Regions = nil",
		pkg: "./cmd/pmnbd-target", run: "^TestSaveOfAFileWithMistakes$",
	}, {
		name: "a mistake in the file costs regions that are no tables of their own", rule: "save --config saves every region that can be found in the file",
		in:  "cmd/pmnbd-target.salvage",
		old: "return regionsIn(whole)", new: "return nil",
		pkg: "./cmd/pmnbd-target", run: "^TestSaveOfAFileWithMistakes$",
	}, {
		name: "a file that is no TOML has no regions", rule: "save --config saves every region that can be found in the file",
		in:  "cmd/pmnbd-target.salvage",
		old: "return regionsAmong(string(b))", new: "return nil",
		pkg: "./cmd/pmnbd-target", run: "^TestSaveOfAFileWithMistakes$",
	}, {
		name: "what is wrong with a region for serve keeps it from being saved", rule: "save --config fails for nothing that only serving needs",
		in:  "cmd/pmnbd-target.regionsOf",
		old: "all = append(all, plain)", new: "all = append(all, r)",
		pkg: "./cmd/pmnbd-target", run: "^TestSaveOfAFileWithMistakes$",
	}, {
		name: "a region that the file has twice is in its own way", rule: "save --config saves every region that can be found in the file",
		in:  "cmd/pmnbd-target.regionsOf",
		old: "if !same {", new: "if true {",
		pkg: "./cmd/pmnbd-target", run: "^TestSaveOfAFileWithMistakes$",
	}, {
		name: "a disk that cannot be measured keeps the memory from everybody", rule: "a region opens whose disk cannot be measured",
		in:  "persist/region.saving.prepare",
		old: "_ = s.im.Measure(context.Background())", new: "if err := s.im.Measure(context.Background()); err != nil { return err }",
		pkg: "./persist/region", run: "^TestDiskThatCannotBeMeasured$",
	}, {
		name: "a disk whose speed nobody knows gets regions", rule: "nothing is granted that a save may not keep in time",
		in:  "persist/region.saving.probe",
		old: "(p.Speed == 0 ||", new: "(false ||",
		pkg: "./persist/region", run: "^TestDiskThatCannotBeMeasured$",
	}, {
		name: "a disk that was slow once is slow for ever", rule: "a disk that is too slow is measured again",
		in:  "persist/region.saving.probe",
		old: "slow && time.Since(s.measured) > measureAgain", new: "false && slow",
		pkg: "./persist/region", run: "^TestSlowDiskIsMeasuredAgain$",
	}, {
		name: "a save that shares its disk tells the disk's speed", rule: "regions may share a disk",
		in:  "persist/region.Region.save",
		old: "if alone() &&", new: "if",
		pkg: "./persist/region", run: "^TestSpeedOfSavesAtOnce$",
	}, {
		name: "a save trusts what is left of an image that was written over", rule: "a save goes into the image as it was left, or writes everything",
		in:  "persist/region.Region.save",
		old: "s.im.Distrust(); s.markAll()", new: "s.im.Distrust()",
		pkg: "./persist/region", run: "^TestImageIsWrittenOverBetweenSaves$",
	}, {
		name: "a backup that was copied over an image counts", rule: "an image that was written over is live",
		in:  "persist/region.Region.distrust",
		old: "err = s.im.MakeLive(func(h *image.Header) { describe(h, &sb) })", new: "_ = sb",
		pkg: "./persist/region", run: "^TestImageIsWrittenOver$",
	}, {
		name: "one copy of a header that was written over stays", rule: "an image that was written over is live",
		in:  "persist/region/internal/image.Image.Distrust",
		old: "im.live = [2]bool{}", new: "_ = im",
		pkg: "./persist/region", run: "^TestImageIsWrittenOver$",
	}, {
		name: "an image has holes", rule: "a save needs no space",
		in:  "persist/region.saving.fill",
		old: "return ensureAllocated(f, new(medium.Memory), total)", new: "return ensureAllocated(f, new(medium.Memory), 0)",
		pkg: "./persist/region", run: "^TestImageWithHoles$",
	}, {
		name: "an image that is cut off behind its header counts", rule: "a save goes into the image as it was left, or writes everything",
		in:  "persist/region.saving.displaced",
		old: "info.Size() < image.Size(s.head.Load().Bytes) ||", new: "",
		pkg: "./persist/region", run: "^TestImageIsCutOff$",
	}, {
		name: "an image is intact without its end", rule: "a save goes into the image as it was left, or writes everything",
		in:  "persist/region/internal/image.Image.Intact",
		old: "im.lay.total()-pageSize", new: "0",
		pkg: "./persist/region", run: "^TestImageIsCutOff$",
	}, {
		name: "a copy of the memory passes for memory that was saved later", rule: "memory is not older than its image",
		in:  "persist/region.Region.settleLocked",
		old: "!sb.Doubt && r.saving.im.Header().State == image.Whole", new: "!sb.Doubt",
		pkg: "./persist/region", run: "^TestMemoryIsReplacedByACopy$",
	}, {
		name: "memory in the making takes the place of another region's", rule: "a start removes only what a process left that was killed",
		in:  "persist/region.discard",
		old: "sb.UUID != h.UUID", new: "found.best.UUID == [16]byte{}",
		pkg: "./persist/region", run: "^TestMemoryIsMadeBesideAnother$",
	}, {
		name: "the slower of two creates removes the faster one's image", rule: "nobody removes what somebody else has locked",
		in:  "persist/region.openOrMakeImage",
		old: "if errors.Is(err, ErrInUse) {", new: "if false {",
		pkg: "./persist/region", run: "^TestCreatesAtOnce$",
	}, {
		name: "the slower of two creates removes the faster one's memory", rule: "nobody removes what somebody else has locked",
		in:  "persist/region.createFile",
		old: "if errors.Is(err, ErrInUse) {", new: "if false {",
		pkg: "./persist/region", run: "^TestCreatesAtOnce$",
	}, {
		name: "the slower of two creates removes the faster one's part", rule: "nobody removes what somebody else has locked",
		in:  "persist/region.openNew",
		old: "errors.Is(err, ErrInUse)", new: "false",
		pkg: "./persist/region", run: "^TestCreatesAtOnce$",
	}, {
		name: "a save into an image behind a link counts", rule: "a save goes where a start looks",
		in:  "persist/region.saving.displaced",
		old: "os.Lstat(s.path)", new: "os.Stat(s.path)",
		pkg: "./persist/region", run: "^TestImageIsReplaced$",
	}, {
		name: "a header whose sync failed is somebody else's", rule: "a session goes on without the disk",
		in:  "persist/region/internal/image.Image.Intact",
		old: "|| heads[at] == im.tried", new: "",
		pkg: "./persist/region", run: "^TestHeaderOfAFailedSync$",
	}, {
		name: "an image that cannot be made live fails the device", rule: "a barrier that the disk of the image prevents ends the session",
		in:  "persist/target.conn.flush",
		old: "if errors.Is(err, region.ErrSave) {", new: "if false {",
		pkg: "./persist/target", run: "^TestImageIsWrittenOverDuringASession$",
	}, {
		name: "people are told to remove memory that no image has", rule: "advice loses no region",
		in:  "persist/region.without",
		old: "h.State == image.Whole", new: "h.State != 0",
		pkg: "./persist/region", run: "^TestMemoryThatIsNotRight$",
	}, {
		name: "inspect calls an old image whole", rule: "an image has all only if it is of the memory's moment",
		in:  "persist/region.InspectImageOf",
		old: "saved.Epoch != sb.Epoch ||", new: "",
		pkg: "./persist/region", run: "^TestInspectImageOf$",
	}, {
		name: "a battery that says no time lasts as long as another one", rule: "what nobody can ask may be empty",
		in:  "cmd/pmnbd-target.parseBattery",
		old: "runtimes < statuses", new: "runtimes == 0",
		pkg: "./cmd/pmnbd-target", run: "^TestParseBattery$",
	}, {
		name: "memory changes while a copy of its image is whole", rule: "live before the first change",
		in:  "persist/region.saving.inPlace",
		old: "s.im.Changeable() &&", new: "",
		pkg: "./persist/region", run: "^TestImageIsReplacedBeforeAGrant$",
	}, {
		name: "a new header hides that the image is written over", rule: "the next save writes all of it",
		in:  "persist/region.saving.inPlace",
		old: "s.markAll()", new: "",
		pkg: "./persist/region", run: "^TestImageIsWrittenOverBeforeAGrant$",
	}, {
		name: "a bad place hides that the image is gone", rule: "docs/rules.md: nothing but the bad place lets the owner in",
		in:  "persist/region.Region.SaveTrouble",
		old: "err := r.guardImage()", new: "err := r.guardImage(); if _, lost := r.Lost([]persist.Range{{Len: r.size}}); lost { return ErrBadPlace }",
		pkg: "./persist/region", run: "^TestBadPlaceHidesNothing$",
	}, {
		name: "a probe gives an image its size again", rule: "the size is evidence",
		in:  "persist/region.saving.fill",
		old: "return errOverwritten", new: "return allocate(f, total, nil)",
		pkg: "./persist/region", run: "^TestProbeHidesNoCut$",
	}, {
		name: "a late look changes the image of others", rule: "docs/rules.md: it changes none",
		in:  "persist/region.Region.disarm",
		old: "if r.closed {", new: "if false {",
		pkg: "./persist/region", run: "^TestLateLookChangesNothing$",
	}, {
		name: "a file that has lost its name is opened", rule: "a region is where the next start looks",
		in:  "persist/region.openLocked",
		old: "err = named(f)", new: "",
		pkg: "./persist/region", run: "^TestRemovedBeforeItIsLocked$",
	}, {
		name: "a save leaves an image too short to be opened", rule: "the next start takes what a save wrote",
		in:  "persist/region.Region.save",
		old: "err = s.completeAtPath()", new: "err = nil",
		pkg: "./persist/region", run: "^TestImageIsCutOff$",
	}, {
		name: "memory that lost its name is as good as any", rule: "memory that ends with the process is told",
		in:  "persist/region.Region.SaveTrouble",
		old: "if r.Nameless() {", new: "if false {",
		pkg: "./persist/region", run: "^TestMemoryIsRemoved$",
	}, {
		name: "a target ends with the only copy", rule: "memory that ends with the process is saved before",
		in:  "cmd/pmnbd-target.service.lastChance",
		old: "case r.Nameless():", new: "case false:",
		pkg: "./test/e2e", run: "^TestProtectedMemoryRemoved$",
	}, {
		name: "a target ends with a region that nobody saves at the shutdown", rule: "what the file does not name is saved before the end",
		in:  "cmd/pmnbd-target.service.lastChance",
		old: "slices.ContainsFunc(", new: "true || slices.ContainsFunc(",
		pkg: "./test/e2e", run: "^TestProtectedUnnamed$",
	}, {
		name: "one reading of an image that fails its check loses the region", rule: "a loss is for good, so read again",
		in:  "persist/region.saving.bring",
		old: "for range 2", new: "for range 1",
		pkg: "./persist/region", run: "^TestImageIsReadAgain$",
	}, {
		name: "a backup that was put in the place of an image counts", rule: "an image that takes the place of one in use is live",
		in:  "persist/region.Region.disarm",
		old: "return im.MakeLive(func(h *image.Header) { describe(h, &sb) })", new: "_ = sb; return nil",
		pkg: "./persist/region", run: "^TestReplacedImageIsLive$",
	}, {
		name: "nobody looks at the image of memory that lost something", rule: "an image that takes the place of one in use is live",
		in:  "persist/region.Region.SaveTrouble",
		old: "err := r.guardImage()", new: "err := error(nil)",
		pkg: "./persist/region", run: "^TestImageIsGuardedWhateverElseIsWrong$",
	}, {
		name: "a file that has taken the place of an image is taken for it", rule: "a save goes where a start looks",
		in:  "persist/region.openProtected",
		old: "s.file = file", new: "s.file = file; s.file, _ = os.Stat(im.Path())",
		pkg: "./persist/region", run: "^TestImageIsReplacedWhileItIsOpened$",
	}, {
		name: "a save looks for its image at its begin alone", rule: "a save goes where a start looks",
		in:  "persist/region.Region.save",
		old: "if err := s.displacedLocked(); err != nil {", new: "if err := error(nil); err != nil {",
		pkg: "./persist/region", run: "^TestImageIsReplacedDuringASave$",
	}, {
		name: "two grants at a time see nothing of each other", rule: "a session makes everything dirty",
		in:  "persist/target.conn.open",
		old: "e.begins.Store(true)", new: "",
		pkg: "./persist/target", run: "^TestNeedOfGrantsAtOnce$",
	}, {
		name: "a copy of an image that is whole loses the region", rule: "a copy of an image that is whole stays so",
		in:  "persist/region.Region.disarm",
		old: "|| current", new: "|| current && false",
		pkg: "./persist/region", run: "^TestReplacedImageStaysWhole$",
	}, {
		name: "memory that is not there when it is to be saved is no matter", rule: "save --config says what it does not save",
		in:  "cmd/pmnbd-target.servedRegion.saveAlone",
		old: "if !p.Whole {", new: "if p.Image == \"\" {",
		pkg: "./cmd/pmnbd-target", run: "^TestSaveWithoutMemory$",
	}, {
		name: "a loss is in no log", rule: "a loss is told",
		in:  "cmd/pmnbd-target.service.logServed",
		old: `case p.Lost != "":`, new: "case false:",
		pkg: "./test/e2e", run: "^TestProtectedNotSaved$",
	}, {
		name: "an image that nobody can read is no matter to a save", rule: "save --config says what it does not save",
		in:  "cmd/pmnbd-target.servedRegion.saveAlone",
		old: `return "", fmt.Errorf("%s is not there, and nobody knows what the image has: %w", r.Path.string, err)`, new: `return "", nil`,
		pkg: "./cmd/pmnbd-target", run: "^TestSaveWithoutMemory$",
	}, {
		name: "a save that finds a bad place tells nobody where", rule: "memory that a save cannot read is a bad place",
		in:  "persist/region.Region.sum",
		old: "address(b) - address(r.mem) + fault.off", new: "fault.off",
		pkg: "./persist/region", run: "^TestSaveFindsABadPlace$",
	},
}
