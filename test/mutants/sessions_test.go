package mutants

// sessions is of the target: grants, leases, and its half of a barrier.
var sessions = []mutant{
	{
		name: "a part of a barrier is told to be durable", rule: "§4.6 the last part's ack covers all",
		file: "persist/target/conn.go", old: "	if m.Last {\n		c.session.export.noteDurable(c, m.Seq)\n", new: "	c.session.export.noteDurable(c, m.Seq)\n	if m.Last {\n",
		pkg: "./persist/target", run: "^TestResumeTellsWhatIsDurable$",
	}, {
		name: "another owner is told what is durable", rule: "§5 a session is its owner's",
		file: "persist/target/grant.go", old: "	if !resume {\n		e.durable", new: "	if false {\n		e.durable",
		pkg: "./persist/target", run: "^TestResumeTellsWhatIsDurable$",
	}, {
		name: "what waits for a sync is told to be durable", rule: "§3.5 a sync that began after it",
		file: "persist/target/syncer.go", old: "	y.jobs = append(y.jobs, syncJob{c, seq})\n", new: "	y.e.noteDurable(c, seq)\n	y.jobs = append(y.jobs, syncJob{c, seq})\n",
		pkg: "./persist/target", run: "^TestResumeTellsWhatIsDurable$",
	}, {
		name: "data that arrive extend no lease", rule: "§5 lease",
		file: "persist/target/session.go", old: "if arrived != s.arrived {", new: "if false {",
		pkg: "./persist/target", run: "^TestDataExtendTheLease$", hangs: true,
	},
	{
		name: "an older mark is resumed", rule: "a region restored from a copy made within the session is refused",
		file: "persist/target/grant.go", old: "	case resume && m.Mark > sb.Mark:\n", new: "	case false:\n",
		pkg: "./persist/target", run: "^TestResumeNamesTheMark$",
	}, {
		name: "the mark stays while a session goes on", rule: "it advances while a session makes writes durable",
		file: "persist/target/conn.go", old: "		y.beat(c.session)\n", new: "",
		pkg: "./persist/target", run: "^TestMark$", hangs: true,
	}, {
		name: "the mark advances at each heartbeat", rule: "once an interval at most",
		file: "persist/target/mark.go", old: "active && now-y.markedAt >= interval", new: "active && now != interval",
		pkg: "./persist/target", run: "^TestMark$",
	}, {
		name: "the mark waits for barriers that the target does not see", rule: "it advances in each interval of a session that sends no barriers",
		file: "persist/target/mark.go", old: "s.method != persist.MethodGPSPM || ", new: "s.method > persist.MethodFlush || ",
		pkg: "./persist/target", run: "^TestMarkWithoutBarriers$", hangs: true,
	}, {
		name: "CLOSE leaves the mark", rule: "a copy that was made in the session has its epoch",
		file: "persist/target/grant.go", old: "		sb.Mark++ //", new: "		//",
		pkg: "./backend/remote", run: "^TestRestoredAfterClose$",
	}, {
		name: "a mark is told before it is durable", rule: "it is durable before it is told",
		file: "persist/target/conn.go", old: "Mark: e.r.Superblock().Mark, //", new: "Mark: y.told(e.r.Superblock().Mark), //",
		also: []edit{{"persist/target/mark.go", "// mark advances the mark, if", "func (y *syncer) told(m uint64) uint64 {\n	y.mu.Lock()\n	defer y.mu.Unlock()\n	if y.marking {\n		m++\n	}\n	return m\n}\n\n// mark advances the mark, if"}},
		pkg:  "./persist/target", run: "^TestMarkIsDurableBeforeItIsTold$",
	}, {
		name: "an ack before the flush", rule: "§3.3 gpspm",
		file: "persist/target/conn.go", old: "	if !e.r.MayBlock() {\n", new: "	if false {\n",
		pkg: model, run: crashes, few: true,
	}, {
		name: "an ack before the sync", rule: "§3.5 it follows a sync that began after the barrier came",
		file: "persist/target/syncer.go", old: "if len(jobs) > 0 && err == nil && y.e.r.MayBlock() {", new: "if false {",
		pkg: "./persist/target", run: "^TestAckAfterItsSync$", hangs: true,
	}, {
		name: "class volatile stays in the caches", rule: "§3.6 its timing stands for PMem",
		file: "persist/region/sync.go", old: "if r.class == persist.ClassPMem && r.platform", new: "if r.class == persist.ClassVolatile || r.platform",
		pkg: "./persist/target", run: "^TestVolatileFlushesLines$",
	}, {
		name: "an ack in doubt", rule: "§3.8 barriers wait for it",
		file: "persist/target/conn.go", old: "(e.r.MayBlock() || e.syncer.doubt.Load())", new: "e.r.MayBlock()",
		pkg: model, run: crashes,
	}, {
		name: "a new owner inherits nothing", rule: "§3.8 doubt",
		file: "persist/target/grant.go", old: "			sb.Doubt = true //", new: "			//",
		pkg: model, run: crashes,
	}, {
		name: "doubt is cleared by RESUME", rule: "§3.8 only a whole flush does",
		file: "persist/target/grant.go", old: "		sb.Epoch++\n", new: "		sb.Doubt = sb.Doubt && !resume\n		sb.Epoch++\n",
		pkg: "./backend/remote", run: "^TestResumedInDoubt$",
	}, {
		name: "doubt is cleared by a flush that began before the grant", rule: "§3.8, model F2",
		file: "persist/target/syncer.go", old: "			if again() {\n				return errAgain\n", new: "			if false {\n				return errAgain\n",
		pkg: "./persist/target", run: "^TestDoubtInTheBackground$", hangs: true,
	}, {
		name: "doubt is cleared without a flush", rule: "§3.8 of the whole extent",
		file: "persist/target/syncer.go", old: "off < y.e.r.Size() && !again()", new: "false && off < y.e.r.Size() && !again()",
		pkg: model, run: crashes,
	}, {
		name: "doubt is cleared by CLOSE", rule: "§3.8 never CLOSE",
		file: "persist/target/grant.go", old: "sb.Clean = !sb.Doubt && !sb.Failed", new: "sb.Clean, sb.Doubt = true, false",
		pkg: "./persist/target", run: "^TestDoubtInTheBackground$", hangs: true,
	}, {
		name: "A closes, B writes, A replays", rule: "§6 only the persisted owner resumes",
		file: "persist/target/grant.go", old: "case resume && (m.Owner != sb.Owner || sb.Clean):", new: "case false:",
		pkg: "./backend/remote", run: "^TestRowsOfFailure$", few: true,
	}, {
		name: "RESUME takes over", rule: "§6 it never does",
		file: "backend/remote/recover.go", old: "	msg.Flags &^= wire.OpenTakeover\n", new: "",
		pkg: "./backend/remote", run: "^TestTakeover$", hangs: true,
	}, {
		name: "a stranger joins", rule: "§5 a lane proves itself",
		file: "persist/target/session.go", old: " || !s.secret.SignedRequest(msg) {", new: " {",
		pkg: "./persist/target", run: "^TestJoin$",
	}, {
		name: "a lane is taken again", rule: "§5 what is played back gets at nothing",
		file: "persist/target/session.go", old: "s.taken[n] {", new: "s.lanes[n] != nil {",
		pkg: "./persist/target", run: "^TestLaneIsTakenOnce$",
	}, {
		name: "sessions on a device that places in any order", rule: "§4.5 who places decides",
		file: "persist/target/grant.go", old: "	if c.Caps().OrderedPlacement {\n", new: "	if true {\n",
		pkg: "./persist/target", run: "^TestDeviceThatPlacesInAnyOrder$",
	}, {
		name: "a challenge is always the same", rule: "§5 what is played back gets at nothing",
		file: "persist/target/auth.go", old: "_, _ = rand.Read(c.challenge.Nonce[:])", new: "_, _ = rand.Read(nil)",
		pkg: "./persist/target", run: "^TestWithoutProof$",
	}, {
		name: "an answer without proof is believed", rule: "§5 authentication is mutual",
		file: "backend/remote/auth.go", old: "	return ErrNoProof\n", new: "	return nil\n",
		pkg: "./backend/remote", run: "^TestAnswersAreProven$",
	}, {
		name: "a late OPEN of an old epoch is granted", rule: "§5 OPEN, model F1",
		file: "persist/target/grant.go", old: "case m.Epoch == 0 || m.Epoch != sb.Epoch:", new: "case m.Epoch == 0:",
		pkg: "./persist/target", run: "^TestGrantEndsTheOldSession$",
	}, {
		name: "the owner is not checked again under the lock", rule: "§5 granting",
		file: "persist/target/grant.go", old: "	if r := e.check(m, resume); r != nil {\n		return nil, r\n	}\n\n	before", new: "	before",
		pkg: "./persist/target", run: "^TestGrantLooksAgainUnderTheLock$",
	}, {
		name: "a lease keeps nobody out", rule: "§5 lease",
		file: "persist/target/grant.go", old: "case leased > 0 && m.Flags&wire.OpenTakeover == 0:", new: "case false:",
		pkg: "./persist/target", run: "^TestLease$",
	}, {
		name: "messages do not extend a lease", rule: "§5 lease",
		file: "persist/target/conn.go", old: "	c.session.heard.Store(clock())\n", new: "",
		pkg: "./persist/target", run: "^TestHeartbeatExtendsTheLease$",
	}, {
		name: "no grace after a target's start", rule: "§5 lease",
		file: "persist/target/grant.go", old: "since := e.started", new: "since := int64(-1) << 62",
		pkg: "./persist/target", run: "^TestLease$",
	}, {
		name: "the epoch is not persisted", rule: "§5 granting",
		file: "persist/target/grant.go", old: "		sb.Epoch++\n", new: "",
		pkg: model, run: crashes,
	}, {
		name: "the owner is not persisted", rule: "§5 granting",
		file: "persist/target/grant.go", old: "sb.Owner, sb.Clean = m.Owner, false", new: "sb.Clean = false",
		pkg: model, run: crashes,
	}, {
		name: "old queue pairs live on", rule: "§5 granting: destroy",
		file: "persist/target/grant.go", old: "if err := e.session.end(nil); err != nil {", new: "if err := error(nil); err != nil {",
		pkg: model, run: crashes,
	}, {
		name: "a zero of the old session ends after the grant", rule: "§5 granting: join",
		file: "persist/target/session.go", old: "		<-c.done\n", new: "",
		pkg: "./persist/target", run: "^TestGrantJoinsWhatTouchesTheRegion$",
	}, {
		name: "a queue pair that stays is taken for destroyed", rule: "§5 granting: destroy",
		file: "persist/target/session.go", old: "		err = errors.Join(err, c.alive)\n", new: "",
		pkg: "./persist/target", run: "^TestQueuePairThatStays$",
	}, {
		name: "a sync of the old session ends after the grant", rule: "§5 granting: join",
		file: "persist/target/syncer.go", old: "	for slices.ContainsFunc(y.active, its) {\n		y.idle.Wait()\n	}\n", new: "",
		pkg: "./persist/target", run: "^TestSyncFailsAfterTheLaneIsGone$",
	}, {
		name: "the old key is left registered", rule: "§5 granting: deregister",
		file: "persist/target/session.go", old: "	return d.Close()\n", new: "	return nil\n",
		pkg: "./persist/target", run: "^TestGrantOrder$",
	}, {
		name: "the key outlives CLOSE", rule: "§5 deregister",
		file: "persist/target/grant.go", old: "s.conn.domain.Deregister(s.mem); err != nil", new: "error(nil); err != nil",
		pkg: "./persist/target", run: "^TestSession$",
	}, {
		name: "credits are not kept", rule: "§5 credits",
		file: "persist/target/syncer.go", old: "if unanswered > credits {", new: "if false {",
		pkg: "./persist/target", run: "^TestCreditsAreKept$", hangs: true,
	}, {
		name: "bounds overflow", rule: "§4.6 off <= size && len <= size-off",
		file: "persist/target/target.go", old: "r.Off > size || r.Len > size-r.Off {", new: "r.Off+r.Len > size {",
		pkg: "./persist/target", run: "^TestHostileMessages$",
	}, {
		name: "class volatile without the initiator's flag", rule: "§3.6 an explicit flag on both ends",
		file: "persist/target/grant.go", old: "case e.r.Class() == persist.ClassVolatile && m.Flags&wire.OpenAllowVolatile == 0:", new: "case false:",
		pkg: "./persist/target", run: "^TestVolatileNeedsTheFlag$",
	},
}
