package mutants

// inheritance is of what a run of an initiator leaves to the next.
var inheritance = []mutant{
	{
		name: "the window file does not know the mark", rule: "the next run knows it",
		in:  "backend/remote.Device.marked",
		old: "h.Mark = max(h.Mark, mark)", new: "_ = max(h.Mark, mark)",
		pkg: "./backend/remote", run: "^TestRestoredBetweenRuns$",
	}, {
		name: "a drained window takes any mark", rule: "a region restored from a copy is not served",
		in:  "backend/remote.Device.left",
		old: "case refused.Mark < h.Mark:", new: "case false:",
		also: []edit{{"backend/remote.Device.opened", "case g.Mark < left.Mark:", "case false:"}},
		pkg:  "./backend/remote", run: "^TestRestoredAfterClose$",
	}, {
		name: "a grant with an older mark is taken", rule: "a region can be put back between the probe and OPEN",
		in:  "backend/remote.Device.opened",
		old: "case g.Mark < left.Mark:", new: "case false:",
		pkg: "./backend/remote", run: "^TestGrantedWithAnOlderMark$",
	}, {
		name: "a copy may have had another owner", rule: "it can come to the same epoch and mark",
		in:  "backend/remote.Device.left",
		old: "refused.Epoch == h.Epoch && refused.Holder != d.cfg.ID:", new: "false:",
		pkg: "./backend/remote", run: "^TestRestoredAndHadByAnother$",
	}, {
		name: "a RESUME that finds a copy is tried again", rule: "a region restored from a copy is refused for good",
		in:  "backend/remote.Device.refusal",
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
		in:  "backend/remote.Device.left",
		old: "if h.Boot != boot {", new: "if false {",
		pkg: "./backend/remote", run: "^TestInheritance$",
	}, {
		name: "a live window is taken for a drained one", rule: "§6 the next pmnbd adopts it",
		in:  "backend/remote.Device.left",
		old: "if h.State == windowLive &&", new: "if false &&",
		pkg: "./backend/remote", run: "^TestAdoptedWindow$",
	}, {
		name: "an adopted window is given back unflushed", rule: "§6 replay, barrier, then the first reply",
		in:   "backend/remote.Device.adopt",
		old:  "err = a.Close()",
		new:  "a.file.update(func(h *header) { h.State = windowDrained }); err = errors.Join(a.leave(true), a.release())",
		also: []edit{{"backend/remote.Device.resume", "d.core.commit.start(true)", ""}},
		pkg:  "./backend/remote", run: "^TestAdoptedIsDurable$",
	}, {
		name: "what is granted is not noted", rule: "§6 the header holds owner and epoch",
		in:  "backend/remote.Device.opened",
		old: "h.Opened, h.Epoch, h.Mark, h.Size", new: "_, h.Epoch, h.Mark, h.Size",
		pkg: "./backend/remote", run: "^TestAdoptedWindow$",
	}, {
		name: "what is resumed is not noted", rule: "§6 the header holds owner and epoch",
		in:  "backend/remote.Device.revive",
		old: "d.file.update(func(h *header) { h.Epoch = g.Epoch })", new: "",
		pkg: "./backend/remote", run: "^TestInheritance$",
	}, {
		name: "a drained window opens in any epoch", rule: "§6 in the header's epoch, model F6",
		in:  "backend/remote.Device.left",
		old: "case refused.Epoch != h.Epoch:", new: "case false:",
		pkg: "./backend/remote", run: "^TestInheritance$",
	}, {
		name: "its own RESUME is somebody else's", rule: "§6 a refusal means that somebody had the region",
		in:  "backend/remote.Device.left",
		old: "h.State == windowDrained && d.holds(refused, h.Epoch)", new: "false",
		pkg: "./backend/remote", run: "^TestInheritance$",
	}, {
		name: "somebody else of its id is itself", rule: "§6 only the persisted owner resumes, id and nonce",
		in:  "backend/remote.Device.left",
		old: "case refused.Epoch != h.Epoch:", new: "case refused.Epoch != h.Epoch && refused.Holder != d.cfg.ID:",
		also: []edit{{"backend/remote.Device.left", "h.State == windowDrained && d.holds(refused, h.Epoch)", "false"}},
		pkg:  "./backend/remote", run: "^TestInheritance$",
	}, {
		name: "a start ends with its connection", rule: "§6 a lost connection is asked again",
		in:  "backend/remote.Device.passes",
		old: "return d.met && (errors", new: "return false && (errors",
		pkg: "./backend/remote", run: "^TestStartIsCut$",
	}, {
		name: "a start gives up a barrier on a slow disk", rule: "§5 a barrier's deadline counts time without progress",
		in:  "backend/remote.Device.watchReplay",
		old: "if atTarget {", new: "if atTarget && false {",
		pkg: "./backend/remote", run: "^TestStartWaitsForWhatMoves$",
	}, {
		name: "a replay that begins anew comes further", rule: "§6 replay: every wait has a bound",
		in:  "backend/remote.replaying.stands",
		old: "r.furthest = max(r.furthest, sent-r.began)", new: "r.furthest = sent - r.began",
		pkg: "./backend/remote", run: "^TestReplayStands$",
	}, {
		name: "an OPEN that was granted is somebody else's", rule: "§5 RESUME tells whose",
		in:  "backend/remote.Device.handshake",
		old: "if d.asked && d.holds(", new: "if false && d.holds(",
		pkg: "./backend/remote", run: "^TestStartIsCut$",
	}, {
		name: "a grant that was not noted is this initiator's", rule: "§6 only the persisted owner resumes, id and nonce",
		in:  "backend/remote.Device.left",
		old: "if !granted {", new: "if !granted && false {",
		pkg: "./backend/remote", run: "^TestInheritance$",
	}, {
		name: "another region between runs is served silently", rule: "§6 what was acknowledged is not forgotten unseen",
		in:  "backend/remote.Device.leads",
		old: "err = d.unread(windows, was.region, boot, refused)", new: "",
		pkg: "./backend/remote", run: "^TestAnotherRegionBetweenRuns$",
	}, {
		name: "a record of another boot is believed", rule: "§6 a reboot takes windows",
		in:  "backend/remote.Device.leads",
		old: "case was.boot == boot:", new: "case true:",
		also: []edit{{"backend/remote.Device.unread", "case h.State == 0, h.Boot != boot,", "case h.State == 0,"}},
		pkg:  "./backend/remote", run: "^TestAnotherRegionBetweenRuns$",
	}, {
		name: "a refused start leaves its window", rule: "§7 bound what a peer can make",
		in:  "backend/remote.Device.forget",
		old: "case h.State == 0, h.unused() && !granted:", new: "case false:",
		pkg: "./backend/remote", run: "^TestRefusedStartsLeaveNothing$",
	}, {
		name: "an OPEN that may be granted is forgotten", rule: "§6 no file while the target names our id",
		in:  "backend/remote.Device.forget",
		old: "h.unused() && !granted:", new: "h.unused():",
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
		in:  "backend/remote.Device.opened",
		old: "left.ContentsID != ([16]byte{}) && left.ContentsID != g.ContentsID",
		new: "left.ContentsID == ([16]byte{}) && left.ContentsID == g.ContentsID",
		pkg: "./backend/remote", run: "^TestInheritance$",
	}, {
		name: "the window of a living process is adopted", rule: "§5 a local lock per id and region",
		in:  "backend/remote.Directory.lock",
		old: "if err := lock(f); err != nil {", new: "if err := lock(f); err != nil && false {",
		pkg: "./backend/remote", run: "^TestWindowOfTheLiving$",
	}, {
		name: "a failed window is gone on with", rule: "§6 the next pmnbd starts failed",
		in:  "backend/remote.Device.left",
		old: "case h.State == windowFailed:", new: "case false:",
		pkg: "./backend/remote", run: "^TestInheritance$",
	}, {
		name: "a failure is not noted in the window", rule: "§6 the next pmnbd starts failed",
		in:  "backend/remote.Device.fail",
		old: "d.file.fail(cause)", new: "",
		pkg: "./backend/remote", run: "^TestInheritance$",
	}, {
		name: "a lost window is not missed", rule: "§6 no file while the target names our id",
		in:  "backend/remote.Device.forgotten",
		old: "if refused.Holder != d.cfg.ID || refused.Flags&wire.OpenedUnclean == 0 {", new: "if true {",
		pkg: "./backend/remote", run: "^TestInheritance$",
	}, {
		name: "clients on other hosts are forgotten", rule: "§6 no client can have survived",
		in:  "backend/remote.Device.forgotten",
		old: "d.cfg.LocalClients &&", new: "",
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
		in:  "backend/remote.Device.left",
		old: "if h.State == windowLive &&", new: "if refused.Code != wire.CodeBusy && h.State == windowLive &&",
		pkg: "./backend/remote", run: "^TestRegionIsHeldByAnother$",
	}, {
		name: "a clean end is lost to who holds the region", rule: "§6 exit 1, and again",
		in:  "backend/remote.Device.left",
		old: "case refused.Code == wire.CodeBusy:", new: "case false:",
		pkg: "./backend/remote", run: "^TestRegionIsHeldByAnother$",
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
		in:  "backend/remote.Device.inherit",
		old: "h = header{}; refused, err = d.probe(ctx)", new: "refused, err = d.probe(ctx)",
		pkg: "./backend/remote", run: "^TestInheritance$",
	}, {
		name: "a loss is accepted that is none", rule: "§6 until --accept-loss: who need not lose adopts",
		in:  "backend/remote.Device.inherit",
		old: "if errors.As(err, &lost) && d.cfg.AcceptLoss {", new: "if lost = new(LossError); d.cfg.AcceptLoss {",
		pkg: "./backend/remote", run: "^TestInheritance$",
	},
}
