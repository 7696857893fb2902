package mutants

// inheritance are mutants of what one run of an initiator leaves to the next.
var inheritance = []mutant{
	{
		name: "the window file does not keep the mark", rule: "the next run learns it",
		in:  "backend/remote.Device.noteMark",
		old: "h.Mark = max(h.Mark, mark)", new: "_ = max(h.Mark, mark)",
		pkg: "./backend/remote", run: "^TestRestoredBetweenRuns$",
	}, {
		name: "a drained window opens at any mark", rule: "a region restored from a copy is not served",
		in:  "backend/remote.situation.judge",
		old: "case r.Mark < h.Mark:", new: "case false:",
		also: []edit{{"backend/remote.header.granted", "case g.Mark < h.Mark:", "case false:"}},
		pkg:  "./backend/remote", run: "^TestRestoredAfterClose$",
	}, {
		name: "an initiator accepts a grant with an older mark", rule: "somebody can restore the region between the probe and OPEN",
		in:  "backend/remote.header.granted",
		old: "case g.Mark < h.Mark:", new: "case false:",
		pkg: "./backend/remote", run: "^TestGrantedWithAnOlderMark$",
	}, {
		name: "a copy that had another owner is served", rule: "a copy can come to the same epoch and mark",
		in:  "backend/remote.situation.judge",
		old: "r.Epoch == h.Epoch && r.Holder != s.id:", new: "false:",
		pkg: "./backend/remote", run: "^TestRestoredAndHadByAnother$",
	}, {
		name: "a RESUME that found a copy is tried again", rule: "a region restored from a copy is refused for good",
		in:  "backend/remote.leg.refusal",
		old: "r.Code == wire.CodeNotOwner || r.Code == wire.CodeRestored ||", new: "r.Code == wire.CodeNotOwner ||",
		pkg: "./backend/remote", run: "^TestRestoredInSession$", hangs: true,
	}, {
		name: "a window is adopted by the wrong export", rule: "§5 window files are named by id and region",
		in:  "backend/remote.openWindowFile",
		old: "loadWindowFile(windows, fileOf(id, region,", new: "loadWindowFile(windows, fileOf(id, id,",
		pkg: "./backend/remote", run: "^TestWindowsAreKeptApart$",
	}, {
		name: "a window is adopted by another initiator", rule: "§5 window files are named by id and region",
		in:  "backend/remote.openWindowFile",
		old: "loadWindowFile(windows, fileOf(id, region,", new: "loadWindowFile(windows, fileOf(region, region,",
		pkg: "./backend/remote", run: "^TestWindowsAreKeptApart$",
	}, {
		name: "a window of another boot is adopted", rule: "§4.2 the header has the boot id: on a disk a power loss leaves any mixture",
		in:  "backend/remote.situation.judge",
		old: "if h.Boot != s.boot {", new: "if false {",
		pkg: "./backend/remote", run: "^TestInheritance$",
	}, {
		name: "a window in use counts as drained", rule: "§6 the next pmnbd adopts it",
		in:  "backend/remote.situation.judge",
		old: "case h.State == windowLive && h.Opened != 0,", new: "case",
		pkg: "./backend/remote", run: "^TestAdoptedWindow$",
	}, {
		name: "an adopted window is released before its barrier", rule: "§6 replay, barrier, then the first client",
		in:  "backend/remote.replayer.run",
		old: "clean, err := r.flush()", new: "clean := true; var err error",
		also: []edit{{"backend/remote.leg.resume", "g.core.commit.start(true)", ""}},
		pkg:  "./backend/remote", run: "^TestAdoptedIsDurable$",
	}, {
		name: "a Shutdown that gives up calls the window drained", rule: "a Close that gives up leaves its window to the next run",
		in:  "backend/remote.Device.close",
		old: "err = d.leave(ctx, false)", new: "if d.file != nil { d.file.update(func(h *header) { h.State = windowDrained }) }; err = d.leave(ctx, false)",
		pkg: "./backend/remote", run: "^TestShutdownGivesUp$",
	}, {
		name: "clients overwrite payloads while Shutdown gives up", rule: "a Shutdown that gives up keeps the payloads of the window from clients",
		in:  "backend/remote.Device.leave",
		old: "if d.file != nil && !flushed {", new: "if false {",
		pkg: "./backend/remote", run: "^TestShutdownKeepsPayloadsFromClients$",
	}, {
		name: "a close unmaps memory that a client holds", rule: "memory that a client holds is not unmapped",
		in:  "backend/remote.Device.release",
		old: "if err != nil && d.file != nil && a == d.arenas.Write {", new: "if false {",
		pkg: "./backend/remote", run: "^TestClientBehindTheEnd$",
	}, {
		name: "a Shutdown that gives up hides a failure", rule: "a device that failed says so",
		in:  "backend/remote.Device.givenUp",
		old: "case errors.Is(flush, backend.ErrFailed):", new: "case false:",
		pkg: "./backend/remote", run: "^TestShutdownOfAFailedDevice$",
	}, {
		name: "the window file does not record a grant", rule: "§6 the header has owner and epoch",
		in:  "backend/remote.Device.noteGrant",
		old: "h.Opened, h.Epoch, h.Mark, h.Size", new: "_, h.Epoch, h.Mark, h.Size",
		pkg: "./backend/remote", run: "^TestAdoptedWindow$",
	}, {
		name: "the window file does not record a RESUME", rule: "§6 the header has owner and epoch",
		in:  "backend/remote.Device.noteSession",
		old: "d.file.update(func(h *header) { h.Epoch = o.Epoch })", new: "",
		pkg: "./backend/remote", run: "^TestInheritance$",
	}, {
		name: "a drained window opens in any epoch", rule: "§6 it opens only in the header's epoch, model F6",
		in:  "backend/remote.situation.judge",
		old: "case r.Epoch != h.Epoch:", new: "case false:",
		pkg: "./backend/remote", run: "^TestInheritance$",
	}, {
		name: "an initiator takes its own RESUME for another owner's", rule: "§6 a refusal means that somebody had the region",
		in:  "backend/remote.situation.judge",
		old: ", h.State == windowDrained && later && !s.adopted:", new: ":",
		pkg: "./backend/remote", run: "^TestInheritance$",
	}, {
		name: "an initiator takes another owner with its id for itself", rule: "§6 only the persisted owner resumes, id and nonce",
		in:  "backend/remote.situation.judge",
		old: "case r.Epoch != h.Epoch:", new: "case r.Epoch != h.Epoch && r.Holder != s.id:",
		also: []edit{{"backend/remote.situation.judge", ", h.State == windowDrained && later && !s.adopted:", ":"}},
		pkg:  "./backend/remote", run: "^TestInheritance$",
	}, {
		name: "a start that loses its connection ends", rule: "§6 a start that loses its connection tries again",
		in:  "backend/remote.leg.passes",
		old: "return g.opening.met && (errors", new: "return false && (errors",
		pkg: "./backend/remote", run: "^TestStartIsCut$",
	}, {
		name: "a start gives a busy host up", rule: "a connection that nobody refused is tried twice",
		in:  "backend/remote.leg.passes",
		old: "if n == 0 &&", new: "if false &&",
		pkg: "./backend/remote", run: "^TestStartOnABusyHost$",
	}, {
		name: "a start gives a barrier on a slow disk up", rule: "§5 a barrier's deadline counts time without progress",
		in:  "backend/remote.replayer.watch",
		old: "if at.waits {", new: "if at.waits && false {",
		pkg: "./backend/remote", run: "^TestStartWaitsForWhatMoves$",
	}, {
		name: "a replay that begins anew counts as progress", rule: "§6 replay: every wait has a bound",
		in:  "backend/remote.headway.stands",
		old: "w.furthest = max(w.furthest, sent-w.began)", new: "w.furthest = sent - w.began",
		pkg: "./backend/remote", run: "^TestReplayStands$",
	}, {
		name: "an initiator takes its own grant for another owner's", rule: "§5 RESUME tells whose it is",
		in:  "backend/remote.leg.handshake",
		old: "if g.opening.asked && heldSince(", new: "if false && heldSince(",
		pkg: "./backend/remote", run: "^TestStartIsCut$",
	}, {
		name: "an initiator takes an unrecorded grant for its own", rule: "§6 only the persisted owner resumes, id and nonce",
		in:  "backend/remote.situation.judge",
		old: "s.resumed == answerGranted:", new: "s.resumed != answerNone:",
		pkg: "./backend/remote", run: "^TestInheritance$",
	}, {
		name: "a region that was replaced between two runs is served", rule: "§6 no acknowledged write is lost silently",
		in:  "backend/remote.decideName",
		old: "n.lost = was.window.lost(changed, s.boot)", new: "_ = changed",
		pkg: "./backend/remote", run: "^TestAnotherRegionBetweenRuns$",
	}, {
		name: "a record of another boot counts", rule: "§6 a reboot loses windows",
		in:  "backend/remote.decideName",
		old: "case was.is.boot != s.boot:", new: "case false:",
		also: []edit{
			{"backend/remote.Device.previousName", "was.is.boot != s.boot ||", ""},
			{"backend/remote.oldWindow.lost", "case h.State == 0, h.Boot != boot,", "case h.State == 0,"},
		},
		pkg: "./backend/remote", run: "^TestAnotherRegionBetweenRuns$",
	}, {
		name: "a refused start leaves its window file", rule: "§7 what a peer can create is bounded",
		in:  "backend/remote.Device.undoStart",
		old: "case h.State == 0, h.unused() && !maybe:", new: "case false:",
		pkg: "./backend/remote", run: "^TestRefusedStartsLeaveNothing$",
	}, {
		name: "an OPEN that the target may have granted is forgotten", rule: "§6 no window file, but the target names our id",
		in:  "backend/remote.Device.undoStart",
		old: "h.unused() && !maybe:", new: "h.unused():",
		pkg: "./backend/remote", run: "^TestUnansweredOpenKeepsItsHeader$",
	}, {
		name: "a start whose owner the target could not register forgets it", rule: "§5 the owner is persisted before the region is registered",
		in:  "backend/remote.leg.handshake",
		old: "(t != wire.TypeRefused || heldInVain(&refused, g.owner.ID, msg.Epoch))", new: "(t != wire.TypeRefused)",
		pkg: "./backend/remote", run: "^TestHeldInVain$",
	}, {
		name: "a member that its target cannot register is taken for that of a later life", rule: "§5 the owner is persisted before the region is registered",
		in:  "backend/remote.leg.handshake",
		old: "if late.Code != wire.CodeNotOwner { return opened, &RefusedError{Region: g.cfg.Region, said: late} } }\n if refused.Code != wire.CodeEpoch {", new: "}\n if refused.Code != wire.CodeEpoch {",
		pkg: "./backend/remote", run: "^TestMemberHeldInVain$",
	}, {
		name: "a target does not tell that the owner it refuses has the region", rule: "§5 the owner is persisted before the region is registered",
		in:  "persist/target.conn.open",
		old: "said := e.refusal(&sb)", new: "said := &wire.Refused{}",
		pkg: "./backend/remote", run: "^TestHeldInVain$",
	}, {
		name: "a window lies where another user can take it away", rule: "§6 no acknowledged write is lost silently",
		in:  "backend/remote.openDirectory",
		old: `st.Mode&0o022 != 0: err = fmt.Errorf("others may write to directory %s, and could take its files away: chmod go-w it once you know that what is in it is yours"`,
		new: `false: err = fmt.Errorf("others may write to directory %s, and could take its files away: chmod go-w it once you know that what is in it is yours"`,
		pkg: "./backend/remote", run: "^TestDirectory$",
	}, {
		name: "a window directory is a link", rule: "§6 no acknowledged write is lost silently",
		in:  "backend/remote.openDirectory",
		old: "unix.O_DIRECTORY|unix.O_NOFOLLOW|", new: "unix.O_DIRECTORY|",
		pkg: "./backend/remote", run: "^TestDirectory$",
	}, {
		name: "a window is replayed into lost contents", rule: "§2 contents id",
		in:  "backend/remote.header.granted",
		old: "h.ContentsID != [16]byte{} && h.ContentsID != g.ContentsID",
		new: "h.ContentsID == [16]byte{} && h.ContentsID == g.ContentsID",
		pkg: "./backend/remote", run: "^TestInheritance$",
	}, {
		name: "two writers of a process write one draft", rule: "the file of the initiator's id is never half there",
		in:  "backend/remote.directory.Write",
		old: "drafts.Lock() defer drafts.Unlock()", new: "",
		pkg: "./backend/remote", run: "^TestFirstWriterWins$",
	}, {
		name: "the window of a living process is adopted", rule: "§5 a local lock per id and region",
		in:  "backend/remote.directory.lock",
		old: "if err := lock(f); err != nil {", new: "if err := lock(f); err != nil && false {",
		pkg: "./backend/remote", run: "^TestWindowOfTheLiving$",
	}, {
		name: "the next run adopts a failed window", rule: "§6 a failure outlives its process",
		in:  "backend/remote.situation.judge",
		old: "case h.State == windowFailed:", new: "case false:",
		pkg: "./backend/remote", run: "^TestInheritance$",
	}, {
		name: "the window file does not record a failure", rule: "§6 a failure outlives its process",
		in:  "backend/remote.Device.fail",
		old: "d.file.fail(cause)", new: "",
		pkg: "./backend/remote", run: "^TestInheritance$",
	}, {
		name: "nobody misses a lost window", rule: "§6 no window file, but the target names our id",
		in:  "backend/remote.situation.withoutWindow",
		old: "case s.refused.Holder != s.id || s.refused.Flags&wire.OpenedUnclean == 0:", new: "case true:",
		pkg: "./backend/remote", run: "^TestInheritance$",
	}, {
		name: "nobody misses a lost window once another had the region", rule: "§6 no window file, and another owner since",
		in:  "backend/remote.situation.withoutWindow",
		old: "s.hadBoot == s.boot", new: "false",
		pkg: "./backend/remote", run: "^TestInheritance$",
	}, {
		name: "clients on other hosts are ignored when there is no window", rule: "§6 no client can have survived",
		in:  "backend/remote.situation.withoutWindow",
		old: "s.localClients &&", new: "",
		pkg: "./backend/remote", run: "^TestInheritance$",
	}, {
		name: "a copied state directory takes the region from a living owner", rule: "§6 no window of the last session: the lease runs out first",
		in:  "backend/remote.situation.withoutWindow",
		old: "if s.heard() && !s.takeover {", new: "if false {",
		pkg: "./backend/remote", run: "^TestOwnIDElsewhere$",
	}, {
		name: "an accepted loss takes the region from a living owner", rule: "§6 no window of the last session: the lease runs out first",
		in:  "backend/remote.decide",
		old: "case s.heard() && !s.takeover:", new: "case false:",
		pkg: "./backend/remote", run: "^TestOwnIDElsewhere$",
	}, {
		name: "the own id does not learn that its lease runs", rule: "§5 another host may have the same id",
		in:  "persist/target.export.check",
		old: "(e.lease(&sb, s) + time.Second - 1)", new: "(leased + time.Second - 1)",
		pkg: "./persist/target", run: "^TestLease$",
	}, {
		name: "a half-written header counts", rule: "§6 a process can be killed while it writes",
		in:  "backend/remote.decodeHeader",
		old: "|| binary.LittleEndian.Uint32(b[16:]) != headerCRC(generation, body)", new: "",
		pkg: "./backend/remote", run: "^TestHeaderCrash$",
	}, {
		name: "a damaged header counts as no window", rule: "§6 no acknowledged write is lost silently",
		in:  "backend/remote.windowFile.load",
		old: "w.h.State = windowDamaged", new: "",
		pkg: "./backend/remote", run: "^TestInheritance$",
	}, {
		name: "another release's window counts as damaged", rule: "compatibility.md: it says what to do",
		in:  "backend/remote.windowFile.load",
		old: "w.h.State = windowForeign", new: "",
		pkg: "./backend/remote", run: "^TestForeignWindow$",
	}, {
		name: "a loss is reported only when the region is free", rule: "§6 a refused RESUME is final",
		in:  "backend/remote.situation.judge",
		old: "case h.State == windowLive && h.Opened != 0,", new: "case r.Code != wire.CodeBusy && h.State == windowLive && h.Opened != 0,",
		pkg: "./backend/remote", run: "^TestRegionIsHeldByAnother$",
	}, {
		name: "a busy region makes a clean end a loss", rule: "§6 exit 1, to be tried again",
		in:  "backend/remote.situation.judge",
		old: "case r.Code == wire.CodeBusy:", new: "case false:",
		pkg: "./backend/remote", run: "^TestRegionIsHeldByAnother$",
	}, {
		name: "a drained window is adopted for ever", rule: "§6 one RESUME tells whose it is",
		in:  "backend/remote.situation.judge",
		old: "later && !s.adopted:", new: "later:",
		pkg: "./backend/remote", run: "^TestDecide$",
	}, {
		name: "an accepted loss opens in the epoch before its RESUME", rule: "§6 a RESUME raises the epoch",
		in:  "backend/remote.decide",
		old: "case !s.looked:", new: "case false:",
		pkg: "./backend/remote", run: "^TestDecisions$",
	}, {
		name: "entries of a damaged index count", rule: "§6 a window is checked before it is adopted",
		in:  "backend.Window.Adopt",
		old: "!w.sound(e, size) ||", new: "",
		pkg: "./backend", run: "^TestAdoptDamaged$",
	}, {
		name: "a damaged index counts", rule: "§6 a window is checked before it is adopted",
		in:  "backend.Window.Adopt",
		old: "from > to || n > uint64(len(r.entries)) || !w.", new: "!w.",
		pkg: "./backend", run: "^TestAdoptDamaged$",
	}, {
		name: "numbers begin again in an adopted window", rule: "§4.2 a replay goes by number",
		in:  "backend.Window.Adopt",
		old: "w.number.Store(number)", new: "",
		pkg: "./backend", run: "^TestAdopt$",
	}, {
		name: "chunks of an adopted window are handed out", rule: "§4.2 only spans behind the mark are free",
		in:  "backend.Window.Adopt",
		old: "w.arena.claim(c)", new: "",
		pkg: "./backend", run: "^TestAdopt$",
	}, {
		name: "clients that stayed do not learn of an accepted loss", rule: "§6 --accept-loss ends the lineage",
		in:  "backend/remote.decide",
		old: "return decision{act: actOpen, lost: d.lost,", new: "return decision{act: actOpen, from: s.header, lost: d.lost,",
		pkg: "./backend/remote", run: "^TestInheritance$",
	}, {
		name: "--accept-loss discards a window that can be adopted", rule: "§6 a window that can be adopted always is",
		in:  "backend/remote.decide",
		old: "if d.lost == nil {", new: "if d.lost == nil && !s.acceptLoss {",
		pkg: "./backend/remote", run: "^TestInheritance$",
	},
}
