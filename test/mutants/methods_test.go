package mutants

// methods are mutants of which method is sound, and of the methods that need no CPU of the
// target.
var methods = []mutant{
	{
		name: "direct-write-to-pmem counts for CPU stores", rule: "§3.3 only for adapters that place by DMA",
		in:  "persist/target.WhyNot",
		old: "case f.EADR, f.Class == persist.ClassProtected, f.DirectWrite && f.PlacesByDMA:", new: "case f.EADR, f.Class == persist.ClassProtected, f.DirectWrite:",
		pkg: "./persist/target", run: "^TestWhyNot$",
	}, {
		name: "relaxed ordering does not forbid apm", rule: "§3.3 a Read does not push relaxed writes",
		in:  "persist/target.WhyNot",
		old: "case f.RelaxedOrdering && f.PlacesByDMA:", new: "case false:",
		pkg: "./persist/target", run: "^TestWhyNot$",
	}, {
		name: "apm is granted on page cache", rule: "§3.3 apm needs class pmem",
		in:  "persist/target.WhyNot",
		old: "case f.Class != persist.ClassPMem && f.Class != persist.ClassProtected:", new: "case f.Class == persist.ClassVolatile:",
		pkg: "./persist/target", run: "^TestWhyNot$",
	}, {
		name: "flush is granted without a device that has it", rule: "§3.3 native persistent FLUSH",
		in:  "persist/target.WhyNot",
		old: "case m == persist.MethodFlush && f.PersistentFlush:", new: "case m == persist.MethodFlush:",
		pkg: "./persist/target", run: "^TestWhyNot$",
	}, {
		name: "the target downgrades silently", rule: "§3.3 never a silent downgrade",
		in:  "persist/target.choose",
		old: "if initiator.Has(m) && WhyNot", new: "if WhyNot",
		pkg: "./persist/target", run: "^TestChoose$",
	}, {
		name: "an initiator accepts a silent downgrade", rule: "§3.3 never a silent downgrade",
		in:  "backend/remote.chosen",
		old: "if !offered.Has(g.Method) {", new: "if false {",
		pkg: "./backend/remote", run: "^TestNoSilentDowngrade$",
	}, {
		name: "native FLUSHes name only the first range", rule: "§4.6 ranges hold every write",
		in:  "backend/remote.lane.buildPlacedLocked",
		old: "if it.next == it.to {", new: "if it.next = it.to; true {",
		pkg: model, run: crashes,
	}, {
		name: "the first native FLUSH completes the barrier", rule: "§4.6 the last of them does",
		in:  "backend/remote.lane.endPlacedLocked",
		old: "if id == tagPlaced|placedLast {", new: "if true {",
		pkg: "./backend/remote", run: "^TestLastFlushEndsTheBarrier$",
	}, {
		name: "a barrier overtakes a zero", rule: "§4.7 under apm and flush it waits for their acknowledgements",
		in:  "backend/remote.lane.placedDoneLocked",
		old: "|| l.zeroes.due(p.zeroes)", new: "",
		pkg: "./backend/remote", run: "^TestZeroesWithoutTheTargetsBarrier$",
	}, {
		name: "zeroes under apm are not written back", rule: "§4.7 a zero is durable before its acknowledgement",
		in:  "persist/target.conn.zero",
		old: "if c.session.method != persist.MethodGPSPM {", new: "if c.session.method == persist.MethodFlush {",
		pkg: "./backend/remote", run: "^TestZeroesWithoutTheTargetsBarrier$",
	}, {
		name: "zeroes under flush are not written back", rule: "§4.7 a zero is durable before its acknowledgement",
		in:  "persist/target.conn.zero",
		old: "if c.session.method != persist.MethodGPSPM {", new: "if c.session.method == persist.MethodAPM {",
		pkg: model, run: crashes,
	}, {
		name: "apm is used in doubt", rule: "§3.8 only the target settles doubt",
		in:  "backend/remote.lane.pushBarrierLocked",
		old: "if doubt ||", new: "if false ||",
		pkg: "./backend/remote", run: "^TestDoubtIsSettledByTheTarget$",
	},
}
