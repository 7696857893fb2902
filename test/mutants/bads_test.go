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
	},
}
