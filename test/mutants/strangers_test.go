package mutants

// strangers is of connections that have no session, and of holders of a key that take
// more than their share of the target.
var strangers = []mutant{
	{
		name: "the newest stranger is refused", rule: "strangers keep no owner out",
		file: "persist/target/strangers.go",
		old:  "		away = (*places)[i]\n		*places = slices.Delete(*places, i, i+1)\n		away.evicted = true\n		s.leaving++\n",
		new:  "		_, c.evicted = i, true\n		s.leaving++\n		return c\n",
		pkg:  "./backend/remote", run: "^TestSessionComesBackInAFlood$", hangs: true,
	}, {
		name: "the oldest stranger of all loses its place", rule: "strangers of one address keep no other out",
		file: "persist/target/strangers.go", old: "i := rdma.Crowded(*places, func(c *conn) netip.Prefix { return c.source })", new: "i := 0 * rdma.Crowded(*places, func(c *conn) netip.Prefix { return c.source })",
		pkg: "./persist/target", run: "^TestWhoLosesItsPlace$",
	}, {
		name: "a lane with a proof is a stranger", rule: "a proven connection request has a place",
		file: "persist/target/target.go", old: "	if !lane {\n		s.stranger(c, silent)\n", new: "	if true {\n		s.stranger(c, silent)\n",
		pkg: "./persist/target", run: "^TestStrangersKeepNobodyOut$",
	}, {
		name: "a key makes no difference among strangers", rule: "a proven key has places of its own",
		file: "persist/target/grant.go", old: "		at = proven\n", new: "",
		pkg: "./persist/target", run: "^TestProvenStrangers$",
	}, {
		name: "strangers that were ended are not waited for", rule: "what strangers hold is bounded",
		file: "persist/target/strangers.go", old: "	for s.leaving >= maxStrangers {\n", new: "	for false {\n",
		pkg: "./persist/target", run: "^TestLeavingIsBounded$",
	}, {
		name: "an adapter's request is not abandoned", rule: "strangers keep no owner out",
		file: "persist/target/conn.go", old: "		c.req.Abandon()\n", new: "",
		pkg: "./persist/target", run: "^TestUnconfirmedStrangers$", hangs: true,
	}, {
		name: "those who prove nothing have as long as others", rule: "strangers: a short time until the proof",
		file: "persist/target/conn.go", old: "limit := s.cfg.ProofTimeout", new: "limit := s.cfg.OpenTimeout",
		pkg: "./persist/target", run: "^TestStrangersTime$", hangs: true,
	}, {
		name: "a flood from one address ends the half-open connection of another", rule: "strangers of one address keep no other out",
		file: "rdma/iwarp/listener.go", old: "i := rdma.Crowded(ln.halfOpen, func(h halfOpen) netip.Prefix { return h.source })", new: "i := 0 * rdma.Crowded(ln.halfOpen, func(h halfOpen) netip.Prefix { return h.source })",
		pkg: "./rdma/iwarp", run: "^TestHalfOpenConnectionsOfAnotherAddress$", hangs: true,
	},
}
