package mutants

// bads are mutants of what happens where the medium has lost what it held.
var bads = []mutant{
	{
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
		old: "if !bad.touched(e.Off, uint64(e.Len)) {", new: "if true {",
		pkg: "./backend/remote", run: "^TestReplayOverABadPlace$",
	},
}
