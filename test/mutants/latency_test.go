package mutants

// latencies are mutants of what is measured.
var latencies = []mutant{
	{
		name: "a request whose client gave up is not measured", rule: "what waited leaves a trace, if its client gave up too",
		in:  "nbd.conn.freeRequestLocked",
		old: "note(&c.took, rq, now-rq.came)", new: "if c.broken == nil { note(&c.took, rq, now-rq.came) }",
		pkg: "./nbd", run: "^TestLatencyOfWait$",
	}, {
		name: "a request takes no time", rule: "a request takes from the read of its header",
		in:  "nbd.conn.flushLocked",
		old: "c.unsent.pop().tag, now", new: "c.unsent.pop().tag, 0*now",
		pkg: "./nbd", run: "^TestLatencyOfWait$",
	}, {
		name: "a barrier counts when its first lane answers", rule: "a round trip ends with the last lane's answer",
		in:  "backend/remote.roundTrips.noteLocked",
		old: "b.owed(leg) == 0", new: "true",
		pkg: "./backend/remote", run: "^TestBarrierLatency$",
	}, {
		name: "an outage ends with each attempt", rule: "an outage ends when the session is back",
		in:  "backend/remote.leg.comeBack",
		old: "limit := attemptLimit(o.attempts)", new: "absence.over(); limit := attemptLimit(o.attempts)",
		pkg: "./backend/remote", run: "^TestOutageLatency$",
	}, {
		name: "what was syncing is measured under the region's lock", rule: "nobody waits for a slow disk to learn how slow it is",
		in:  "persist/region.Region.SyncLatency",
		old: "return r.synced.Took()", new: "r.mu.Lock(); defer r.mu.Unlock(); return r.synced.Took()",
		pkg: "./persist/region", run: "^TestSyncHangs$", hangs: true,
	},
}
