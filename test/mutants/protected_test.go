package mutants

const (
	ofImages    = "./persist/region/internal/image"
	cutAnywhere = "^TestCutAnywhere$"
	lossOrSave  = "^TestProtectedIsLostWithoutASave$"
)

// protection are mutants of the image of class protected.
var protection = []mutant{
	{
		name: "a removed region takes a newer image along", rule: "an image goes only with the memory that it is of",
		in:  "persist/region.removeSaved",
		old: "if !force {", new: "if false {",
		pkg: "./persist/region", run: "^TestRemoveWithANewerImage$",
	}, {
		name: "a start removes the memory that was served at its temporary name", rule: "a wrong path is no loss",
		in:  "persist/region.discard",
		old: "case h.State == image.Live && sb.Generation > 2:", new: "case false:",
		pkg: "./persist/region", run: "^TestServedAtTheNameOfUnfinishedMemory$",
	}, {
		name: "an image has a doubt that the next start must settle", rule: "an image stays whole over a start",
		in:  "persist/region.Region.settleLocked",
		old: "sb.Failed || !sb.Doubt &&", new: "true || sb.Failed && !sb.Doubt &&",
		pkg: "./persist/region", run: "^TestSaveSettlesDoubt$",
	}, {
		name: "one copy of the header says live", rule: "memory changes only when both copies say live",
		in:  "persist/region/internal/image.Image.Changeable",
		old: "im.live[0] && im.live[1]", new: "im.head.State == Live",
		pkg: ofImages, run: cutAnywhere,
	}, {
		name: "blocks are overwritten below a header that says whole", rule: "an image is live while it is written",
		in:  "persist/region/internal/image.Image.Save",
		old: "if !im.Changeable() {", new: "if false {",
		pkg: "./persist/region", run: "^TestSaveGoesLiveFirst$",
	}, {
		name: "the header is written before the blocks are durable", rule: "blocks, sync, header",
		in:  "persist/region/internal/image.Image.writeTable",
		old: "err = im.sync()", new: "err = nil",
		pkg: ofImages, run: cutAnywhere,
	}, {
		name: "a header is not durable when it counts", rule: "header, sync",
		in:  "persist/region/internal/image.Image.write",
		old: "if err := im.sync(); err != nil {", new: "if err := error(nil); err != nil {",
		pkg: ofImages, run: cutAnywhere,
	}, {
		name: "a copy that was not written counts as live", rule: "a write that failed leaves its copy unknown",
		in:  "persist/region/internal/image.Image.write",
		old: "im.live[at] = im.live[at] && h.State == Live", new: "",
		pkg: ofImages, run: "^TestDiskThatFails$",
	}, {
		name: "a copy that said live counts no more after a write that failed", rule: "a session goes on without the disk",
		in:  "persist/region/internal/image.Image.write",
		old: "im.live[at] && h.State == Live", new: "false",
		pkg: "./persist/target", run: "^TestDiskThatFailsDuringASession$",
	}, {
		name: "a disk that fails in a grant fails the device", rule: "a grant that the disk prevents is asked for again",
		in:  "persist/target.export.succeedLocked",
		old: "case errors.Is(err, region.ErrSave):", new: "case false:",
		pkg: "./persist/target", run: "^TestDiskThatFailsBeforeAGrant$",
	}, {
		name: "a save leaves out the superblock of a failure", rule: "what differs from the image is dirty",
		in:  "persist/region.Region.save",
		old: "i == 0 && !equal ||", new: "",
		pkg: "./persist/region", run: "^TestSaveOfAFailureAfterASave$",
	}, {
		name: "memory from before a save is used", rule: "memory is not older than its image",
		in:  "persist/region.belongs",
		old: "saved.Generation > sb.Generation", new: "saved.Generation == 0",
		pkg: "./persist/region", run: "^TestMemoryOlderThanItsSave$",
	}, {
		name: "memory on a mount of its own is not found", rule: "a start whose path is wrong names the memory",
		in:  "persist/region.saving.memoryElsewhere",
		old: "places, mounts)", new: "places, mounts[:0])",
		pkg: "./persist/region", run: "^TestMemoryOnAnotherMount$",
	}, {
		name: "memory is used although other memory had a grant since", rule: "memory is the one that had the last grant",
		in:  "persist/region.belongs",
		old: "saved.Memory != sb.Memory", new: "saved.Memory == sb.Memory && false",
		pkg: "./persist/region", run: "^TestMemoryIsOvertaken$",
	}, {
		name: "memory of an image that is whole is taken for old", rule: "a grant that is cut loses nothing",
		in:  "persist/region.belongs",
		old: "h.State == image.Live && h.Epoch > sb.Epoch", new: "h.Epoch > sb.Epoch",
		pkg: "./persist/region", run: "^TestGrantThatIsCutBeforeASave$",
	}, {
		name: "memory of a loss has no number of its own", rule: "memory is the one that had the last grant",
		in:  "persist/region.saving.lose",
		old: "newID(), boot, newNonce()", new: "newID(), boot, sb.Memory",
		pkg: "./persist/region", run: "^TestLossBelowARottenHeader$",
	}, {
		name: "a save goes to a file that has no name any more", rule: "a save goes where a start looks",
		in:  "persist/region.saving.displaced",
		old: "case !os.SameFile(info, s.file):", new: "case info == s.file:",
		pkg: "./persist/region", run: "^TestImageIsReplaced$",
	}, {
		name: "a save does not look for another image at its place", rule: "a save goes where a start looks",
		in:  "persist/region.saving.displaced",
		old: "found != *s.head.Load()", new: "found.Name == \"\"",
		pkg: "./persist/region", run: "^TestImageIsWrittenOver$",
	}, {
		name: "only an older image is another one", rule: "a save goes where a start looks",
		in:  "persist/region.saving.displaced",
		old: "found != *s.head.Load()", new: "found.Generation < s.head.Load().Generation",
		pkg: "./persist/region", run: "^TestNewerImageIsWrittenOver$",
	}, {
		name: "a header that is half another image's is looked over", rule: "a save goes where a start looks",
		in:  "persist/region.saving.displaced",
		old: "errors.Is(err, image.ErrDamaged) ||", new: "",
		pkg: "./persist/region", run: "^TestImageIsWrittenOver$",
	}, {
		name: "others have what a lost member has", rule: "a loss sets all bits of members outside F",
		in:  "persist/region.saving.lose",
		old: "setRun(mem[at:at+bitmapSize], 0, b.chunks)", new: "_ = at",
		pkg: "./persist/region", run: "^TestProtectedMember$",
	}, {
		name: "the end waits for a disk that hangs", rule: "a disk that hangs holds up no other region",
		in:  "persist/target.disk.close",
		old: "case <-patience.C:", new: "case <-(chan int)(nil):",
		pkg: "./persist/target", run: "^TestEndWithADiskThatHangs$", hangs: true,
	}, {
		name: "regions are saved one after another", rule: "a disk that hangs holds up no other region",
		in:  "cmd/pmnbd-target.saveAll",
		old: "all.Go(func() {", new: "func(f func()) { f() }(func() {",
		pkg: "./cmd/pmnbd-target", run: "^TestSaveOfflineAtOnce$", hangs: true,
	}, {
		name: "last saves run one after another", rule: "a disk that hangs holds up no other region",
		in:  "cmd/pmnbd-target.service.saveLast",
		old: "all.Go(func() {", new: "func(f func()) { f() }(func() {",
		pkg: "./cmd/pmnbd-target", run: "^TestLastSaves$", hangs: true,
	}, {
		name: "systemd hears nothing of last saves", rule: "systemd hears how long last saves may take",
		in:  "cmd/pmnbd-target.service.noteLast",
		old: "s.last.underWay = protected", new: "s.last.underWay = nil",
		pkg: "./cmd/pmnbd-target", run: "^TestLastSaves$",
	}, {
		name: "systemd hears of last saves when they begin", rule: "systemd hears how long last saves may take",
		in:  "cmd/pmnbd-target.service.reload",
		old: "s.noteLast(removed)", new: "",
		pkg: "./cmd/pmnbd-target", run: "^TestLastSaves$",
	}, {
		name: "a reload keeps the regions that it has closed", rule: "systemd hears how long last saves may take",
		in:  "cmd/pmnbd-target.service.reload",
		old: "s.noteLast(nil)", new: "",
		pkg: "./cmd/pmnbd-target", run: "^TestSaveDuringTheLastSaves$",
	}, {
		name: "a save leaves out what a last save writes", rule: "a save includes what is withdrawn until that is saved",
		in:  "persist/target.Server.Change",
		old: "closeAll(left)", new: "closeAll(left); s.changing.Lock(); clear(s.left); s.changing.Unlock()",
		pkg: "./persist/target", run: "^TestSaveDuringALastSave$",
	}, {
		name: "a reload saves what it removes when the target has forgotten it", rule: "a save includes what is withdrawn until that is saved",
		in:  "cmd/pmnbd-target.service.reload",
		old: "func() { unsaved = s.saveLast(removed) })", new: "func() {}); unsaved = s.saveLast(removed)",
		pkg: "./cmd/pmnbd-target", run: "^TestSaveDuringTheLastSaves$",
	}, {
		name: "a last save has as long as its owner said", rule: "systemd hears how long last saves may take",
		in:  "cmd/pmnbd-target.lastSavesFor",
		old: "max(within, 2*expected)", new: "within",
		pkg: "./cmd/pmnbd-target", run: "^TestLastSavesFor$",
	}, {
		name: "a reload that fails removes protected memory", rule: "nobody removes memory that its image may lack",
		in:  "cmd/pmnbd-target.begin",
		old: `&& n.Save.string == ""`, new: "",
		pkg: "./cmd/pmnbd-target", run: "^TestReloadTakenBackKeepsProtectedMemory$",
	}, {
		name: "a load does not compare CRCs", rule: "every block is checked",
		in:  "persist/region/internal/image.Image.Load",
		old: "crc != im.table[i]", new: "crc != crc",
		pkg: ofImages, run: "^TestRotIsFound$",
	}, {
		name: "the table is believed unchecked", rule: "every block is checked",
		in:  "persist/region/internal/image.decodeTable",
		old: "crc32.Checksum(b, castagnoli) != want", new: "false",
		pkg: ofImages, run: "^TestRotIsFound$",
	}, {
		name: "an epoch begins before the image says live", rule: "live before the first change",
		in:  "persist/region.Region.Update",
		old: "if err := r.liveLocked(&sb); err != nil {", new: "if err := error(nil); err != nil {",
		pkg: "./persist/region", run: lossOrSave,
	}, {
		name: "zeroes and flushes change what the image calls whole", rule: "live before the first change",
		in:  "persist/region.Region.changing",
		old: "if !s.changeable.Load() {", new: "if false {",
		pkg: "./persist/region", run: lossOrSave,
	}, {
		name: "memory at another path is lost", rule: "memory of this boot is not lost",
		in:  "persist/region.saving.nowhere",
		old: `at == ""`, new: "true",
		pkg: "./persist/region", run: "^TestMemoryAtAnotherPath$",
	}, {
		name: "unfinished memory is to be used", rule: "memory that is not complete is not used",
		in:  "persist/region.saving.nowhere",
		old: "case strings.HasSuffix(at, newMemory):", new: "case false && strings.HasSuffix(at, newMemory):",
		pkg: "./persist/region", run: "^TestUnfinishedMemoryElsewhere$",
	}, {
		name: "a header that cannot be read is not whole", rule: "what the disk may read later is not lost",
		in:  "persist/region.saving.readable",
		old: "err := s.im.Unread(); err != nil", new: "err := error(nil); err != nil",
		pkg: "./persist/region", run: "^TestUnreadableHeaderWithoutMemory$",
	}, {
		name: "a lost region keeps its contents id", rule: "a loss is told",
		in:  "persist/region.saving.lose",
		old: "sb.Contents, sb.Boot, sb.Memory = newID(), boot, newNonce()", new: "sb.Boot, sb.Memory = boot, newNonce()",
		pkg: "./persist/region", run: lossOrSave,
	}, {
		name: "a lost region's epoch goes back", rule: "epochs never go back",
		in:  "persist/region.saving.lose",
		old: "sb.Epoch = max(sb.Epoch, h.Epoch) + 2", new: "sb.Epoch = 1",
		pkg: "./persist/region", run: lossOrSave,
	}, {
		name: "memory of another boot is used", rule: "memory is of this boot",
		in:  "persist/region.belongs",
		old: "case sb.Boot != boot:", new: "case false:",
		pkg: "./persist/region", run: "^TestProtectedRefusals$",
	}, {
		name: "memory of another region is used", rule: "memory and image are one region's",
		in:  "persist/region.belongs",
		old: "sb.UUID != h.UUID ||", new: "",
		pkg: "./persist/region", run: "^TestProtectedRefusals$",
	}, {
		name: "an old copy of the memory is used", rule: "epochs never go back",
		in:  "persist/region.belongs",
		old: "case h.Epoch > sb.Epoch+1:", new: "case false:",
		pkg: "./persist/region", run: "^TestProtectedRefusals$",
	}, {
		name: "a session that lives has told everything", rule: "what cannot be known is dirty",
		in:  "persist/region.Region.Update",
		old: "r.saving.unknownFrom(sb.Epoch)", new: "",
		pkg: "./persist/region", run: "^TestOnlyWhatIsDirtyIsSaved$",
	}, {
		name: "a session that did not end is forgotten", rule: "what cannot be known is dirty",
		in:  "persist/region.saving.unknownFrom",
		old: "s.markAll()", new: "",
		pkg: "./persist/region", run: "^TestOnlyWhatIsDirtyIsSaved$",
	}, {
		name: "what was there before an open is clean", rule: "what cannot be known is dirty",
		in:  "persist/region.saving.compare",
		old: "s.markAll()", new: "",
		pkg: "./persist/region", run: "^TestProtectedKeepsItsMemoryOverARestart$",
	},
}
