package mutants

// inheritance is of what a run of an initiator leaves to the next.
var inheritance = []mutant{
	{
		name: "the window file does not know the mark", rule: "the next run knows it",
		in:  "backend/remote.Device.noteMark",
		old: "h.Mark = max(h.Mark, mark)", new: "_ = max(h.Mark, mark)",
		pkg: "./backend/remote", run: "^TestRestoredBetweenRuns$",
	}, {
		name: "a drained window takes any mark", rule: "a region restored from a copy is not served",
		in:  "backend/remote.situation.judge",
		old: "case r.Mark < h.Mark:", new: "case false:",
		also: []edit{{"backend/remote.header.granted", "case g.Mark < h.Mark:", "case false:"}},
		pkg:  "./backend/remote", run: "^TestRestoredAfterClose$",
	}, {
		name: "a grant with an older mark is taken", rule: "a region can be put back between the probe and OPEN",
		in:  "backend/remote.header.granted",
		old: "case g.Mark < h.Mark:", new: "case false:",
		pkg: "./backend/remote", run: "^TestGrantedWithAnOlderMark$",
	}, {
		name: "a copy may have had another owner", rule: "it can come to the same epoch and mark",
		in:  "backend/remote.situation.judge",
		old: "r.Epoch == h.Epoch && r.Holder != s.id:", new: "false:",
		pkg: "./backend/remote", run: "^TestRestoredAndHadByAnother$",
	}, {
		name: "a RESUME that finds a copy is tried again", rule: "a region restored from a copy is refused for good",
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
		name: "a window of another boot is adopted", rule: "§4.2 the header holds the boot id: on a disk the power leaves any mixture",
		in:  "backend/remote.situation.judge",
		old: "if h.Boot != s.boot {", new: "if false {",
		pkg: "./backend/remote", run: "^TestInheritance$",
	}, {
		name: "a live window is taken for a drained one", rule: "§6 the next pmnbd adopts it",
		in:  "backend/remote.situation.judge",
		old: "case h.State == windowLive && h.Opened != 0,", new: "case",
		pkg: "./backend/remote", run: "^TestAdoptedWindow$",
	}, {
		name: "an adopted window is given back unflushed", rule: "§6 replay, barrier, then the first reply",
		in:  "backend/remote.replayer.run",
		old: "err := <-r.core.flush()", new: "var err error",
		also: []edit{{"backend/remote.leg.resume", "g.core.commit.start(true)", ""}},
		pkg:  "./backend/remote", run: "^TestAdoptedIsDurable$",
	}, {
		name: "what is granted is not noted", rule: "§6 the header holds owner and epoch",
		in:  "backend/remote.Device.noteGrant",
		old: "h.Opened, h.Epoch, h.Mark, h.Size", new: "_, h.Epoch, h.Mark, h.Size",
		pkg: "./backend/remote", run: "^TestAdoptedWindow$",
	}, {
		name: "what is resumed is not noted", rule: "§6 the header holds owner and epoch",
		in:  "backend/remote.Device.noteEpoch",
		old: "d.file.update(func(h *header) { h.Epoch = epoch })", new: "",
		pkg: "./backend/remote", run: "^TestInheritance$",
	}, {
		name: "a drained window opens in any epoch", rule: "§6 in the header's epoch, model F6",
		in:  "backend/remote.situation.judge",
		old: "case r.Epoch != h.Epoch:", new: "case false:",
		pkg: "./backend/remote", run: "^TestInheritance$",
	}, {
		name: "its own RESUME is somebody else's", rule: "§6 a refusal means that somebody had the region",
		in:  "backend/remote.situation.judge",
		old: ", h.State == windowDrained && later && !s.adopted:", new: ":",
		pkg: "./backend/remote", run: "^TestInheritance$",
	}, {
		name: "somebody else of its id is itself", rule: "§6 only the persisted owner resumes, id and nonce",
		in:  "backend/remote.situation.judge",
		old: "case r.Epoch != h.Epoch:", new: "case r.Epoch != h.Epoch && r.Holder != s.id:",
		also: []edit{{"backend/remote.situation.judge", ", h.State == windowDrained && later && !s.adopted:", ":"}},
		pkg:  "./backend/remote", run: "^TestInheritance$",
	}, {
		name: "a start ends with its connection", rule: "§6 a lost connection is asked again",
		in:  "backend/remote.leg.passes",
		old: "return g.opening.met && (errors", new: "return false && (errors",
		pkg: "./backend/remote", run: "^TestStartIsCut$",
	}, {
		name: "a start gives up a barrier on a slow disk", rule: "§5 a barrier's deadline counts time without progress",
		in:  "backend/remote.replayer.watch",
		old: "if atTarget {", new: "if atTarget && false {",
		pkg: "./backend/remote", run: "^TestStartWaitsForWhatMoves$",
	}, {
		name: "a replay that begins anew comes further", rule: "§6 replay: every wait has a bound",
		in:  "backend/remote.headway.stands",
		old: "w.furthest = max(w.furthest, sent-w.began)", new: "w.furthest = sent - w.began",
		pkg: "./backend/remote", run: "^TestReplayStands$",
	}, {
		name: "an OPEN that was granted is somebody else's", rule: "§5 RESUME tells whose",
		in:  "backend/remote.leg.handshake",
		old: "if g.opening.asked && heldSince(", new: "if false && heldSince(",
		pkg: "./backend/remote", run: "^TestStartIsCut$",
	}, {
		name: "a grant that was not noted is this initiator's", rule: "§6 only the persisted owner resumes, id and nonce",
		in:  "backend/remote.situation.judge",
		old: "s.resumed == answerGranted:", new: "s.resumed != answerNone:",
		pkg: "./backend/remote", run: "^TestInheritance$",
	}, {
		name: "another region between runs is served silently", rule: "§6 what was acknowledged is not forgotten unseen",
		in:  "backend/remote.decideName",
		old: "n.lost = was.window.lost(changed, s.boot)", new: "_ = changed",
		pkg: "./backend/remote", run: "^TestAnotherRegionBetweenRuns$",
	}, {
		name: "a record of another boot is believed", rule: "§6 a reboot takes windows",
		in:  "backend/remote.decideName",
		old: "case was.is.boot != s.boot:", new: "case false:",
		also: []edit{
			{"backend/remote.Device.previousName", "was.is.boot != s.boot ||", ""},
			{"backend/remote.oldWindow.lost", "case h.State == 0, h.Boot != boot,", "case h.State == 0,"},
		},
		pkg: "./backend/remote", run: "^TestAnotherRegionBetweenRuns$",
	}, {
		name: "a refused start leaves its window", rule: "§7 bound what a peer can make",
		in:  "backend/remote.Device.undoStart",
		old: "case h.State == 0, h.unused() && !maybe:", new: "case false:",
		pkg: "./backend/remote", run: "^TestRefusedStartsLeaveNothing$",
	}, {
		name: "an OPEN that may be granted is forgotten", rule: "§6 no file while the target names our id",
		in:  "backend/remote.Device.undoStart",
		old: "h.unused() && !maybe:", new: "h.unused():",
		pkg: "./backend/remote", run: "^TestUnansweredOpenKeepsItsHeader$",
	}, {
		name: "a window lies where somebody else can take it", rule: "§6 what was acknowledged is not forgotten unseen",
		in:  "backend/remote.OpenDirectory",
		old: `st.Mode&0o022 != 0: err = fmt.Errorf("others may write to directory %s, and could take its files away: chmod go-w it once you know that what is in it is yours"`,
		new: `false: err = fmt.Errorf("others may write to directory %s, and could take its files away: chmod go-w it once you know that what is in it is yours"`,
		pkg: "./backend/remote", run: "^TestDirectory$",
	}, {
		name: "a window directory may be a link", rule: "§6 what was acknowledged is not forgotten unseen",
		in:  "backend/remote.OpenDirectory",
		old: "unix.O_DIRECTORY|unix.O_NOFOLLOW|", new: "unix.O_DIRECTORY|",
		pkg: "./backend/remote", run: "^TestDirectory$",
	}, {
		name: "contents that were lost go on", rule: "§2 contents id",
		in:  "backend/remote.header.granted",
		old: "h.ContentsID != [16]byte{} && h.ContentsID != g.ContentsID",
		new: "h.ContentsID == [16]byte{} && h.ContentsID == g.ContentsID",
		pkg: "./backend/remote", run: "^TestInheritance$",
	}, {
		name: "the window of a living process is adopted", rule: "§5 a local lock per id and region",
		in:  "backend/remote.Directory.lock",
		old: "if err := lock(f); err != nil {", new: "if err := lock(f); err != nil && false {",
		pkg: "./backend/remote", run: "^TestWindowOfTheLiving$",
	}, {
		name: "a failed window is gone on with", rule: "§6 the next pmnbd starts failed",
		in:  "backend/remote.situation.judge",
		old: "case h.State == windowFailed:", new: "case false:",
		pkg: "./backend/remote", run: "^TestInheritance$",
	}, {
		name: "a failure is not noted in the window", rule: "§6 the next pmnbd starts failed",
		in:  "backend/remote.Device.fail",
		old: "d.file.fail(cause)", new: "",
		pkg: "./backend/remote", run: "^TestInheritance$",
	}, {
		name: "a lost window is not missed", rule: "§6 no file while the target names our id",
		in:  "backend/remote.situation.withoutWindow",
		old: "case s.refused.Holder != s.id || s.refused.Flags&wire.OpenedUnclean == 0:", new: "case true:",
		pkg: "./backend/remote", run: "^TestInheritance$",
	}, {
		name: "clients on other hosts are forgotten", rule: "§6 no client can have survived",
		in:  "backend/remote.situation.withoutWindow",
		old: "s.localClients &&", new: "",
		pkg: "./backend/remote", run: "^TestInheritance$",
	}, {
		name: "a header that is being written is believed", rule: "§6 a process can be killed in the middle",
		in:  "backend/remote.decodeHeader",
		old: "|| binary.LittleEndian.Uint32(b[16:]) != headerCRC(generation, body)", new: "",
		pkg: "./backend/remote", run: "^TestHeaderCrash$",
	}, {
		name: "a damaged header is none", rule: "§6 what was acknowledged is not forgotten unseen",
		in:  "backend/remote.windowFile.load",
		old: "w.h.State = windowDamaged", new: "",
		pkg: "./backend/remote", run: "^TestInheritance$",
	}, {
		name: "a loss waits until the region is free", rule: "§6 RESUME refused: for good",
		in:  "backend/remote.situation.judge",
		old: "case h.State == windowLive && h.Opened != 0,", new: "case r.Code != wire.CodeBusy && h.State == windowLive && h.Opened != 0,",
		pkg: "./backend/remote", run: "^TestRegionIsHeldByAnother$",
	}, {
		name: "a clean end is lost to who holds the region", rule: "§6 exit 1, and again",
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
		name: "entries of a damaged index are believed", rule: "§6 what is adopted is checked",
		in:  "backend.Window.Adopt",
		old: "!w.sound(e, size) ||", new: "",
		pkg: "./backend", run: "^TestAdoptDamaged$",
	}, {
		name: "a damaged index is believed", rule: "§6 what is adopted is checked",
		in:  "backend.Window.Adopt",
		old: "from > to || n > uint64(len(r.entries)) || !w.", new: "!w.",
		pkg: "./backend", run: "^TestAdoptDamaged$",
	}, {
		name: "numbers begin again in an adopted window", rule: "§4.2 replay goes by number",
		in:  "backend.Window.Adopt",
		old: "w.number.Store(number)", new: "",
		pkg: "./backend", run: "^TestAdopt$",
	}, {
		name: "chunks of an adopted window are given out", rule: "§4.2 spans are free behind the mark alone",
		in:  "backend.Window.Adopt",
		old: "w.arena.claim(c)", new: "",
		pkg: "./backend", run: "^TestAdopt$",
	}, {
		name: "an accepted loss is hidden from who stayed", rule: "§6 --accept-loss ends the lineage",
		in:  "backend/remote.decide",
		old: "return decision{act: actOpen, lost: d.lost,", new: "return decision{act: actOpen, from: s.header, lost: d.lost,",
		pkg: "./backend/remote", run: "^TestInheritance$",
	}, {
		name: "a loss is accepted that is none", rule: "§6 until --accept-loss: who need not lose adopts",
		in:  "backend/remote.decide",
		old: "if d.lost == nil {", new: "if d.lost == nil && !s.acceptLoss {",
		pkg: "./backend/remote", run: "^TestInheritance$",
	},
}
