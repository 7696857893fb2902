package mutants

// mistakes is of what people type and write, and what must not come of it.
var mistakes = []mutant{
	{
		name: "a misspelt option becomes a part of the path", rule: "a typo opens no region to everybody",
		file: "cmd/internal/flags/path.go", old: "path, rest, more = strings.Cut(s, \",\")", new: "path = s",
		pkg: "./cmd/pmnbd-target", run: "^TestRegionFlag$", few: true,
	},
}
