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
	}, {
		name: "a session's secret forgets the channel", rule: "a proof holds for its own channel",
		in:  "persist/wire.NewSecret",
		old: "info := append(ends.append([]byte(labelSecret)), binding...)", new: "info := ends.append([]byte(labelSecret)); _ = binding",
		pkg: "./backend/remote", run: "^TestManInTheMiddle$", few: true,
	}, {
		name: "a lane's secret forgets the channel", rule: "a proof holds for its own channel",
		in:  "persist/wire.Secret.On",
		old: "if len(binding) == 0 {", new: "if true {",
		pkg: "./backend/remote", run: "^TestManInTheMiddle$",
	}, {
		name: "a connection request counts on any channel", rule: "a proof holds for its own channel",
		in:  "persist/target.Server.takeIn",
		old: "secret := session.secret.On(c.req.Channel().Bound())", new: "secret := session.secret.On(nil); if !secret.Signed(hint) { secret = session.secret.On(c.req.Channel().Bound()) }",
		pkg: "./persist/target", run: "^TestLanesProveTheirChannels$",
	}, {
		name: "JOIN counts on any channel", rule: "a proof holds for its own channel",
		in:  "persist/target.conn.join",
		old: "secret = s.secret.On(c.Caps().Channel.Bound())", new: "secret = s.secret",
		pkg: "./persist/target", run: "^TestLanesProveTheirChannels$",
	}, {
		name: "an answer is signed with what proved another request", rule: "an answer has a proof only if its request has one",
		in:  "persist/target.conn.join",
		old: "c.secret = nil", new: "",
		pkg: "./persist/target", run: "^TestWithoutProof$",
	}, {
		name: "a lane need not be encrypted as its session is", rule: "all lanes of a session are encrypted, or none",
		in:  "persist/target.Server.takeIn",
		old: "if (c.req.Channel() == nil) != (session.conn.req.Channel() == nil) {", new: "if false {",
		pkg: "./persist/target", run: "^TestLanesProveTheirChannels$",
	}, {
		name: "an encrypted region is served in clear", rule: "a region can demand encryption",
		in:  "persist/target.conn.exportFor",
		old: "case offer.Encrypted[m.Region] && c.Caps().Channel == nil:", new: "case false:",
		pkg: "./persist/target", run: "^TestEncryptedRegion$",
	}, {
		name: "iwarps:// is content with a clear connection", rule: "nothing falls back to a clear connection",
		in:  "backend/remote.leg.connect",
		old: "case !encrypted && g.cfg.Encrypted:", new: "case false:",
		pkg: "./backend/remote", run: "^TestEncryptionIsDemanded$",
	}, {
		name: "a member that is added at iwarps:// is content with a clear connection", rule: "nothing falls back to a clear connection",
		in:  "backend/remote.Config.leadTo",
		old: "c.Target, c.Encrypted = t.Provider, t.Addr, t.Region, t.Name, t.Encrypted", new: "c.Target = t.Provider, t.Addr, t.Region, t.Name",
		pkg: "./backend/remote", run: "^TestAddedMemberIsEncrypted$",
	}, {
		name: "encryption without a key", rule: "encryption without a key is refused",
		in:  "backend/remote.leg.connect",
		old: "case encrypted && g.cfg.Key == nil:", new: "case false:",
		pkg: "./backend/remote", run: "^TestEncryptionIsDemanded$",
	}, {
		name: "any key exchange will do", rule: "TLS leaves no choice",
		in:  "rdma/iwarp.tlsConfig",
		old: "CurvePreferences: []tls.CurveID{tls.X25519MLKEM768},", new: "",
		pkg: "./rdma/iwarp", run: "^TestTLSIsNotNegotiable$",
	}, {
		name: "an older TLS will do", rule: "TLS leaves no choice",
		in:  "rdma/iwarp.tlsConfig",
		old: "MinVersion: tls.VersionTLS13, CurvePreferences: []tls.CurveID{tls.X25519MLKEM768},", new: "MinVersion: tls.VersionTLS12,",
		pkg: "./rdma/iwarp", run: "^TestTLSIsNotNegotiable$",
	}, {
		name: "a listener at iwarps:// without keys", rule: "encryption without a key is refused",
		in:  "cmd/pmnbd-target.config.checkListener",
		old: "case l.Encrypted() && !c.authenticated():", new: "case false:",
		pkg: "./cmd/pmnbd-target", run: "^TestBeyondLoopback$",
	}, {
		name: "each record takes a system call", rule: "several records leave in one sendmsg",
		in:  "internal/sockio.TLS.seal",
		old: "for len(t.ends) < maxSealed &&", new: "for len(t.ends) < 1 &&",
		pkg: "./internal/sockio", run: "^TestTLSRecordsPerCall$",
	}, {
		name: "a stranger's TLS holds a thread", rule: "a client that negotiates holds no thread",
		in:  "nbd.conn.startTLS",
		old: "if c.tls, err =", new: "if err = c.takeOver(); err != nil { return nil, err }; if c.tls, err =",
		pkg: "./nbd", run: "^TestNegotiationHoldsNoThread$",
	}, {
		name: "keys are never used up", rule: "the keys of a TLS connection encrypt 256 GiB at most",
		in:  "internal/sockio.TLS.usedUp",
		old: "return t.limit > 0 && t.spent >= t.limit", new: "return false",
		pkg: "./internal/sockio", run: "^TestTLSLimit$",
	}, {
		name: "small records cost nothing", rule: "the keys of a TLS connection encrypt 256 GiB at most",
		in:  "internal/sockio.TLS.encrypt",
		old: "t.spent += uint64(len(p)) + recordCost", new: "t.spent += uint64(len(p))",
		pkg: "./internal/sockio", run: "^TestTLSLimitOfSmallRecords$",
	}, {
		name: "a target's connections have no limit", rule: "the keys of a TLS connection encrypt 256 GiB at most",
		in:  "rdma/iwarp.link.takeOver",
		old: "secure.Limit(keyBytes)", new: "",
		pkg: "./rdma/iwarp", run: "^TestKeysAreUsedUp$", hangs: true,
	}, {
		name: "an initiator's connections have no limit", rule: "the keys of a TLS connection encrypt 256 GiB at most",
		in:  "rdma/iwarp.dialed",
		old: "secure.Limit(cfg.keyBytes)", new: "_ = cfg",
		pkg: "./rdma/iwarp", run: "^TestKeysAreUsedUp$", hangs: true,
	}, {
		name: "what is encrypted counts as written", rule: "what a Stream counts as written is in the socket",
		in:  "internal/sockio.TLS.settle",
		old: "t.ends[0].cipher <= sent", new: "(sent > 0 || true)",
		pkg: "./internal/sockio", run: "^TestTLSWrittenIsInTheSocket$",
	},
}
