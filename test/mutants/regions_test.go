package mutants

// regions are mutants of the superblock and of failed syncs.
var regions = []mutant{
	{
		name: "an update lowers the mark", rule: "an update of the superblock never lowers it",
		in:  "persist/region.Region.Update",
		old: "sb.Mark < old.Mark ||", new: "",
		pkg: "./persist/region", run: "^TestUpdate$",
	}, {
		name: "the superblock overwrites another process's change", rule: "two processes that own a region find out",
		in:  "persist/region.Region.Update",
		old: "if err := r.checkLocked(); err != nil { return err }; old :=", new: "old :=",
		pkg: "./persist/region", run: "^TestForeignUpdate$",
	}, {
		name: "a failure overwrites another process's change", rule: "another process's change stays",
		in:  "persist/region.Region.failLocked",
		old: "err := r.ownLocked(); errors.Is(err, ErrForeign)", new: "err := error(nil); errors.Is(err, ErrForeign)",
		pkg: "./persist/region", run: "^TestForeignUpdate$",
	}, {
		name: "another process's first change is not noticed", rule: "both copies are compared",
		in:  "persist/region.Region.ownLocked",
		old: "for i, left := range r.left {", new: "for i, left := range r.left { if i != r.newer { continue }",
		pkg: "./persist/region", run: "^TestForeignSteps$",
	}, {
		name: "nobody checks for another process's change", rule: "once in an interval",
		in:  "persist/target.syncer.look",
		old: "err := y.e.r.Check()", new: "err := error(nil)",
		pkg: "./persist/target", run: "^TestForeignSuperblock$", hangs: true,
	}, {
		name: "a session goes on in a region that another process has", rule: "the session ends",
		in:  "persist/target.syncer.end",
		old: "s.interrupt()", new: "",
		pkg: "./persist/target", run: "^TestForeignSuperblock$", hangs: true,
	}, {
		name: "a session without barriers goes on in a region that failed", rule: "§6 a failed region",
		in:  "persist/target.syncer.mark",
		old: "y.end(false)", new: "",
		pkg: "./persist/target", run: "^TestMarkFailsWithoutBarriers$", hangs: true,
	}, {
		name: "a region of another user is served", rule: "a region's file belongs to root or to the process's user",
		in:  "persist/region.ours",
		old: "if owner == 0 || int(owner) == self {", new: "if true {",
		pkg: "./persist/region", run: "^TestGuards$",
	}, {
		name: "a region that others may write to is served", rule: "nobody else may write to its file",
		in:  "persist/region.guards",
		old: "mode&0o022 != 0", new: "mode&0o002 != 0",
		pkg: "./persist/region", run: "^TestGuards$",
	}, {
		name: "a region's file is opened unchecked", rule: "no other user can change a file that is opened",
		in:  "persist/region.openNode",
		old: "if err := guarded(f); err != nil {", new: "if err := error(nil); err != nil {",
		pkg: "./persist/region", run: "^TestExposedFile$",
	}, {
		name: "a link to a region is followed", rule: "no link leads to a region's file",
		in:  "persist/region.openLinked",
		old: "to.Mode()&fs.ModeCharDevice == 0", new: "to.Mode()&fs.ModeDir != 0",
		pkg: "./persist/region", run: "^TestExposedFile$",
	}, {
		name: "clear raises the mark", rule: "only sessions advance it",
		in:  "persist/region.Region.clear",
		old: "sb.Epoch++", new: "sb.Epoch++; sb.Mark++",
		pkg: "./persist/region", run: "^TestMarkStays$",
	}, {
		name: "a failed msync is swallowed", rule: "§3.5",
		in:  "persist/region.Region.flushFile",
		old: "if err := r.syncLocked(); err != nil { return r.failLocked(err) }; return nil",
		new: "_ = r.syncLocked(); return nil",
		pkg: "./persist/region", run: "^TestFailureSticks$",
	}, {
		name: "an msync error is consumed by another lane", rule: "§3.5 the region fails before the lock is released",
		in:  "persist/region.Region.flushFile",
		old: "if err := r.syncLocked(); err != nil { return r.failLocked(err) }; return nil",
		new: "return r.syncLocked()",
		pkg: "./persist/region", run: "^TestFailureSticks$",
	}, {
		name: "failed is lost by a restart", rule: "§5 failed survives",
		in:  "persist/region.load",
		old: "if sb.Failed {", new: "if false {",
		pkg: "./persist/region", run: "^TestFailureSticks$",
	}, {
		name: "failed is in one copy of the superblock only", rule: "§5 failed survives, also when a copy rots",
		in:  "persist/region.Region.failLocked",
		old: "for range 2 { sb :=", new: "for range 1 { sb :=",
		pkg: "./persist/region", run: "^TestFailureSticks$",
	}, {
		name: "a rotten copy of the superblock counts", rule: "§5 a copy counts only with its CRC",
		in:  "persist/region.chosen.rotten",
		old: "return c.states[0] == CopyRotten || c.states[1] == CopyRotten", new: "return false",
		pkg: "./persist/region", run: "^TestRot$",
	}, {
		name: "the superblock's generation is durable before its body", rule: "§5 each step durable before the next",
		in:  "persist/region.Region.replaceLocked",
		old: "storeGeneration(generation, 0)", new: "storeGeneration(generation, binary.LittleEndian.Uint64(next[offGeneration:]))",
		pkg: model, run: crashes,
	}, {
		name: "a target's status waits for a disk", rule: "a target's status waits for no disk",
		in:  "persist/region.Region.BitsSet",
		old: "return r.bits.set[slot].Load()",
		new: "r.bits.mu.Lock(); defer r.bits.mu.Unlock(); return r.bits.set[slot].Load()",
		pkg: "./persist/region", run: "^TestBitsSetDoesNotWait$", hangs: true,
	}, {
		name: "bits that were cleared in the caches alone count as clear", rule: "docs/rules.md: they are cleared durably",
		in:  "persist/region.Region.resetBitsLocked",
		old: "r.medium.WriteBack(r.mem, bitsOffset, bitmapCount*bitmapSize)", new: "",
		pkg: "./persist/region", run: "^TestOpeningMakesClearedBitsDurable$",
	}, {
		name: "a superblock counts before it is durable", rule: "§5 an epoch that was told stays",
		in:  "persist/region.Region.establish",
		old: "r.medium.WriteBack(r.mem, 0, 2*CopySize)", new: "",
		pkg: "./persist/region", run: "^TestOpeningMakesDurable$",
	}, {
		name: "the superblock is changed outside the lock", rule: "§5 a read-modify-write under the lock, model R3",
		in:   "persist/region.Region.Update",
		old:  "func (r *Region) Update(f func(*Superblock) error) error { r.mu.Lock(); defer r.mu.Unlock()",
		new:  "func (r *Region) Update(f func(*Superblock) error) error {",
		also: []edit{{"persist/region.Region.Update", "sb.Cleared = text(", "r.mu.Lock(); defer r.mu.Unlock(); sb.Cleared = text("}},
		pkg:  "./persist/region", run: "^TestUpdate$",
	}, {
		name: "clear without rewriting pages", rule: "§6 region clear",
		in:  "persist/region.Region.clear",
		old: "r.rewritePart(&part{file: r.file, size: r.size, data: DataOffset}, DataOffset, p); err != nil", new: "error(nil); err != nil",
		pkg: "./persist/region", run: "^TestClear$",
	}, {
		name: "clear rewrites no superblock of a part", rule: "docs/regions.md, giving one back: every page of the header",
		in:  "persist/region.Region.rewritePart",
		old: "ranges := []persist.Range{{Len: head}}", new: "ranges := []persist.Range{{Off: head}}",
		pkg: "./persist/region", run: "^TestClearRewritesParts$",
	}, {
		name: "clear reads what is bad", rule: "docs/regions.md, bad places: region clear leaves bad blocks out",
		in:  "persist/region.Region.rewritePart",
		old: "range r.Bad().Outside(", new: "range persist.BadPlaces(nil).Outside(",
		pkg: "./persist/region", run: "^TestClearRewritesParts$",
	}, {
		name: "clear relies on bits that may be lost", rule: "docs/regions.md, giving one back: everything is compared",
		in:  "persist/region.Region.clear",
		old: "outside(&sb.Record)); err", new: "0); err",
		pkg: "./persist/region", run: "^TestClearDrawsContents$",
	}, {
		name: "a new boot in doubt keeps the contents id", rule: "§2 contents id, model F4",
		in:  "persist/region.onOpen",
		old: "if m.Class == persist.ClassVolatile || sb.Doubt {", new: "if m.Class == persist.ClassVolatile {",
		pkg: "./persist/region", run: "^TestContentsID$",
	},
}
