package mutants

// mistakes are mutants of what the commands do about wrong input and wrong files.
var mistakes = []mutant{
	{
		name: "a misspelt option becomes part of the path", rule: "a typo opens no region to everybody",
		in:  "cmd/internal/flags.CutPath",
		old: `path, rest, more = strings.Cut(s, ",")`, new: "path = s",
		pkg: "./cmd/pmnbd-target", run: "^TestRegionFlag$", few: true,
	}, {
		name: "an empty name of a key file means none", rule: "an empty value is not a flag that is left out",
		in:  "cmd/internal/command.Call.empty",
		old: `f.Value.String() == ""`, new: "false",
		pkg: "./cmd/internal/command", run: "^TestParse$", few: true,
	}, {
		name: "an empty key of a file means none", rule: "an empty value is not a key that is left out",
		in:  "cmd/internal/configfile.walk.value",
		old: "len(v.Data) == 0", new: "false",
		pkg: "./test/e2e", run: "^TestMistakes$",
	}, {
		name: "a key in another spelling is another key", rule: "a key in two spellings is given twice",
		in:  "cmd/internal/configfile.walk.spelt",
		old: "first.text != now.text", new: "false",
		pkg: "./cmd/internal/configfile", run: "^TestSpellings$",
	}, {
		name: "a table has the keys of the one before it", rule: "each table has keys of its own",
		in:  "cmd/internal/configfile.walk.begin",
		old: "maps.DeleteFunc", new: "_ = maps.DeleteFunc[map[string]spelling]; func(map[string]spelling, func(string, spelling) bool) {}",
		pkg: "./cmd/internal/configfile", run: "^TestSpellings$",
	}, {
		name: "a start looks for its window in no directory", rule: "an empty window directory is refused",
		in:  "cmd/pmnbd.config.check",
		old: `c.windowDir == ""`, new: "false",
		pkg: "./test/e2e", run: "^TestMistakes$",
	}, {
		name: "a region without an image is to be discarded", rule: "nobody is told to discard what is not lost",
		in:  "persist/region.hasNoImage",
		old: "err != nil ||", new: "err == nil ||",
		pkg: "./test/e2e", run: "^TestMistakes$",
	}, {
		name: "another user's key file is read", rule: "a key file belongs to the process's user or root",
		in:  "cmd/internal/keyfile.judge",
		old: "case uid != euid && uid != 0:", new: "case false:",
		pkg: "./cmd/internal/keyfile", run: "^TestJudge$",
	}, {
		name: "a key file is read whose ACL names other users", rule: "others have no right to a key file",
		in:  "cmd/internal/keyfile.stranger",
		old: "e.perm&mask != 0 && int(e.id) != euid && e.id != 0", new: "false",
		pkg: "./cmd/internal/keyfile", run: "^TestAccessList$",
	}, {
		name: "a TLS key is read that other users can read", rule: "a TLS key is as secret as a key file",
		in:  "cmd/pmnbd.loadPair",
		old: "keyPEM, err := keyfile.Secret(keyFile, maxKeyFile)", new: "_ = keyfile.Secret; keyPEM, err := os.ReadFile(keyFile)",
		pkg: "./cmd/pmnbd", run: "^TestTLSFiles$",
	}, {
		name: "the key for the arbiter is read that other users can read", rule: "so is the one of --arbiter-key",
		in:  "cmd/pmnbd.arbiterSpec.open",
		old: "_, err := loadPair(a.cert, a.key); err != nil", new: "_, err := tls.LoadX509KeyPair(a.cert, a.key); err != nil",
		pkg: "./cmd/pmnbd", run: "^TestArbiterKeyIsSecret$",
	}, {
		name: "a held region is withdrawn", rule: "a reload ends no session",
		in:  "persist/target.export.holderLocked",
		old: "&& left > 0", new: "&& left > 1<<62",
		pkg: "./persist/target", run: "^TestWithdraw$",
	}, {
		name: "a withdrawal waits for a disk that hangs", rule: "a save waits for no disk of another region",
		in:  "persist/target.Server.endSoon",
		old: "return errHangs", new: "return <-ended",
		pkg: "./persist/target", run: "^TestWithdrawFromAHungDisk$", hangs: true,
	}, {
		name: "a save waits until a region is withdrawn", rule: "a save waits for no disk of another region",
		in:  "persist/target.Server.change",
		old: "return gone, nil", new: "closeAll(gone); return gone, nil",
		pkg: "./persist/target", run: "^TestWithdrawWhileDoubtIsSettled$", hangs: true,
	}, {
		name: "a save leaves out what is being withdrawn", rule: "a save waits for no disk of another region",
		in:  "persist/target.Server.SaveTelling",
		old: "exports = append(exports, e)", new: "",
		pkg: "./persist/target", run: "^TestWithdrawWhileDoubtIsSettled$",
	}, {
		name: "a late grant gets a withdrawn region", rule: "a withdrawn region is nobody's",
		in:  "persist/target.conn.open",
		old: "if e.withdrawn {", new: "if false {",
		pkg: "./persist/target", run: "^TestWithdrawDuringAGrant$",
	}, {
		name: "an export with clients is withdrawn", rule: "a reload ends no client",
		in:  "nbd.withdraw",
		old: "n > 0", new: "n > 1<<30",
		pkg: "./nbd", run: "^TestChangeOfABusyExport$",
	}, {
		name: "a grant is partly by an older offer", rule: "keys and lists change together",
		in:  "persist/target.conn.open",
		old: "c.s.offer.Load() != offer", new: "false",
		pkg: "./persist/target", run: "^TestChangeDuringAGrant$",
	}, {
		name: "a reload accepts losses", rule: "what is decided for one start counts for that",
		in:  "cmd/pmnbd.config.later",
		old: "l.acceptLoss,", new: "_,",
		pkg: "./cmd/pmnbd", run: "^TestLater$",
	}, {
		name: "the keys of a reload count before it is through", rule: "a reload changes all or nothing",
		in:  "cmd/pmnbd.keyring.of",
		old: "if r.next.Load() == own {", new: "if own = cmp.Or(r.next.Load(), own); r.next.Load() != nil {",
		pkg: "./cmd/pmnbd", run: "^TestKeysDuringAReload$",
	}, {
		name: "a reload opens a region twice", rule: "a region is one export",
		in:  "cmd/pmnbd.initiator.plan",
		old: "slices.ContainsFunc(e.targets, x.has)", new: "false",
		pkg: "./cmd/pmnbd", run: "^TestPlan$",
	}, {
		name: "a reload removes an export beneath its block device", rule: "a reload ends no client",
		in:  "cmd/pmnbd.initiator.plan",
		old: `d != ""`, new: `d == "none"`,
		pkg: "./cmd/pmnbd", run: "^TestPlan$",
	}, {
		name: "a reload waits for its turn though the process is to end", rule: "docs/rules.md: a process that is to end does not wait for what a reload waits for",
		in:  "cmd/pmnbd.initiator.turn",
		old: "case <-ctx.Done():", new: "case <-(chan struct{})(nil):",
		pkg: "./cmd/pmnbd", run: "^TestTurn$",
	}, {
		name: "a reload opens a mirror without its arbiter", rule: "one host at a time has a mirror",
		in:  "cmd/pmnbd.initiator.dial",
		old: "if s.arbiter != nil {", new: "if s.arbiter != nil && !s.shown.serving() {",
		pkg: "./test/e2e", run: "^TestReloadArbiter$", needs: "etcd",
	}, {
		name: "an export that a reload removes is not shown", rule: "what is acknowledged and not flushed is shown",
		in:  "cmd/pmnbd.initiator.reportLeaving",
		old: "shot.State != remote.StateClosed", new: "false && shot.State != remote.StateClosed",
		pkg: "./test/e2e", run: "^TestReloadAndEnd$",
	}, {
		name: "NBD clients on other hosts need no certificate", rule: "clients on other hosts authenticate",
		in:  "cmd/pmnbd.config.authenticated",
		old: "return c.requireTLS && c.verifyPeer", new: "return c.requireTLS",
		pkg: "./cmd/pmnbd", run: "^TestBeyondLoopback$",
	}, {
		name: "NBD clients on other hosts need none at systemd's socket", rule: "they authenticate at every socket",
		in:  "cmd/pmnbd.initiator.listen",
		old: "!beyondLoopback(l)); err", new: "true); err",
		pkg: "./test/e2e", run: "^TestExposedSocketOfSystemd$",
	}, {
		name: "a socket for NBD clients counts as a control socket", rule: "status asks control sockets alone",
		in:  "cmd/internal/status.unanswered",
		old: "errors.Is(err, errNBD) && !p.one", new: "false",
		pkg: "./cmd/internal/status", run: "^TestFindLeavesNBDAlone$",
	}, {
		name: "an IPv4 address listens on IPv6 too", rule: "an IPv4 address binds IPv4 only",
		in:  "internal/sockio.TCPNetwork",
		old: `return "tcp4"`, new: `return "tcp"`,
		pkg: "./rdma/iwarp", run: "^TestListenFamilies$",
	}, {
		name: "status removes a socket that is about to listen", rule: "a bound socket is left to its process",
		in:  "cmd/internal/status.unanswered",
		old: "case p.one:", new: "case false:",
		pkg: "./cmd/internal/status", run: "^TestFindLeavesOneSocket$",
	}, {
		name: "status waits for the slowest process", rule: "status shows the others at once",
		in:  "cmd/internal/status.Ask",
		old: "early = nil", new: "",
		pkg: "./cmd/internal/status", run: "^TestAskWaitsForNone$",
	}, {
		name: "SIGHUP without keys ends the daemon", rule: "SIGHUP reads files again and ends nothing",
		in:  "cmd/pmnbd.serve",
		old: "daemon.HoldReload()", new: "",
		pkg: "./test/e2e", run: "^TestHangUpWithoutKeys$",
	}, {
		name: "a start ignores SIGHUP", rule: "a standby reads its keys again at SIGHUP",
		in:  "cmd/pmnbd.initiator.firstKeys",
		old: "s.reloader.OnHangup()", new: "",
		pkg: "./cmd/pmnbd", run: "^TestHangUpDuringTheStart$",
	}, {
		name: "a start takes keys that call a target by another name", rule: "keys that are read again keep the names of targets",
		in:  "cmd/pmnbd.initiator.instead",
		old: "if name != names[i] {", new: "if false {",
		pkg: "./cmd/pmnbd", run: "^TestReloadDuringTheStart$",
	}, {
		name: "what a reload leaves during the start is forgotten", rule: "a reload during the start counts in full once it serves",
		in:  "cmd/internal/reload.Reloader.Serve",
		old: "if r.later {", new: "if false {",
		pkg: "./cmd/internal/reload", run: "^TestStarting$",
	}, {
		name: "a crash looks like a wrong command line", rule: "what the watchdog ends is started again",
		in:  "cmd/pmnbd.serve",
		old: "daemon.CrashBySignal()", new: "",
		pkg: "./test/e2e", run: "^TestAbort$",
	}, {
		name: "region create makes a file in /dev", rule: "a missing device is not replaced by a file",
		in:  "persist/region.amongDevices",
		old: `return within("/dev") && !within("/dev/shm")`, new: `return dir == "/dev/none" && within("")`,
		pkg: "./persist/region", run: "^TestCreateAmongDevices$",
	},
}
