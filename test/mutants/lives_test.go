package mutants

// lives are mutants of what a killed run of a mirror leaves to the next.
var lives = []mutant{
	{
		name: "start that cannot be given up", rule: "§6 a start that has begun no generation yet ends alone when it is given up",
		in:  "backend/remote.phaseAfter",
		old: "eventLeave: phaseDeparting, eventEnd: phaseFailed},\n\tphaseOpen:", new: "},\n\tphaseOpen:",
		pkg: "./backend/remote", run: "^TestStartOfAMirrorEndsBeforeItServes$",
	}, {
		name: "start that fails leaves a failed window", rule: "§6 nothing that anybody was told is lost",
		in:  "backend/remote.Device.fail",
		old: "(len(d.cfg.Members) == 0 || d.served.Load())", new: "true",
		pkg: "./backend/remote", run: "^TestStartOfAMirrorFailsBeforeItServes$",
	}, {
		name: "start that opens nothing removes the window of one that did", rule: "§6 nothing that anybody was told is lost",
		in:  "backend/remote.Device.startFailed",
		old: "return failed, d.behind ||", new: "return failed,",
		pkg: "./backend/remote", run: "^TestStartsOfAMirrorInVain$",
	}, {
		name: "start of a region does the same", rule: "§6 nothing that anybody was told is lost",
		in:  "backend/remote.Device.startFailed",
		old: "d.behind || d.legs[0]", new: "d.legs[0]",
		pkg: "./backend/remote", run: "^TestStartsInVain$",
	}, {
		name: "start keeps a window in vain although another initiator had the region", rule: "§6 nothing that anybody was told is lost",
		in:  "backend/remote.Device.inherit",
		old: "s.unserved() && !over", new: "s.unserved() && (!over || true)",
		pkg: "./backend/remote", run: "^TestStartInVainBesideAnother$",
	}, {
		name: "a generation is begun before the header names it", rule: "mirror §3.3 named in the window's header before it is written to a leg",
		in:  "backend/remote.copies.changeLocked",
		old: "k.note(next)", new: "",
		pkg: "./backend/remote", run: "^TestMirrorKilledInAChange$",
	}, {
		name: "a life begins before the header names it", rule: "mirror §3.3 named in the window's header before it is written to a leg",
		in:  "backend/remote.beginning.serve",
		old: "d.noteLife(b.owner, k.view, sessions)", new: "_ = sessions",
		pkg: "./backend/remote", run: "^TestMirrorGoesOn$",
	}, {
		name: "a killed life forgets which legs are equal", rule: "mirror §4.5 a life that goes on after a kill keeps its equal legs",
		in:  "backend/remote.replayer.goOn",
		old: "r.core.copies.begin()", new: "r.core.copies.view.Equal &= 1; r.core.copies.begin()",
		pkg: "./backend/remote", run: "^TestMirrorGoesOn$",
	}, {
		name: "a killed life takes all of its members for equal", rule: "mirror §4.5 a life that goes on after a kill keeps its equal legs",
		in:  "backend/remote.replayer.goOn",
		old: "r.core.copies.begin()", new: "r.core.copies.view.Equal = r.core.copies.view.Record.Present(); r.core.copies.begin()",
		pkg: "./backend/remote", run: "^TestMirrorGoesOnUnequal$",
	}, {
		name: "a killed run of a mirror does not go on", rule: "mirror §4.5 a life goes on after a kill",
		in:  "backend/remote.legacy.judgeMirror",
		old: "case h.State == windowLive && h.goesOn(),", new: "case",
		pkg: "./backend/remote", run: "^TestMirrorGoesOn$",
	}, {
		name: "another life since is no loss", rule: "mirror §4.5 not the owner on any leg of F ends it for good",
		in:  "backend/remote.replayer.left",
		old: "errors.As(r.cause, new(*lastingError)) ||", new: "",
		pkg: "./backend/remote", run: "^TestMirrorTakenSince$",
	}, {
		name: "a life goes on without a member of F", rule: "mirror §3.2 FLUSH succeeds when all of F acknowledged",
		in:  "backend/remote.header.seats",
		old: "missing != 0 {", new: "missing != 0 && false {",
		pkg: "./backend/remote", run: "^TestSeats$",
	}, {
		name: "a drained window opens in any generation", rule: "clients that are still attached find what they wrote",
		in:  "backend/remote.legacy.judgeMirror",
		old: "case newest == was:", new: "default:",
		also: []edit{{"backend/remote.legacy.judgeMirror", "case newest.Before(was):", "case false:"}},
		pkg:  "./backend/remote", run: "^TestMirrorHadByAnother$",
	}, {
		name: "a mirror's window of another boot is adopted", rule: "§4.2 the header has the boot id",
		in:  "backend/remote.legacy.judgeMirror",
		old: "if h.Boot != s.boot {", new: "if false {",
		pkg: "./backend/remote", run: "^TestDecideMirror$",
	}, {
		name: "a lost window of a mirror is no loss", rule: "§6 acknowledged writes may be lost with their window",
		in:  "backend/remote.legacy.withoutWindow",
		old: "case !s.ours || s.closed:", new: "case true:",
		pkg: "./backend/remote", run: "^TestMirrorWithoutItsWindow$",
	}, {
		name: "a copied state directory takes a mirror from a living owner", rule: "§6 no window of the last session: the lease runs out first",
		in:  "backend/remote.legacy.withoutWindow",
		old: "if s.heard() && !s.takeover {", new: "if false {",
		pkg: "./backend/remote", run: "^TestOwnIDElsewhere$",
	}, {
		name: "an accepted loss takes a mirror from a living owner", rule: "§6 no window of the last session: the lease runs out first",
		in:  "backend/remote.legacy.whenOpen",
		old: "d.lost != nil && s.heard()", new: "false && s.heard()",
		pkg: "./backend/remote", run: "^TestOwnIDElsewhere$",
	}, {
		name: "a start of a mirror behind one that was killed takes it from a living owner", rule: "§6 a start without the last session's window takes the region from no owner that the target hears",
		in:  "backend/remote.legacy.judgeMirror",
		old: "h.Opened == 0 && s.heard()", new: "false && s.heard()",
		pkg: "./backend/remote", run: "^TestDecideMirror$",
	}, {
		name: "a renewal that not all of F know counts", rule: "mirror §3.6 it gets all its bits on all of F before anything is sent to it",
		in:  "internal/mirror.View.Meet",
		old: "|| v.Lacking.Has(int(l.Record.Slot))", new: "",
		pkg: "./internal/mirror", run: "^TestMeet$",
	},
}
