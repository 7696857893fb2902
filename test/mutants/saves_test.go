package mutants

// saves are mutants of what the target does before the power goes: ending sessions, and refusing
// those that a save could not keep.
var saves = []mutant{
	{
		name: "a save reads the memory while a session lives", rule: "nothing is stored behind a save",
		in:  "persist/target.export.save",
		old: "if e.session != nil {", new: "if false {",
		pkg: "./persist/target", run: "^TestSaveEndsSessions$", hangs: true,
	}, {
		name: "a region is saved whose session did not end", rule: "what an adapter still stores would be missing",
		in:  "persist/target.export.save",
		old: "if err := e.session.end(nil); err != nil {", new: "if err := e.session.end(nil); false {",
		pkg: "./persist/target", run: "^TestSaveNeedsAnEndedSession$",
	}, {
		name: "a save does not wait for a grant", rule: "a save ends the session of a grant under way",
		in:  "persist/target.export.save",
		old: "e.granting.Lock()", new: "_ = e.granting.TryLock()",
		pkg: "./persist/target", run: "^TestSaveWaitsForAGrant$", hangs: true,
	}, {
		name: "a grant looks for a save once", rule: "a grant that passed its checks before a save gets nothing",
		in:  "persist/target.conn.open",
		old: "if r := e.withheld(m, resume); r != nil { return nil, r }; sb, unclean", new: "sb, unclean",
		pkg: "./persist/target", run: "^TestGrantDuringASave$", hangs: true,
	}, {
		name: "a save halts nothing", rule: "nothing is granted between a save and Resume",
		in:  "persist/target.Server.SaveTelling",
		old: "s.halted.Store(true)", new: "",
		pkg: "./persist/target", run: "^TestSaveEndsSessions$", hangs: true,
	}, {
		name: "the syncer works behind a save", rule: "nothing updates the superblock behind a save",
		in:  "persist/target.syncer.run",
		old: "if !y.e.halted() {", new: "if true {",
		pkg: "./persist/target", run: "^TestNothingBehindASave$",
	}, {
		name: "a save leaves doubt", rule: "doubt is settled before a save",
		in:  "persist/target.syncer.rest",
		old: "return y.settle()", new: "return nil",
		pkg: "./persist/target", run: "^TestSaveSettlesDoubt$",
	}, {
		name: "two saves at a time", rule: "saves do not meet in a region",
		in:  "persist/target.Server.SaveTelling",
		old: "s.changing.Lock() ; defer s.changing.Unlock()", new: "",
		pkg: "./persist/target", run: "^TestSaves$",
	}, {
		name: "an owner loses its lease to a save", rule: "each owner has a lease's time after Resume",
		in:  "persist/target.Server.Resume",
		old: "e.heard()", new: "_ = e",
		pkg: "./persist/target", run: "^TestSaveEndsSessions$",
	}, {
		name: "an owner that is refused loses its lease", rule: "an owner that asks in vain keeps its lease",
		in:  "persist/target.export.withheld",
		old: "if owner := e.r.Superblock().Owner; resume && m.Owner == owner {", new: "if false {",
		pkg: "./persist/target", run: "^TestLeaseWhileRefused$",
	}, {
		name: "RESUME is granted beyond the budget", rule: "nothing is granted that a save could not keep",
		in:  "persist/target.export.withheld",
		old: `if why == "" {`, new: `if why == "" || resume {`,
		pkg: "./persist/target", run: "^TestBudget$",
	}, {
		name: "an owner does not come back to memory that lost a place", rule: "a bad place ends a session, and no device",
		in:  "persist/target.export.short",
		old: "resume && ok &&", new: "false && ok &&",
		pkg: "./persist/target", run: "^TestOwnerOfMemoryThatLostAPlace$",
	}, {
		name: "RESUME takes a whole image away", rule: "an image that is whole stays so while a save would fail",
		in:  "persist/target.export.short",
		old: "&& !p.Whole", new: "",
		pkg: "./persist/target", run: "^TestOwnerOfMemoryThatLostAPlace$",
	}, {
		name: "a battery that cannot be asked counts as full", rule: "what nobody knows may be empty",
		in:  "persist/target.power.tooShort",
		old: "case a.err != nil:", new: "case false:",
		pkg: "./persist/target", run: "^TestBudget$",
	}, {
		name: "a battery's last word counts for ever", rule: "what nobody knows may be empty",
		in:  "persist/target.power.tooShort",
		old: "case time.Duration(clock()-a.at) > 3*lookEvery:", new: "case false:",
		pkg: "./persist/target", run: "^TestBudgetUnknown$",
	}, {
		name: "a save needs as long as what is dirty before the session", rule: "a session makes everything dirty",
		in:  "persist/target.export.short",
		old: "e.need(p.Longest)", new: "e.need(p.Expected)",
		pkg: "./persist/target", run: "^TestBudget$",
	}, {
		name: "a save needs as long as that of one region", rule: "regions may share a disk",
		in:  "persist/target.export.need",
		old: "own += p.Expected", new: "_ = p",
		pkg: "./persist/target", run: "^TestNeedIsTheSum$",
	}, {
		name: "a disk that hangs counts as well", rule: "a disk that does not answer may not take a save",
		in:  "persist/target.disk.wrong",
		old: "case began != 0 && ", new: "case false && ",
		pkg: "./persist/target", run: "^TestBudgetUnknown$",
	}, {
		name: "a session by other methods has told its ranges", rule: "what cannot be known is dirty",
		in:  "persist/target.session.endLease",
		old: "if e.image != nil && s.method == persist.MethodGPSPM {", new: "if e.image != nil && s.method != persist.MethodAPM {",
		pkg: "./persist/target", run: "^TestKnownAfterClose$",
	}, {
		name: "a record waits on the lane for the disk of the image", rule: "heartbeats do not wait for a record",
		in:  "persist/target.conn.record",
		old: "e.r.RecordMayBlock()", new: "e.r.MayBlock()",
		pkg: "./persist/target", run: "^TestRecordIsDurableFirst$", hangs: true,
	}, {
		name: "the battery command prints without end", rule: "what the command of --battery-command prints is bounded",
		in:  "cmd/pmnbd-target.bounded.Write",
		old: "n := min(len(p), b.left)", new: "n := len(p)",
		pkg: "./cmd/pmnbd-target", run: "^TestBatteryCommand$",
	}, {
		name: "an unknown ups.status counts as on line", rule: "what nobody knows may be empty",
		in:  "cmd/pmnbd-target.parseBattery",
		old: "if !on && !off && weak < 0 {", new: "if !on && !off && weak < -1 {",
		pkg: "./cmd/pmnbd-target", run: "^TestParseBattery$",
	}, {
		name: "a save without a target makes memory", rule: "save --config never loads an image nor loses a region",
		in:  "cmd/pmnbd-target.servedRegion.saveAlone",
		old: "errors.Is(err, fs.ErrNotExist) {", new: "errors.Is(err, fs.ErrNotExist) && false {",
		pkg: "./cmd/pmnbd-target", run: "^TestSaveOffline$",
	},
}
