package mutants

// healths are mutants of what the daemons say of how well they are.
var healths = []mutant{
	{
		name: "a process that waits is not live", rule: "who waits for a target is not restarted",
		in:  "cmd/internal/status.handleHealth",
		old: "answer(func(Level) bool { return true })", new: "answer(func(l Level) bool { return l == Serving })",
		pkg: "./cmd/internal/status", run: "^TestHealthOverHTTP$",
	}, {
		name: "a client that asks is cut and a silent one is not", rule: "silent connections do not shut clients out of the metrics",
		in:  "cmd/internal/status.door.track",
		old: "if d.public && d.alive <= 2*maxConns {", new: "if false {",
		pkg: "./cmd/internal/status", run: "^TestTooMany$",
	}, {
		name: "handlers that are stuck are not counted", rule: "a bound for stuck handlers of the metrics",
		in:  "cmd/internal/status.door.track",
		old: "if d.public && d.alive <= 2*maxConns {", new: "if d.public {",
		pkg: "./cmd/internal/status", run: "^TestTooMany$",
	}, {
		name: "the worst is not seen behind the others", rule: "the worst decides",
		in:  "cmd/internal/status.Health.Level",
		old: "slices.MaxFunc", new: "slices.MinFunc",
		pkg: "./cmd/internal/status", run: "^TestHealth$",
	}, {
		name: "the watchdog hears of news alone", rule: "the watchdog hears as long as the process can say how it is",
		in:  "cmd/internal/daemon.follow",
		old: "if watchdog {", new: "if watchdog && len(news) > 0 {",
		pkg: "./cmd/internal/daemon", run: "^TestFollow$", hangs: true,
	},
}
