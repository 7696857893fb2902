package mutants

// bads are mutants of what happens where the medium has lost what it held.
var bads = []mutant{
	{
		name: "source-lost-places", rule: "mirror §4.4 the source is one whose medium has lost no place, if there is one",
		in:  "internal/mirror.Found.source",
		old: "candidates &^ s.bad", new: "candidates",
		pkg: "./backend/remote", run: "^TestSourceHasNoBadPlaces$",
	}, {
		name: "a READ of a bad place is posted", rule: "docs/regions.md, bad places: EIO, and nothing is asked",
		in:  "backend/remote.lane.buildLocked",
		old: "bad != nil && bad.touched(p.off, uint64(p.len))", new: "bad != nil && false",
		pkg: "./backend/remote", run: "^TestRequestsOfBadPlaces$",
	}, {
		name: "a WRITE of a part of a bad block is begun", rule: "docs/regions.md, bad places: EIO",
		in:  "backend/remote.badCore.refuse",
		old: "g.places.Torn(op.Off, op.Len) ||", new: "false &&",
		pkg: "./backend/remote", run: "^TestRequestsOfBadPlaces$",
	}, {
		name: "a window that a bad place keeps from the target is no loss", rule: "each start would end there, and --accept-loss with it",
		in:  "backend/remote.replayer.left",
		old: "if err != nil && errors.As(r.cause, new(*lastingError)) && !errors.Is(r.cause, rdma.ErrTimeout) {", new: "if errors.Is(r.cause, rdma.ErrNotSupported) {",
		pkg: "./backend/remote", run: "^TestAdoptedWindowOverABadPlace$",
	}, {
		name: "a replay that a slow disk has ended is a loss", rule: "the next start adopts the window",
		in:  "backend/remote.replayer.left",
		old: "&& !errors.Is(r.cause, rdma.ErrTimeout) {", new: "&& !errors.Is(r.cause, rdma.ErrNotSupported) {",
		pkg: "./backend/remote", run: "^TestReplayThatCannotEnd$",
	}, {
		name: "only the first answer to BAD counts", rule: "docs/protocol.md, BAD: asks again",
		in:  "backend/remote.leg.exchangeBad",
		old: "if !said.More {", new: "if true {",
		pkg: "./backend/remote", run: "^TestManyBadPlaces$",
	}, {
		name: "the flush that settles doubt touches bad places", rule: "docs/regions.md, bad places are left out",
		in:  "persist/region.Region.FlushReadable",
		old: "bad.Outside(g)", new: "[]persist.Range{g}",
		pkg: "./persist/region", run: "^TestFlushAroundBadPlaces$",
	}, {
		name: "a sector of a bad block counts alone", rule: "docs/regions.md, bad places: blocks of 4 KiB",
		in:  "persist.MakeBad",
		old: "off := g.Off / BadBlock * BadBlock", new: "off := g.Off",
		pkg: "./persist", run: "^TestMakeBad$",
	}, {
		name: "a READ that finds a bad place fails the region", rule: "docs/regions.md, bad places: EIO for that READ",
		in:  "persist/target.conn.broken",
		old: "if fault.Reading {", new: "if false {",
		pkg: "./persist/target", run: "^TestReadFindsABadPlace$",
	}, {
		name: "a Write that finds a bad place fails nothing", rule: "docs/regions.md, memory that goes away: durability cannot be promised",
		in:  "persist/target.conn.broken",
		old: "if fault.Reading {", new: "if true {",
		pkg: "./persist/target", run: "^TestReadFindsABadPlace$",
	}, {
		name: "a file that became shorter has bad places", rule: "docs/regions.md, memory that goes away",
		in:  "persist/region.Region.Lose",
		old: "if err := r.whole(); err != nil {", new: "if err := error(nil); err != nil {",
		pkg: "./persist/region", run: "^TestLose$",
	}, {
		name: "READs that find bad places fail the device", rule: "docs/regions.md, bad places: the device lives",
		in:  "backend/remote.leg.revive",
		old: "g.accused = false", new: "",
		pkg: "./backend/remote", run: "^TestReadFindsBadPlaces$",
	}, {
		name: "the digest of a bad place is one of zeroes", rule: "docs/mirror.md, comparing: a bad place differs",
		in:  "persist/region.Region.Digest",
		old: "_, _ = rand.Read(sum[:])", new: "",
		also: []edit{{"persist/region.Region.Digest", "var sum [sha256.Size]byte", "_ = rand.Read; var sum [sha256.Size]byte"}},
		pkg:  "./persist/region", run: "^TestDigestOfBadPlaces$",
	}, {
		name: "a replay writes over a bad place", rule: "docs/regions.md, bad places: what was acknowledged cannot become durable",
		in:  "backend/remote.lane.mayWriteLocked",
		old: "case !touches:", new: "case !touches || true:",
		pkg: "./backend/remote", run: "^TestReplayOverABadPlace$",
	}, {
		name: "a READ of a bad place waits for a member that was let go", rule: "mirror §3.7 only members in sync answer READs",
		in:  "backend/remote.lane.avoidLocked",
		old: "case !other.serves ||", new: "case",
		pkg: "./backend/remote", run: "^TestMirrorWaitsForWhoHasIt$", hangs: true,
	}, {
		name: "a READ of a bad place does not wait for a member in sync", rule: "docs/mirror.md, when a member's memory loses something",
		in:  "backend/remote.lane.avoidLocked",
		old: "waits = true", new: "",
		pkg: "./backend/remote", run: "^TestMirrorWaitsForWhoHasIt$",
	}, {
		name: "a copy comes from a member that has lost it", rule: "docs/mirror.md, when a member's memory loses something",
		in:  "backend/remote.piece.pushLocked",
		old: "src = p.soundLocked(src, dst)", new: "_ = p.soundLocked",
		pkg: "./backend/remote", run: "^TestResyncOfBadPlaces$",
	}, {
		name: "a copy is written over a bad place", rule: "docs/mirror.md, when a member's memory loses something",
		in:  "backend/remote.lane.buildCopyLocked",
		old: "case p.fetched && !l.mayStoreLocked(p):", new: "case p.fetched && false:",
		pkg: "./backend/remote", run: "^TestResyncOfBadPlaces$",
	}, {
		name: "a verification copies what the member has lost", rule: "docs/mirror.md, comparing",
		in:  "backend/remote.verification.sofar",
		old: "&& !d.lost", new: "",
		pkg: "./backend/remote", run: "^TestVerifyBadPlaces$",
	}, {
		name: "a part of a bad block makes it good", rule: "docs/regions.md, bad places: only whole blocks",
		in:  "backend/remote.lane.coversLocked",
		old: "if at > g.Off { return false }", new: "return true",
		pkg: "./backend/remote", run: "^TestReplayOverABadPlace$",
	}, {
		name: "a barrier under apm is not told where blocks were made good", rule: "docs/protocol.md, overwriting: BARRIERs under every method",
		in:  "backend/remote.lane.buildLocked",
		old: "if l.mends {", new: "if false {",
		pkg: "./backend/remote", run: "^TestOverwrittenBadPlaces$",
	}, {
		name: "zeroes make a bad block good at once", rule: "docs/regions.md, bad places: until a FLUSH has covered it",
		in:  "persist/region.Region.mend",
		old: "b.mends.Store(b.mended)", new: "told := r.Bad().Without(g); b.list.Store(&told)",
		pkg: "./persist/region", run: "^TestMend$",
	}, {
		name: "a broken page of tmpfs is to be made good, and fails the region", rule: "docs/regions.md, bad places: a write there is refused",
		in:  "persist/region.mendable",
		old: "&& !m.RAM", new: "",
		pkg: "./persist/region", run: "^TestProtectedWithABadPlace$",
	}, {
		name: "a broken page of a member fails writes of its mirror", rule: "docs/regions.md, bad places: a member in memory fails",
		in:  "persist/region.Region.BadClears",
		old: "|| r.spared()", new: "",
		pkg: "./persist/region", run: "^TestProtectedMemberWithABadPlace$",
	}, {
		name: "a part of a barrier makes a whole block good", rule: "docs/protocol.md, overwriting: names all of the block",
		in:  "persist/region.mended.durable",
		old: "m.covered == m.block", new: "m.covered.Len > 0",
		pkg: "./persist/region", run: "^TestMend$",
	}, {
		name: "a barrier from before makes a block good", rule: "docs/protocol.md, overwriting: a barrier behind the ZERO",
		in:  "persist/region.Region.Settle",
		old: "if m.number <= number {", new: "if true {",
		pkg: "./persist/region", run: "^TestMendAfterTheBarrier$",
	}, {
		name: "a block is repaired that no list has", rule: "docs/regions.md, blocks under repair: before the kernel repairs it",
		in:  "persist/region.Region.mend",
		old: "if err := r.repairing(persist.MakeBad(append(slices.Clone([]persist.Range(b.repairs.list)), lost), r.size)); err != nil {",
		new: "if err := error(nil); err != nil {",
		pkg: "./persist/region", run: "^TestRepairCrash$",
	}, {
		name: "a barrier is acknowledged while the list still has its block", rule: "docs/regions.md, blocks under repair: before that barrier is acknowledged",
		in:  "persist/region.Region.Settle",
		old: "if err := r.repairing(left); err != nil {", new: "if err := error(nil); err != nil && left == nil {",
		pkg: "./persist/region", run: "^TestRepairCrash$",
	}, {
		name: "an update of the list begins with the copy that counts", rule: "docs/regions.md, blocks under repair: first the copy that it did not choose",
		in:  "persist/region.Region.repairing",
		old: "now.generation + 1, now.at}", new: "now.generation + 1, 1 - now.at}",
		pkg: "./persist/region", run: "^TestRepairCrash$",
	}, {
		name: "one copy of the list is brought up to date", rule: "docs/regions.md, blocks under repair: the list is there twice",
		in:  "persist/region.Region.repairing",
		old: "for range 2 {", new: "for range 1 {",
		pkg: "./persist/region", run: "^TestRepairsRot$",
	}, {
		name: "the list that a killed target left is not made durable", rule: "docs/regions.md, blocks under repair: durably",
		in:  "persist/region.Region.establish",
		old: "r.medium.WriteBack(r.mem, repairsOffset, 2*repairsSize)", new: "",
		pkg: "./persist/region", run: "^TestRepairCrash$",
	}, {
		name: "more blocks are under repair than the list has", rule: "docs/regions.md, blocks under repair: the region fails",
		in:  "persist/region.Region.repairing",
		old: "if len(list) > maxRepairs {", new: "if list = list[:min(len(list), maxRepairs)]; false {",
		pkg: "./persist/region", run: "^TestTooManyRepairs$",
	}, {
		name: "a barrier behind a repair is acknowledged although the list cannot be changed", rule: "docs/regions.md, blocks under repair: before that barrier is acknowledged",
		in:  "persist/region.Region.Settle",
		old: "if err := r.repairing(left); err != nil { return err }", new: "_ = r.repairing(left)",
		pkg: "./persist/region", run: "^TestSettleFails$",
	}, {
		name: "zeroes for a part of a block that was lost meanwhile fail the region", rule: "docs/protocol.md, overwriting: the target ends the connection",
		in:  "persist/region.Region.Zero",
		old: "if errors.Is(err, ErrBadPlace) { return err }", new: "",
		pkg: "./persist/target", run: "^TestZeroesForAPartOfABadBlock$",
	}, {
		name: "an initiator that asks for no places sends its zeroes for ever", rule: "docs/protocol.md, overwriting: it fails the region",
		in:  "persist/target.conn.zero",
		old: "&& !c.learns()", new: "&& false",
		pkg: "./persist/target", run: "^TestZeroesForAPartOfABadBlock$",
	}, {
		name: "nobody hears of a place that a digest has found", rule: "docs/regions.md, bad places: before something is copied there",
		in:  "persist/target.conn.digest",
		old: "if err != nil { return err }", new: "",
		pkg: "./backend/remote", run: "^TestCopyFindsABadPlace$",
	}, {
		name: "a bad block is good before the target has said so", rule: "docs/protocol.md, overwriting: after ZERO_ACK",
		in:  "backend/remote.lane.mendLocked",
		old: "l.mends = true", new: "l.mends = true; l.mendedLocked(l.zeroes.out[(l.zeroes.head+l.zeroes.n-1)%zeroCredits]); l.zeroes.n--",
		pkg: "./backend/remote", run: "^TestOverwrittenBadPlaces$",
	}, {
		name: "a barrier calls durable what the medium has lost", rule: "docs/protocol.md, BAD: a barrier that names a place has no such answer",
		in:  "persist/target.conn.spoils",
		old: "if !lost {", new: "if !lost || true {",
		pkg: "./persist/target", run: "^TestBarrierNamesABadPlace$",
	}, {
		name: "a barrier calls durable what was lost while it waited", rule: "docs/protocol.md, BAD: a barrier that names a place has no such answer",
		in:  "persist/target.conn.ack",
		old: "c.session.export.r.Losses() != losses", new: "false",
		pkg: "./persist/target", run: "^TestLostDuringABarrier$",
	}, {
		name: "what was lost between two parts of a barrier counts from the second", rule: "docs/protocol.md, BAD: a barrier that names a place has no such answer",
		in:  "persist/target.conn.flush",
		old: "if !c.midway {", new: "if true {",
		pkg: "./persist/target", run: "^TestLostDuringABarrier$",
	}, {
		name: "a barrier is durable although a part of it has failed", rule: "§5 durable barriers",
		in:  "persist/target.conn.ack",
		old: "c.failed.Load() == m.Seq+1", new: "false",
		pkg: "./persist/target", run: "^TestPartOfABarrierFails$",
	}, {
		name: "a part of a barrier outlives its session", rule: "docs/protocol.md, overwriting: a barrier of the same session",
		in:  "persist/target.session.endLease",
		old: "s.conn.behind, s.conn.midway = false, false", new: "s.conn.behind = false",
		pkg: "./persist/target", run: "^TestBarriersEndWithTheirSession$",
	}, {
		name: "a failure of a barrier outlives its session", rule: "docs/protocol.md, overwriting: a barrier of the same session",
		in:  "persist/target.session.endLease",
		old: "s.conn.failed.Store(0)", new: "",
		pkg: "./persist/target", run: "^TestBarriersEndWithTheirSession$",
	}, {
		name: "an initiator that asks for no places comes back for ever", rule: "docs/protocol.md, BAD: it hears that its barrier has failed",
		in:  "persist/target.conn.spoils",
		old: "if !c.learns() {", new: "if false {",
		pkg: "./persist/target", run: "^TestBarrierNamesABadPlace$",
	}, {
		name: "a barrier without an end fills the target's memory", rule: "docs/security.md: what an initiator sends is bounded",
		in:  "persist/target.settlings.cover",
		old: "c.settling > maxSettling {", new: "false {",
		pkg: "./persist/target", run: "^TestSettlingsAreBounded$",
	}, {
		name: "making a block good makes a truncated file longer", rule: "docs/regions.md, memory that goes away",
		in:  "persist/region.Region.mendMemory",
		old: "if err := r.whole(); err != nil {", new: "if err := error(nil); err != nil {",
		pkg: "./persist/region", run: "^TestMendInATruncatedFile$",
	}, {
		name: "a region has more bad places than initiators take", rule: "docs/protocol.md, BAD: 65536 at most",
		in:  "persist/region.Region.mend",
		old: "if len(left) > persist.MaxBad {", new: "if false {",
		pkg: "./persist/region", run: "^TestMendLeavesFewPlaces$",
	}, {
		name: "a member that was let go refuses writes for what it has lost", rule: "docs/mirror.md, when a member's memory loses something",
		in:  "backend/remote.core.ended",
		old: "x.forgetBadLocked()", new: "",
		also: []edit{{"backend/remote.core.readableLocked", "x.forgetBadLocked()", ""}},
		pkg:  "./backend/remote", run: "^TestBadPlacesOfAMemberThatIsAway$",
	}, {
		name: "a protected region with a bad place is said to be savable", rule: "docs/howto-protected.md: no session is granted",
		in:  "persist/region.Region.SaveTrouble",
		old: "lost {", new: "lost && false {",
		pkg: "./persist/region", run: "^TestProtectedWithABadPlace$",
	}, {
		name: "a page that an adapter may have pinned is replaced", rule: "docs/regions.md, bad places: on DAX",
		in:  "persist/region.machine.Mend",
		old: "!onDAX(fd)", new: "false && !onDAX(fd)",
		pkg: "./persist/region", run: "^TestMendKeepsPages$",
	}, {
		name: "a slice of a replay ends inside a block", rule: "docs/regions.md, bad places: a write of whole blocks makes them good",
		in:  "backend/remote.lane.dividesLocked",
		old: "next.Off%persist.BadBlock != 0", new: "next.Off%persist.BadBlock != 0 && false",
		pkg: "./backend/remote", run: "^TestSlicesDivideNoBlock$",
	}, {
		name: "a barrier of apm reads a bad place", rule: "docs/regions.md, bad places: only requests that need them fail",
		in:  "backend/remote.lane.buildPlacedLocked",
		old: "Addr: g.Base + e.Off}", new: "Addr: g.Base}",
		pkg: "./backend/remote", run: "^TestAPMReadsAroundBadPlaces$",
	},
}
