package mutants

// sessions are mutants of the target: grants, leases, and its half of a barrier.
var sessions = []mutant{
	{
		name: "a part of a barrier is reported durable", rule: "§4.6 the last part's acknowledgement covers all parts",
		in:  "persist/target.conn.ack",
		old: "if m.Last { if c.failed", new: "c.session.export.noteDurable(c, m.Seq); if m.Last { if c.failed",
		pkg: "./persist/target", run: "^TestResumeTellsWhatIsDurable$",
	}, {
		name: "another owner learns what is durable", rule: "§5 a session belongs to its owner",
		in:  "persist/target.conn.open",
		old: "if !resume { e.durable", new: "if false { e.durable",
		pkg: "./persist/target", run: "^TestResumeTellsWhatIsDurable$",
	}, {
		name: "a barrier that waits for a sync is reported durable", rule: "§3.5 a sync that began after it",
		in:  "persist/target.syncer.add",
		old: "y.jobs = append(y.jobs, job)",
		new: "y.e.noteDurable(job.c, job.seq); y.jobs = append(y.jobs, job)",
		pkg: "./persist/target", run: "^TestResumeTellsWhatIsDurable$",
	}, {
		name: "a barrier is durable although a part of it was dropped", rule: "§5 durable barriers",
		in:  "persist/target.syncer.finish",
		old: "j.c.ends()", new: "false",
		pkg: "./persist/target", run: "^TestDroppedPartIsNotDurable$",
	}, {
		name: "a barrier is durable although a part of it was dropped before the sync", rule: "§5 durable barriers",
		in:  "persist/target.syncer.note",
		old: "jobs[i].c.dropped = true", new: "",
		pkg: "./persist/target", run: "^TestDroppedPartIsNotDurable$",
	}, {
		name: "arriving data extend no lease", rule: "§5 lease",
		in:  "persist/target.session.look",
		old: "if arrived != s.arrived {", new: "if false {",
		pkg: "./persist/target", run: "^TestDataExtendTheLease$", hangs: true,
	},
	{
		name: "a RESUME with an older mark is granted", rule: "a region restored from a copy made within the session is refused",
		in:  "persist/target.export.check",
		old: "case resume && m.Mark > sb.Mark:", new: "case false:",
		pkg: "./persist/target", run: "^TestResumeNamesTheMark$",
	}, {
		name: "the mark does not advance during a session", rule: "it advances while a session makes writes durable",
		in:  "persist/target.conn.handle",
		old: "y.beat(c.session)", new: "",
		pkg: "./persist/target", run: "^TestMark$", hangs: true,
	}, {
		name: "the mark advances at each heartbeat", rule: "once an interval at most",
		in:  "persist/target.syncer.beat",
		old: "active && now-y.markedAt >= interval", new: "active && now != interval",
		pkg: "./persist/target", run: "^TestMark$",
	}, {
		name: "the mark waits for barriers that the target cannot see", rule: "it advances in each interval of a session that sends no barriers",
		in:  "persist/target.syncer.beat",
		old: "s.method != persist.MethodGPSPM ||", new: "s.method > persist.MethodFlush ||",
		pkg: "./persist/target", run: "^TestMarkWithoutBarriers$", hangs: true,
	}, {
		name: "CLOSE leaves the mark", rule: "a copy made during the session has the same epoch",
		in:  "persist/target.session.endLease",
		old: "sb.Mark++", new: "",
		pkg: "./backend/remote", run: "^TestRestoredAfterClose$",
	}, {
		name: "a mark is sent before it is durable", rule: "it is durable before it is sent",
		in:  "persist/target.conn.handle",
		old: "Mark: e.r.Superblock().Mark,", new: "Mark: y.told(e.r.Superblock().Mark),",
		also: []edit{{"persist/target.syncer.mark", "", "func (y *syncer) told(m uint64) uint64 { y.mu.Lock(); defer y.mu.Unlock(); if y.marking { m++ }; return m }"}},
		pkg:  "./persist/target", run: "^TestMarkIsDurableBeforeItIsTold$",
	}, {
		name: "an acknowledgement before the flush", rule: "§3.3 gpspm flushes first",
		in:  "persist/target.conn.flush",
		old: "if !e.r.MayBlock() {", new: "if false {",
		pkg: model, run: crashes, few: true,
	}, {
		name: "an acknowledgement before the sync", rule: "§3.5 the sync begins after the barrier came",
		in:  "persist/target.syncer.work",
		old: "if len(jobs) > 0 && err == nil && y.e.r.MayBlock() {", new: "if false {",
		pkg: "./persist/target", run: "^TestAckAfterItsSync$", hangs: true,
	}, {
		name: "class volatile stays in the caches", rule: "§3.6 its timing is that of persistent memory",
		in:  "persist/region.Region.writeBack",
		old: "if r.FencesOnly() {", new: "if r.FencesOnly() || r.class == persist.ClassVolatile {",
		pkg: "./persist/target", run: "^TestVolatileFlushesLines$",
	}, {
		name: "an acknowledgement in doubt", rule: "§3.8 barriers wait until it is settled",
		in:  "persist/target.conn.flush",
		old: "(e.r.MayBlock() || e.syncer.doubt.Load())", new: "e.r.MayBlock()",
		pkg: model, run: crashes,
	}, {
		name: "a new owner inherits no doubt", rule: "§3.8 doubt",
		in:  "persist/target.export.succeedLocked",
		old: "sb.Doubt = true", new: "",
		pkg: model, run: crashes,
	}, {
		name: "doubt is cleared by RESUME", rule: "§3.8 only a flush of the whole extent clears it",
		in:  "persist/target.export.succeedLocked",
		old: "sb.Epoch++", new: "sb.Doubt = sb.Doubt && !resume; sb.Epoch++",
		pkg: "./backend/remote", run: "^TestResumedInDoubt$",
	}, {
		name: "doubt is cleared by a flush that began before the grant", rule: "§3.8, model F2",
		in:  "persist/target.syncer.settle",
		old: "if again() { return errAgain", new: "if false { return errAgain",
		pkg: "./persist/target", run: "^TestDoubtInTheBackground$", hangs: true,
	}, {
		name: "doubt is cleared without a flush", rule: "§3.8 only a flush of the whole extent clears it",
		in:  "persist/target.syncer.settle",
		old: "off < y.e.r.Size() && !again()", new: "false && off < y.e.r.Size() && !again()",
		pkg: model, run: crashes,
	}, {
		name: "doubt is cleared by CLOSE", rule: "§3.8 CLOSE never clears it",
		in:  "persist/target.session.endLease",
		old: "sb.Clean = !sb.Doubt && !sb.Failed", new: "sb.Clean, sb.Doubt = true, false",
		pkg: "./persist/target", run: "^TestDoubtInTheBackground$", hangs: true,
	}, {
		name: "A closes, B writes, A replays", rule: "§6 only the persisted owner resumes",
		in:  "persist/target.export.check",
		old: "case resume && (m.Owner != sb.Owner || sb.Clean):", new: "case false:",
		pkg: "./backend/remote", run: "^TestRowsOfFailure$", few: true,
	}, {
		name: "RESUME takes over", rule: "§6 RESUME never takes over",
		in:  "backend/remote.leg.askResume",
		old: "msg.Flags &^= wire.OpenTakeover", new: "",
		pkg: "./backend/remote", run: "^TestTakeover$", hangs: true,
	}, {
		name: "a stranger's lane joins a session", rule: "§5 a lane proves that it has the key",
		in:  "persist/target.conn.join",
		old: "|| !secret.SignedRequest(msg) {", new: "{",
		pkg: "./persist/target", run: "^TestJoin$",
	}, {
		name: "a recorded lane joins again", rule: "§5 a recording that is played back gets at nothing",
		in:  "persist/target.session.add",
		old: "s.taken[n] {", new: "s.lanes[n] != nil {",
		pkg: "./persist/target", run: "^TestLaneIsTakenOnce$",
	}, {
		name: "the target serves on a device that places in any order", rule: "§4.5 the device that places decides",
		in:  "persist/target.conn.disorders",
		old: "if c.Caps().OrderedPlacement {", new: "if true {",
		pkg: "./persist/target", run: "^TestDeviceThatPlacesInAnyOrder$",
	}, {
		name: "a challenge is always the same", rule: "§5 a recording that is played back gets at nothing",
		in:  "persist/target.conn.authenticate",
		old: "_, _ = rand.Read(c.challenge.Nonce[:])", new: "_, _ = rand.Read(nil)",
		pkg: "./persist/target", run: "^TestWithoutProof$",
	}, {
		name: "an initiator accepts an answer without proof", rule: "§5 authentication is mutual",
		in:  "backend/remote.dialed.proven",
		old: "return ErrNoProof", new: "return nil",
		pkg: "./backend/remote", run: "^TestAnswersAreProven$",
	}, {
		name: "a late OPEN of an old epoch is granted", rule: "§5 OPEN, model F1",
		in:  "persist/target.export.check",
		old: "case m.Epoch == 0 || m.Epoch != sb.Epoch:", new: "case m.Epoch == 0:",
		pkg: "./persist/target", run: "^TestGrantEndsTheOldSession$",
	}, {
		name: "a grant does not check the owner again under the lock", rule: "§5 how the target grants",
		in:  "persist/target.conn.open",
		old: "if r := e.check(m, resume); r != nil { return nil, r }; e.begins.Store(true)", new: "e.begins.Store(true)",
		pkg: "./persist/target", run: "^TestGrantLooksAgainUnderTheLock$",
	}, {
		name: "a lease keeps nobody out", rule: "§5 lease",
		in:  "persist/target.export.check",
		old: "case leased > 0 && m.Flags&wire.OpenTakeover == 0:", new: "case false:",
		pkg: "./persist/target", run: "^TestLease$",
	}, {
		name: "messages do not extend a lease", rule: "§5 lease",
		in:  "persist/target.conn.handle",
		old: "c.session.heard.Store(clock())", new: "",
		pkg: "./persist/target", run: "^TestHeartbeatExtendsTheLease$",
	}, {
		name: "no grace after a target's start", rule: "§5 lease",
		in:  "persist/target.export.leaseLeft",
		old: "since := e.started.Load()", new: "since := int64(-1) << 62",
		pkg: "./persist/target", run: "^TestLease$",
	}, {
		name: "the epoch is not persisted", rule: "§5 how the target grants",
		in:  "persist/target.export.succeedLocked",
		old: "sb.Epoch++", new: "",
		pkg: model, run: crashes,
	}, {
		name: "the owner is not persisted", rule: "§5 how the target grants",
		in:  "persist/target.export.succeedLocked",
		old: "sb.Owner, sb.Clean = owner, false", new: "sb.Clean = false",
		pkg: model, run: crashes,
	}, {
		name: "old queue pairs live on", rule: "§5 a grant destroys the old queue pairs",
		in:  "persist/target.export.succeedLocked",
		old: "if err := e.session.end(nil); err != nil {", new: "if err := error(nil); err != nil {",
		pkg: model, run: crashes,
	}, {
		name: "a zero of the old session ends after the grant", rule: "§5 a grant waits for the old session's work",
		in:  "persist/target.session.end",
		old: "<-c.done", new: "",
		pkg: "./persist/target", run: "^TestGrantJoinsWhatTouchesTheRegion$",
	}, {
		name: "a queue pair that stays counts as destroyed", rule: "§5 a grant destroys the old queue pairs",
		in:  "persist/target.session.end",
		old: "err = errors.Join(err, c.alive)", new: "",
		pkg: "./persist/target", run: "^TestQueuePairThatStays$",
	}, {
		name: "a sync of the old session ends after the grant", rule: "§5 a grant waits for the old session's work",
		in:  "persist/target.syncer.forget",
		old: "for slices.ContainsFunc(y.active[y.answered:], its) { y.idle.Wait() }", new: "",
		pkg: "./persist/target", run: "^TestSyncFailsAfterTheLaneIsGone$",
	}, {
		name: "the old key is left registered", rule: "§5 a grant deregisters the old key",
		in:  "persist/target.sharedDomain.release",
		old: "return d.Close()", new: "return nil",
		pkg: "./persist/target", run: "^TestGrantOrder$",
	}, {
		name: "an end that finds the contents lost calls that harmless", rule: "§6 an end without CLOSE says that nothing is lost only if no target has said otherwise",
		in:  "backend/remote.core.leave",
		old: "if failed != nil && unheard", new: "if failed != nil",
		pkg: "./backend/remote", run: "^TestCloseFindsAnotherRegion$",
	}, {
		name: "the key outlives CLOSE", rule: "§5 CLOSE deregisters the key",
		in:  "persist/target.session.endLease",
		old: "s.conn.domain.Deregister(s.mem); err != nil", new: "error(nil); err != nil",
		pkg: "./persist/target", run: "^TestSession$",
	}, {
		name: "STags start over after the last one", rule: "a run of a target gives no STag twice",
		in:  "rdma/iwarp.newKey",
		old: "keys.issued < math.MaxUint32", new: "keys.issued <= math.MaxUint32",
		pkg: "./rdma/iwarp", run: "^TestSTagsAreUsedUp$",
	}, {
		name: "two numbers become the same STag", rule: "a run of a target gives no STag twice",
		in:  "rdma/iwarp.scatter",
		old: "x ^= x >> 15", new: "x |= x >> 15",
		pkg: "./rdma/iwarp", run: "^TestScatter$",
	}, {
		name: "the target ignores credits", rule: "§5 credits",
		in:  "persist/target.syncer.add",
		old: "if unanswered > credits {", new: "if false {",
		pkg: "./persist/target", run: "^TestCreditsAreKept$", hangs: true,
	}, {
		name: "bounds overflow", rule: "§4.6 off <= size && len <= size-off",
		in:  "persist/target.inside",
		old: "r.Off > size || r.Len > size-r.Off {", new: "r.Off+r.Len > size {",
		pkg: "./persist/target", run: "^TestHostileMessages$",
	}, {
		name: "class volatile is served without the initiator's flag", rule: "§3.6 both ends need the flag",
		in:  "persist/target.export.check",
		old: "case e.r.Class() == persist.ClassVolatile && m.Flags&wire.OpenAllowVolatile == 0:", new: "case false:",
		pkg: "./persist/target", run: "^TestVolatileNeedsTheFlag$",
	},
}
