package mutants

// partials are mutants of regions of several parts.
var partials = []mutant{
	{
		name: "a stamp is changed without the flag", rule: "docs/regions.md, the stamp: step 1",
		in:  "persist/region.Region.renewLocked",
		old: "sb.Stamping = true", new: "sb.Stamping = false",
		pkg: "./persist/region", run: "^TestPartsCrash$",
	}, {
		name: "the flag goes before the parts have the stamp", rule: "docs/regions.md, the stamp: step 3 comes last",
		in:  "persist/region.Region.renewLocked",
		old: "if err := r.stampLocked(sb.Stamp, sb.StampNonces[0]); err != nil { return err }; sb.Stamping = false; return r.writeLocked(sb)",
		new: "sb.Stamping = false; if err := r.writeLocked(sb); err != nil { return err }; return r.stampLocked(sb.Stamp, sb.StampNonces[0])",
		pkg: "./persist/region", run: "^TestPartsCrash$",
	}, {
		name: "Open begins a new stamp where one is unfinished", rule: "docs/regions.md, the stamp: finishes with the same S",
		in:  "persist/region.Region.renewLocked",
		old: "!was.Stamping {", new: "true {",
		pkg: "./persist/region", run: "^TestPartsCrash$",
	}, {
		name: "an update stamps no part", rule: "docs/regions.md, the stamp rises with the superblock",
		in:  "persist/region.Region.renewLocked",
		old: "if r.parts == nil {", new: "if true {",
		pkg: "./persist/region", run: "^TestPartsCrash$",
	}, {
		name: "a part's stamp counts before it is durable", rule: "docs/regions.md, the stamp: each step durable before the next",
		in:  "persist/region.Region.establish",
		old: "err = r.persistHeadsLocked()", new: "",
		pkg: "./persist/region", run: "^TestPartsCrash$",
	}, {
		name: "an older part is served", rule: "docs/regions.md, the stamp",
		in:  "persist/region.stale",
		old: "return from > most, to < least", new: "return from > most, to < least && false",
		pkg: "./persist/region", run: "^TestPartsCrash$",
	}, {
		name: "an older first part is served", rule: "docs/regions.md, the stamp",
		in:  "persist/region.stale",
		old: "return from > most, to < least", new: "return from > most && false, to < least",
		pkg: "./persist/region", run: "^TestPartsCrash$",
	}, {
		name: "a part of another region is served", rule: "docs/regions.md, several parts",
		in:  "persist/region.fits",
		old: "h.region != sb.UUID", new: "false",
		pkg: "./persist/region", run: "^TestPartsRefused$",
	}, {
		name: "swapped parts are served", rule: "docs/regions.md, several parts",
		in:  "persist/region.fits",
		old: "int(h.place) != i", new: "false",
		pkg: "./persist/region", run: "^TestPartsRefused$",
	}, {
		name: "the first part's class is the region's", rule: "docs/regions.md, the weakest part decides",
		in:  "persist/region.weakest",
		old: "m.Class, worst = p.mem.Class, p", new: "worst = p",
		pkg: "./persist/region", run: "^TestWeakestPart$",
	}, {
		name: "the first part's domain is the region's", rule: "docs/regions.md, the weakest part decides",
		in:  "persist/region.weakest",
		old: "weaker(m.Platform.Domain, of.Domain)", new: "m.Platform.Domain",
		pkg: "./persist/region", run: "^TestWeakestPart$",
	}, {
		name: "a sync of one part serves another", rule: "§3.5 a sync covers its own file",
		in:  "persist/region.Region.flushParts",
		old: "r.parts[i].done > begun", new: "r.parts[1].done > begun",
		pkg: "./persist/region", run: "^TestFlushJoinsLaterSyncOfItsParts$",
	}, {
		name: "a failed sync of a part is swallowed", rule: "§3.5 the region fails before the lock is released",
		in:  "persist/region.Region.flushParts",
		old: "return r.failLocked(err)", new: "return err",
		pkg: "./persist/region", run: "^TestFlushPartsFails$",
	}, {
		name: "bits are not synced with the data of another part", rule: "mirror §3.4 bits are durable with the data",
		in:  "persist/region.Region.touchedParts",
		old: "if r.Outside() != 0 {", new: "if false {",
		pkg: "./persist/region", run: "^TestFlushPartsWithBits$",
	}, {
		name: "a barrier notes no ranges", rule: "§3.5 a barrier syncs what it names",
		in:  "persist/target.conn.flush",
		old: "else if err := e.r.Note(b.Ranges); err != nil", new: "else if err := error(nil); err != nil",
		pkg: "./backend/remote", run: "^TestFlushSyncsTouchedParts$",
	}, {
		name: "persistent memory beside files is not written back", rule: "docs/regions.md, several parts",
		in:  "persist/region.Region.Note",
		old: "if err := r.writeBackParts(ranges); err != nil { return r.Fail(err) }", new: "",
		pkg: "./persist/region", run: "^TestFlushMixedParts$",
	}, {
		name: "the first part's superblock comes first", rule: "a crash while it is made leaves no region",
		in:  "persist/region.formatParts",
		old: "for i := len(parts) - 1; i >= 0; i-- {", new: "for i := range parts {",
		pkg: "./persist/region", run: "^TestCreatePartsCrash$",
	}, {
		name: "remove unlocks parts that it has checked", rule: "docs/regions.md, removing one: never one that is served",
		in:  "persist/region.removeParts",
		old: "err = removable(parts, force)", new: "err = errors.Join(removable(parts, force), closeFurther(parts)); parts = parts[:1]",
		pkg: "./persist/region", run: "^TestRemoveHoldsAllParts$",
	}, {
		name: "remove --force takes a part of another region", rule: "docs/regions.md, looking at one: none beside one of another region",
		in:  "persist/region.related",
		old: "of != [16]byte{} && of != id", new: "false",
		pkg: "./persist/region", run: "^TestRemovePartsOfOneRegion$",
	}, {
		name: "a part of another copy is served", rule: "docs/regions.md, the stamp: each S has a nonce",
		in:  "persist/region.Superblock.copied",
		old: "return h.nonce != s.StampNonces[0]", new: "return false",
		pkg: "./persist/region", run: "^TestCopiedParts$",
	}, {
		name: "a part of another copy is served after a cut", rule: "docs/regions.md, the stamp: the nonces of S and of S-1",
		in:  "persist/region.Superblock.copied",
		old: "return h.nonce != s.StampNonces[1]", new: "return false",
		pkg: "./persist/region", run: "^TestCopiedParts$",
	}, {
		name: "a stamp that the first part has lost gets another nonce", rule: "docs/regions.md, the stamp: gives it to the other parts",
		in:  "persist/region.Region.nonceLocked",
		old: "i > 0 && h.stamp == stamp", new: "false && h.stamp == stamp",
		pkg: "./persist/region", run: "^TestLostStampKeepsItsNonce$",
	}, {
		name: "parts are synced one after the other", rule: "docs/regions.md, several parts: all at the same time",
		in:  "persist/region.Region.beginSyncLocked",
		old: "y.begin <- struct{}{}", new: "y.begin <- struct{}{}; y.ended <- <-y.ended",
		pkg: "./persist/region", run: "^TestPartsAreSyncedTogether$", hangs: true,
	}, {
		name: "the sync of a part that fails beside others is forgotten", rule: "docs/regions.md, several parts: if one sync fails",
		in:  "persist/region.Region.syncPartsLocked",
		old: "err = failed", new: "_ = failed",
		pkg: "./persist/region", run: "^TestPartsAreSyncedTogether$",
	},
}
