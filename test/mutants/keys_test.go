package mutants

// trust are mutants of keys, and of what their proofs bind.
var trust = []mutant{
	{
		name: "a proof names no target", rule: "a key holds for one initiator and one target",
		in:  "persist/wire.Ends.append",
		old: "return append(append(b, byte(len(e.Target))), e.Target...)", new: "return b",
		pkg: "./persist/target", run: "^TestWithoutProof$", few: true,
	}, {
		name: "a proof names no initiator", rule: "a key holds for one initiator and one target",
		in:  "persist/wire.Ends.append",
		old: "b = append(b, e.Initiator[:]...)", new: "",
		pkg: "./persist/target", run: "^TestWithoutProof$",
	}, {
		name: "another target is taken at its word", rule: "what another target says ends nothing",
		in:  "backend/remote.leg.beChallenged",
		old: "if challenge.Target != g.cfg.Target {", new: "if false {",
		pkg: "./backend/remote", run: "^TestWrongTarget$",
	}, {
		name: "a target takes the keys of others", rule: "a key holds for one initiator and one target",
		in:  "cmd/internal/keyfile.File.OfTarget",
		old: "if l.Target == name {", new: "if name != \"\" {",
		pkg: "./cmd/internal/keyfile", run: "^TestRead$",
	}, {
		name: "two targets share a key", rule: "no two ends share a key of other ends",
		in:  "cmd/internal/keyfile.parse",
		old: "if before := keys[string(l.Key)]; before != 0 {", new: "if before := keys[string(l.Key)]; false {",
		pkg: "./cmd/internal/keyfile", run: "^TestReadErrors$",
	},
}
