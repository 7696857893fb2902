package mutants

// table is the mutants, by where their rule lives.
var table = []mutant{
	// Barriers, at the initiator.
	{
		name: "a barrier skips a lane", rule: "§3.2 on every dirty lane",
		file: "backend/remote/barrier.go", old: "if c.from[i] != c.to[i] || (", new: "if i != 1 && c.from[i] != c.to[i] || (",
		pkg: model, run: crashes, few: true,
	}, {
		name: "a barrier is done when one lane has answered", rule: "§3.2 when all have",
		file: "backend/remote/barrier.go", old: "if c.remaining--; c.remaining > 0 {", new: "if c.remaining--; false {",
		pkg: "./backend/remote", run: "^TestBarrierWaitsForAllLanes$|^TestBarrierOnTheDirtyLanes$",
	}, {
		name: "a FLUSH joins a barrier ahead of its writes", rule: "§3.7 barriers in order",
		file: "backend/remote/barrier.go", old: "if l.ring.Head() != c.to[i] {", new: "if l.ring.Head() < c.to[i] {",
		pkg: model, run: crashes,
	}, {
		name: "marks move over what came behind the barrier", rule: "§4.6 covered means ahead of the barrier",
		file: "backend/remote/barrier.go", old: "l.ring.Cover(c.to[i])", new: "l.ring.Cover(l.ring.Head())",
		pkg: model, run: crashes,
	}, {
		name: "a reply to FLUSH before the marks moved", rule: "§4.2 order of retiring, model R1",
		file: "backend/remote/barrier.go",
		old:  "	for i, l := range d.lanes {\n		l.ring.Cover(", new: "	c.answer(nil)\n	for i, l := range d.lanes {\n		l.ring.Cover(",
		pkg: "./backend/remote", run: "^TestRetireOrder$",
	}, {
		name: "spans free before the replies", rule: "§4.2 order of retiring",
		file: "backend/remote/barrier.go", old: "	c.answer(nil)\n	if durable", new: "	d.free(c)\n	c.answer(nil)\n	if durable",
		pkg: "./backend/remote", run: "^TestRetireOrder$",
	}, {
		name: "places come back out of order", rule: "§4.2 a place is not given out before it was read",
		file: "backend/remote/barrier.go", old: "for !b.retired.empty() && (*b.retired.front()).answered {", new: "for !b.retired.empty() {",
		pkg: "./backend/remote", run: "^TestSpansComeBackInOrder$",
	}, {
		name: "a FLUSH with nothing dirty is answered in doubt", rule: "§3.7, model F3",
		file: "backend/remote/barrier.go", old: "(i == 0 && b.inherits && len(c.ops) > 0)", new: "false",
		pkg: model, run: crashes,
	}, {
		name: "a failed device says durable", rule: "§3.7 the failed state is tested first",
		file: "backend/remote/barrier.go", old: "		op.Err = err\n		op.Sink.Complete(op)\n	}\n}\n\n// start", new: "		op.Sink.Complete(op)\n	}\n}\n\n// start",
		pkg: model, run: crashes,
	}, {
		name: "FUA is not awaited", rule: "§3.7 FUA covers its write",
		file: "backend/remote/submit.go", old: "if op.FUA && op.Err == nil {", new: "if false {",
		pkg: model, run: crashes,
	}, {
		name: "zeroes are no range of a barrier", rule: "§4.7 zeroes are covered",
		file: "backend/remote/queue.go",
		old:  "		e := l.ring.At(from)\n", new: "		e := l.ring.At(from)\n		if e.Kind == 2 {\n			continue\n		}\n",
		pkg: model, run: crashes,
	}, {
		name: "native FLUSHes name the first run alone", rule: "§4.6 ranges hold every write",
		file: "backend/remote/placed.go", old: "if it.next == it.to {", new: "if it.next = it.to; true {",
		pkg: model, run: crashes,
	}, {
		name: "an op slips past a stopped queue", rule: "§4.7 what overlaps a zero waits",
		file: "backend/remote/post.go",
		old:  "			if l.zeroes.overlap(e.Off, uint64(e.Len)) {", new: "			if false {",
		pkg: "./backend/remote", run: "^TestConformance$",
	}, {
		name: "a READ slips past a stopped queue", rule: "§4.7 what overlaps a zero waits",
		file: "backend/remote/post.go",
		old:  "			if l.zeroes.overlap(p.off, uint64(p.len)) {", new: "			if false {",
		pkg: model, run: crashes,
	}, {
		name: "a barrier of apm overtakes zeroes", rule: "§4.7 it waits for their acks",
		file: "backend/remote/placed.go", old: "|| l.zeroes.due(p.zeroes)", new: "",
		pkg: "./backend/remote", run: "^TestZeroesWithoutTheTargetsBarrier$", hangs: true,
	}, {
		name: "apm during doubt", rule: "§3.8 only the target settles it",
		file: "backend/remote/barrier.go", old: "if b.inherits { // only", new: "if false { // only",
		pkg: "./backend/remote", run: "^TestDoubtIsSettledByTheTarget$",
	}, {
		name: "a hang-up is not asked about", rule: "§6 bytes of a closed connection",
		file: "backend/remote/submit.go", old: "s.gone = s.gone || op.Sink.Gone()", new: "",
		pkg: "./backend/remote", run: "^TestConformance$",
	}, {
		name: "a connection that is alone again asks nobody", rule: "§6 hang-up check, model F7",
		file: "nbd/reply.go", old: "c.alone && c.exp.entered.Load() == c.number", new: "c.alone",
		pkg: "./nbd", run: "^TestGone$",
	}, {
		name: "a barrier is done by its Send", rule: "§4.6 by ack and Send",
		file: "persist/gpspm.go", old: "if !p.sent || !p.acked {", new: "if !p.sent {",
		pkg: model, run: crashes,
	}, {
		name: "a barrier is done by its ack", rule: "§4.6 by ack and Send: its memory is free then",
		file: "persist/gpspm.go", old: "if !p.sent || !p.acked {", new: "if !p.acked {",
		pkg: "./persist", run: "^TestBarrierNeedsAckAndSend$",
	},

	// Recovery.
	{
		name: "nothing is replayed", rule: "§6 replay",
		file: "backend/remote/lane.go", old: "l.ring.Covered(), l.ring.Head(); from != to {\n		l.queue", new: "l.ring.Covered(), l.ring.Head(); from != to && false {\n		l.queue",
		pkg: model, run: crashes, few: true,
	}, {
		name: "replay out of order", rule: "§6 through the same queue, in order",
		file: "backend/remote/lane.go",
		old:  "		l.queue.push(item{kind: itemWrites, from: from, to: to})\n", new: "		for to > from {\n			to--\n			l.queue.push(item{kind: itemWrites, from: to, to: to + 1})\n		}\n",
		pkg: model, run: crashes,
	}, {
		name: "a barrier that was cut off counts", rule: "§4.6 ranges of a failed barrier are dirty",
		file: "backend/remote/recover.go",
		old:  "		c.ops, c.remaining = nil, 0\n", new: "		for i, l := range d.lanes {\n			l.ring.Cover(c.to[i])\n		}\n		c.ops, c.remaining = nil, 0\n",
		pkg: model, run: crashes,
	}, {
		name: "an answer to a barrier that was cut off counts", rule: "§6 nothing that completes late counts, model R2",
		file: "backend/remote/barrier.go", old: "c == nil || c.seq != seq {", new: "c == nil {",
		pkg: "./backend/remote", run: "^TestCutBarrierDoesNotCount$", hangs: true,
	}, {
		name: "lost contents are gone on with", rule: "§6 contents id",
		file: "backend/remote/recover.go", old: "case g.ContentsID != old.ContentsID:", new: "case false:",
		pkg: model, run: crashes,
	}, {
		name: "a region that went back is gone on with", rule: "§6 epoch",
		file: "persist/target/grant.go", old: "case resume && m.Epoch > sb.Epoch:", new: "case false:",
		pkg: "./backend/remote", run: "^TestRowsOfFailure$",
	}, {
		name: "another region is gone on with", rule: "§6 UUID",
		file: "backend/remote/recover.go", old: "case g.UUID != old.UUID || ", new: "case ",
		pkg: "./backend/remote", run: "^TestRowsOfFailure$",
	},

	// Sessions, at the target.
	{
		name: "an ack before the flush", rule: "§3.3 gpspm",
		file: "persist/target/conn.go", old: "	if !e.r.MayBlock() {\n", new: "	if false {\n",
		pkg: model, run: crashes, few: true,
	}, {
		name: "zeroes under flush are not written back", rule: "§4.7 durable before the ack",
		file: "persist/target/conn.go", old: "if c.session.method != persist.MethodGPSPM {", new: "if c.session.method == persist.MethodAPM {",
		pkg: model, run: crashes,
	}, {
		name: "an ack in doubt", rule: "§3.8 barriers wait for it",
		file: "persist/target/conn.go", old: "(e.r.MayBlock() || e.syncer.doubt.Load())", new: "e.r.MayBlock()",
		pkg: model, run: crashes,
	}, {
		name: "a new owner inherits nothing", rule: "§3.8 doubt",
		file: "persist/target/grant.go", old: "			sb.Doubt = true //", new: "			//",
		pkg: model, run: crashes,
	}, {
		name: "RESUME clears doubt", rule: "§3.8 only a whole flush does",
		file: "persist/target/grant.go", old: "		sb.Epoch++\n", new: "		sb.Doubt = sb.Doubt && !resume\n		sb.Epoch++\n",
		pkg: model, run: crashes,
	}, {
		name: "a flush from before the grant clears doubt", rule: "§3.8, model F2",
		file: "persist/target/syncer.go", old: "			if again() {\n				return errAgain\n", new: "			if false {\n				return errAgain\n",
		pkg: "./persist/target", run: "^TestDoubtInTheBackground$", hangs: true,
	}, {
		name: "doubt is cleared without a flush", rule: "§3.8 of the whole extent",
		file: "persist/target/syncer.go", old: "off < y.e.r.Size() && !again()", new: "false && off < y.e.r.Size() && !again()",
		pkg: model, run: crashes,
	}, {
		name: "CLOSE clears doubt", rule: "§3.8 never CLOSE",
		file: "persist/target/grant.go", old: "sb.Clean = !sb.Doubt && !sb.Failed", new: "sb.Clean, sb.Doubt = true, false",
		pkg: "./persist/target", run: "^TestDoubtInTheBackground$", hangs: true,
	}, {
		name: "anybody resumes", rule: "§6 only the persisted owner: A is gone, B writes, A replays",
		file: "persist/target/grant.go", old: "case resume && (region.Owner(m.Owner) != sb.Owner || sb.Clean):", new: "case false:",
		pkg: "./backend/remote", run: "^TestRowsOfFailure$", few: true,
	}, {
		name: "any epoch opens", rule: "§5 OPEN, model F1",
		file: "persist/target/grant.go", old: "case m.Epoch == 0 || m.Epoch != sb.Epoch:", new: "case m.Epoch == 0:",
		pkg: "./persist/target", run: "^TestGrantEndsTheOldSession$",
	}, {
		name: "no grace after a start", rule: "§5 lease",
		file: "persist/target/grant.go", old: "since := e.started", new: "since := int64(-1) << 62",
		pkg: "./persist/target", run: "^TestLease$",
	}, {
		name: "the epoch is not persisted", rule: "§5 granting",
		file: "persist/target/grant.go", old: "		sb.Epoch++\n", new: "",
		pkg: model, run: crashes,
	}, {
		name: "the owner is not persisted", rule: "§5 granting",
		file: "persist/target/grant.go", old: "sb.Owner, sb.Clean = region.Owner(m.Owner), false", new: "sb.Clean = false",
		pkg: model, run: crashes,
	}, {
		name: "old queue pairs live on", rule: "§5 granting: destroy",
		file: "persist/target/grant.go", old: "		e.session.end(nil)\n", new: "",
		pkg: model, run: crashes,
	}, {
		name: "old lanes are not joined", rule: "§5 granting: a zero of the old session ends after the grant",
		file: "persist/target/session.go", old: "	for _, c := range lanes {\n		<-c.done\n	}\n", new: "",
		pkg: "./persist/target", run: "^TestGrantJoinsWhatTouchesTheRegion$",
	}, {
		name: "the key outlives CLOSE", rule: "§5 deregister",
		file: "persist/target/grant.go", old: "s.conn.domain.Deregister(s.mem); err != nil", new: "error(nil); err != nil",
		pkg: "./persist/target", run: "^TestSession$",
	}, {
		name: "credits are not counted", rule: "§5 credits",
		file: "persist/target/syncer.go", old: "if unanswered > credits {", new: "if false {",
		pkg: "./persist/target", run: "^TestCreditsAreKept$", hangs: true,
	},

	// Regions.
	{
		name: "a failed sync is swallowed", rule: "§3.5",
		file: "persist/region/sync.go", old: "	if err := r.sync(); err != nil {\n		return r.fail(err)\n	}\n	return nil\n}\n\n// sync is", new: "	_ = r.sync()\n	return nil\n}\n\n// sync is",
		pkg: "./persist/region", run: "Fail",
	}, {
		name: "a sync's error is consumed by another lane", rule: "§3.5 failed is set before the lock is released",
		file: "persist/region/sync.go", old: "	if err := r.sync(); err != nil {\n		return r.fail(err)\n	}\n	return nil\n}\n\n// sync is", new: "	return r.sync()\n}\n\n// sync is",
		pkg: "./persist/region", run: "Fail",
	}, {
		name: "failed is forgotten by a restart", rule: "§5 failed survives",
		file: "persist/region/region.go", old: "	if sb.Failed {\n", new: "	if false {\n",
		pkg: "./persist/region", run: "Fail",
	}, {
		name: "a rotten copy is believed", rule: "§5 superblock",
		file: "persist/region/copies.go", old: "return c.states[0] == CopyRotten || c.states[1] == CopyRotten", new: "return false",
		pkg: "./persist/region", run: "^TestRot$",
	}, {
		name: "the superblock's generation is there before its body", rule: "§5 each step durable before the next",
		file: "persist/region/copies.go", old: "	storeGeneration(generation, 0)\n", new: "	storeGeneration(generation, generationTag|sb.Generation)\n",
		pkg: model, run: crashes,
	}, {
		name: "a new boot in doubt keeps the contents id", rule: "§2 contents id, model F4",
		file: "persist/region/copies.go", old: "if m.class == persist.ClassVolatile || sb.Doubt {", new: "if m.class == persist.ClassVolatile {",
		pkg: "./persist/region", run: "^TestContentsID$",
	},
}
