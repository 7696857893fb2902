package mutants

// regions is of the superblock, and of syncs that fail.
var regions = []mutant{
	{
		name: "an update lowers the mark", rule: "an update of the superblock never lowers it",
		file: "persist/region/region.go", old: "sb.Mark < old.Mark || ", new: "",
		pkg: "./persist/region", run: "^TestUpdate$",
	}, {
		name: "the superblock is changed over another process's change", rule: "two owners find out",
		file: "persist/region/region.go", old: "	if err := r.own(); err != nil {\n		return r.fail(err)\n	}\n	old := ", new: "	old := ",
		pkg: "./persist/region", run: "^TestForeignUpdate$",
	}, {
		name: "a failure overwrites another process's change", rule: "what another process wrote stays",
		file: "persist/region/sync.go", old: "err := r.own(); errors.Is(err, ErrForeign)", new: "err := error(nil); errors.Is(err, ErrForeign)",
		pkg: "./persist/region", run: "^TestForeignUpdate$",
	}, {
		name: "another process's first step is not seen", rule: "both copies are compared",
		file: "persist/region/foreign.go", old: "	for i, left := range r.left {\n", new: "	for i, left := range r.left {\n		if i != r.newer {\n			continue\n		}\n",
		pkg: "./persist/region", run: "^TestForeignSteps$",
	}, {
		name: "nobody looks for another process's change", rule: "once an interval",
		file: "persist/target/mark.go", old: "	err := y.e.r.Check()\n", new: "	err := error(nil)\n",
		pkg: "./persist/target", run: "^TestForeignSuperblock$", hangs: true,
	}, {
		name: "a session goes on in a region that another process has", rule: "it ends",
		file: "persist/target/mark.go", old: "		s.interrupt()\n", new: "",
		pkg: "./persist/target", run: "^TestForeignSuperblock$", hangs: true,
	}, {
		name: "a session without barriers goes on in a region that failed", rule: "§6 region failed",
		file: "persist/target/mark.go", old: "		y.end(false)\n", new: "",
		pkg: "./persist/target", run: "^TestMarkFailsWithoutBarriers$", hangs: true,
	}, {
		name: "a region of another user is served", rule: "a region's file belongs to root or to the process's user",
		file: "persist/region/access.go", old: "	if owner == 0 || int(owner) == self {\n", new: "	if true {\n",
		pkg: "./persist/region", run: "^TestGuards$",
	}, {
		name: "a region that others may write to is served", rule: "nobody else may write to its file",
		file: "persist/region/access.go", old: "mode&0o022 != 0", new: "mode&0o002 != 0",
		pkg: "./persist/region", run: "^TestGuards$",
	}, {
		name: "a region is opened unguarded", rule: "nothing opens a file that others have a hand in",
		file: "persist/region/access.go", old: "	if err := guarded(f); err != nil {\n", new: "	if err := error(nil); err != nil {\n",
		pkg: "./persist/region", run: "^TestExposedFile$",
	}, {
		name: "a link to a region is followed", rule: "no link leads to a region's file",
		file: "persist/region/access.go", old: "to.Mode()&fs.ModeCharDevice == 0", new: "to.Mode()&fs.ModeDir != 0",
		pkg: "./persist/region", run: "^TestExposedFile$",
	}, {
		name: "clear raises the mark", rule: "only sessions advance it",
		file: "persist/region/clear.go", old: "	sb.Epoch++\n", new: "	sb.Epoch++\n	sb.Mark++\n",
		pkg: "./persist/region", run: "^TestMarkStays$",
	}, {
		name: "a failed msync is swallowed", rule: "§3.5",
		file: "persist/region/sync.go", old: "	if err := r.sync(); err != nil {\n		return r.fail(err)\n	}\n	return nil\n}\n\n// sync is", new: "	_ = r.sync()\n	return nil\n}\n\n// sync is",
		pkg: "./persist/region", run: "^TestFailureSticks$",
	}, {
		name: "an msync error is consumed by another lane", rule: "§3.5 failed is set before the lock is released",
		file: "persist/region/sync.go", old: "	if err := r.sync(); err != nil {\n		return r.fail(err)\n	}\n	return nil\n}\n\n// sync is", new: "	return r.sync()\n}\n\n// sync is",
		pkg: "./persist/region", run: "^TestFailureSticks$",
	}, {
		name: "failed is lost by a restart", rule: "§5 failed survives",
		file: "persist/region/region.go", old: "	if sb.Failed {\n", new: "	if false {\n",
		pkg: "./persist/region", run: "^TestFailureSticks$",
	}, {
		name: "failed is in one copy alone", rule: "§5 failed survives, rot of a copy too",
		file: "persist/region/sync.go", old: "	for range 2 {\n		sb := ", new: "	for range 1 {\n		sb := ",
		pkg: "./persist/region", run: "^TestFailureSticks$",
	}, {
		name: "a rotten superblock copy is believed", rule: "§5 superblock",
		file: "persist/region/copies.go", old: "return c.states[0] == CopyRotten || c.states[1] == CopyRotten", new: "return false",
		pkg: "./persist/region", run: "^TestRot$",
	}, {
		name: "the superblock's generation is there before its body", rule: "§5 each step durable before the next",
		file: "persist/region/copies.go", old: "	storeGeneration(generation, 0)\n", new: "	storeGeneration(generation, generationTag|sb.Generation)\n",
		pkg: model, run: crashes,
	}, {
		name: "a superblock is believed before it is durable", rule: "§5 what is told of an epoch stays",
		file: "persist/region/region.go", old: "		r.header(r.mem[:2*CopySize])\n", new: "",
		pkg: "./persist/region", run: "^TestOpeningMakesDurable$",
	}, {
		name: "the superblock is changed outside the lock", rule: "§5 a read-modify-write under the lock, model R3",
		file: "persist/region/region.go", old: "func (r *Region) Update(f func(*Superblock) error) error {\n	r.mu.Lock()\n	defer r.mu.Unlock()\n",
		new:  "func (r *Region) Update(f func(*Superblock) error) error {\n",
		also: []edit{{"persist/region/region.go", "	sb.Cleared = text(", "	r.mu.Lock()\n	defer r.mu.Unlock()\n	sb.Cleared = text("}},
		pkg:  "./persist/region", run: "^TestUpdate$",
	}, {
		name: "clear without rewriting pages", rule: "§6 region clear",
		file: "persist/region/clear.go", old: "rewrite(r.file, DataOffset, int64(r.size)); err != nil", new: "error(nil); err != nil",
		pkg: "./persist/region", run: "^TestClear$",
	}, {
		name: "a new boot in doubt keeps the contents id", rule: "§2 contents id, model F4",
		file: "persist/region/copies.go", old: "if m.class == persist.ClassVolatile || sb.Doubt {", new: "if m.class == persist.ClassVolatile {",
		pkg: "./persist/region", run: "^TestContentsID$",
	},
}
