package mutants

// blockDevices are mutants of the block devices that pmnbd makes, most of them of those without a socket (docs/rules.md).
var blockDevices = []mutant{
	{
		name: "a queue's ring is closed while its thread lives", rule: "a request that arrives while a queue ends is not lost in the kernel",
		in:  "ublk.Device.detach",
		old: "!d.host.ended(q.tid)", new: "d.host.ended(q.tid) && false",
		pkg: "./ublk", run: "^TestPortOutlivesItsThread$",
	}, {
		name: "a queue that fails leaves its writes in the device", rule: "§6.5 no older write lands after a newer one",
		in:  "ublk.queue.end",
		old: "q.awaitDevice()", new: "_ = q",
		pkg: "./ublk", run: "^TestBreach$", hangs: true,
	}, {
		name: "the kernel hears that a closed device failed", rule: "what was not executed is left to the next server",
		in:  "ublk.left",
		old: "errors.Is(op.Err, backend.ErrClosed)", new: "false",
		pkg: "./ublk", run: "^TestClosedDeviceLeavesRequests$", hangs: true,
	}, {
		name: "a queue takes requests after its end has begun", rule: "a queue that ends takes nothing more",
		in:  "ublk.queue.arrivals",
		old: "case q.stopping.Load():", new: "case false:",
		pkg: "./ublk", run: "^TestClosedDeviceLeavesRequests$", hangs: true,
	}, {
		name: "a block device goes on whoever had it", rule: "§6 a device continues only with the same lineage",
		in:  "ublk.Device.takeOver",
		old: "case has.identity != cfg.Identity:", new: "case false:",
		pkg: "./ublk", run: "^TestRecoveryRefused$", hangs: true,
	}, {
		name: "a device is reset though a part of its queues has a server", rule: "a start that was killed costs at most the device",
		in:  "ublk.Device.reset",
		old: "case owned < int(has.queues):", new: "case false:",
		pkg: "./ublk", run: "^TestRecoveryCutShort$",
	}, {
		name: "a device that never began is continued", rule: "a start that was killed costs at most the device",
		in:  "ublk.Device.takeOver",
		old: "case has.state == stateDead:", new: "case false:",
		pkg: "./ublk", run: "^TestNeverBegun$", hangs: true,
	}, {
		name: "a start leaves what the kernel reads to a next server", rule: "docs/rules.md: until a start has returned nothing is left to the next server",
		in:  "ublk.queue.answer",
		old: "!q.starting.Load()", new: "true",
		pkg: "./ublk", run: "^TestStartLeavesNothing$",
	}, {
		name: "a queue that fails ends the others while the kernel reads", rule: "docs/rules.md: until a start has returned nothing is left to the next server",
		in:  "ublk.Device.halt",
		old: "q.starting.Load()", new: "q.starting.Load() && false",
		pkg: "./ublk", run: "^TestStartLeavesNothing$",
	}, {
		name: "a take-over goes on though its context has ended", rule: "docs/rules.md: a take-over that is cancelled takes no request",
		in:  "ublk.Device.takeOver",
		old: "err = context.Cause(ctx)", new: "_ = ctx",
		pkg: "./ublk", run: "^TestTakeOverCancelled$",
	}, {
		name: "a drain does not wait for a block device that is being opened", rule: "docs/rules.md: an export is closed at the end only when nothing opens its block device any more",
		in:  "cmd/pmnbd.ublks.shutdown",
		old: "late := u.opened(ctx)", new: "var late error",
		pkg: "./cmd/pmnbd", run: "^TestDrainWaitsForOpens$",
	}, {
		name: "a drain that has closed the exports does not wait for what opens a block device", rule: "docs/rules.md: an export is closed at the end only when nothing opens its block device any more",
		in:  "cmd/pmnbd.ublks.wait",
		old: "u.opening.Wait()", new: "_ = u",
		pkg: "./cmd/pmnbd", run: "^TestDrainWaitsForOpens$",
	}, {
		name: "a block device that is being opened does not count", rule: "docs/rules.md: an export is closed at the end only when nothing opens its block device any more",
		in:  "cmd/pmnbd.initiator.openUblk",
		old: "s.ublks.whileOpen(cancel)", new: "func() {}, error(nil)",
		pkg: "./cmd/pmnbd", run: "^TestUblkOpensAtTheEnd$",
	}, {
		name: "a block device is opened after the end has begun", rule: "docs/rules.md: an export is closed at the end only when nothing opens its block device any more",
		in:  "cmd/pmnbd.ublks.whileOpen",
		old: "if u.closed", new: "if u.closed && false",
		pkg: "./cmd/pmnbd", run: "^TestUblkOpensAtTheEnd$",
	}, {
		name: "a queue stops and does not say that it fetches nothing", rule: "docs/rules.md: a start returns also if a queue stops before it fetches",
		in:  "ublk.Device.run",
		old: "q.fetched <- err", new: "select { case <-q.stop: default: q.fetched <- err }",
		pkg: "./ublk", run: "^TestStopsBeforeItFetches$",
	}, {
		name: "the search for partitions goes on without a target", rule: "a start that waits for the target can be ended",
		in:  "ublk.Device.start",
		old: "q.refuse()", new: "_ = q",
		pkg: "./ublk", run: "^TestBeginsWithoutTarget$", hangs: true,
	}, {
		name: "a queue fails, and says so when it has ended", rule: "the other queues of one that failed end at once",
		in:  "ublk.Device.run",
		old: "if err != nil { d.fail(n, err) }", new: "defer func() { if err != nil { d.fail(n, err) } }()",
		pkg: "./ublk", run: "^TestBreach$",
	}, {
		name: "a device whose server the kernel forgot counts as removed", rule: "docs/rules.md: a device whose server the kernel took for ended goes on",
		in:  "ublk.Device.forgotten",
		old: "has.state != stateDead", new: "has.state == stateQuiesced",
		pkg: "./ublk", run: "^TestForgotten$",
	}, {
		name: "a removed device counts as forgotten if another one has its number", rule: "docs/rules.md: a device whose server the kernel took for ended goes on",
		in:  "ublk.Device.forgotten",
		old: "has.identity == d.identity", new: "true",
		pkg: "./ublk", run: "^TestForgotten$",
	}, {
		name: "an old kernel has no time to note a server's end", rule: "docs/rules.md: a device whose server the kernel took for ended goes on",
		in:  "ublk.Device.awaitReset",
		old: "d.host.settle()", new: "_ = kernel",
		pkg: "./ublk", run: "^TestSettle$",
	}, {
		name: "a device whose server the kernel forgot ends pmnbd", rule: "docs/rules.md: a device whose server the kernel took for ended goes on",
		in:  "cmd/pmnbd.ublks.ended",
		old: "errors.Is(err, ublk.ErrForgotten)", new: "false",
		pkg: "./cmd/pmnbd", run: "^TestForgottenUblk$",
	}, {
		name: "pmnbd begins a device that somebody else has begun again", rule: "docs/rules.md: a device whose server the kernel took for ended goes on",
		in:  "cmd/pmnbd.initiator.continueUblk",
		old: `x == nil || s.ublks.of(name) != ""`, new: "x == nil",
		pkg: "./cmd/pmnbd", run: "^TestForgottenUblkMeanwhile$",
	}, {
		name: "pmnbd leaves a device that the kernel forgot", rule: "docs/rules.md: a device whose server the kernel took for ended goes on",
		in:  "cmd/pmnbd.initiator.continueUblk",
		old: "_, err = s.openUblk(ctx, x, number)", new: "_, _ = ctx, x",
		pkg: "./cmd/pmnbd", run: "^TestForgottenUblkMeanwhile$",
	}, {
		name: "an export becomes a second ublk device", rule: "docs/rules.md: an export is one ublk device at most",
		in:  "cmd/pmnbd.ublks.admit",
		old: "case d.export != export && d.Number() != number:", new: "case d.Number() != number:",
		pkg: "./cmd/pmnbd", run: "^TestOneUblkOfAnExport$",
	}, {
		name: "a ublk device that is ending keeps its place", rule: "docs/rules.md: a detach frees the place",
		in:  "cmd/pmnbd.ublks.admit",
		old: "case d.Ending():", new: "case false:",
		pkg: "./cmd/pmnbd", run: "^TestUblkAfterDetach$",
	}, {
		name: "a ublk device begins beside one that waits", rule: "docs/rules.md: no second ublk device of an export begins while the kernel may hold writes for one",
		in:  "cmd/pmnbd.beside",
		old: "len(left) == 1 && left[0] == number", new: "len(left) == 1",
		pkg: "./cmd/pmnbd", run: "^TestUblkLeft$",
	}, {
		name: "one of two ublk devices that wait continues", rule: "docs/rules.md: no second ublk device of an export begins while the kernel may hold writes for one",
		in:  "cmd/pmnbd.beside",
		old: "len(left) == 1 && left[0] == number", new: "left[0] == number",
		pkg: "./cmd/pmnbd", run: "^TestUblkLeft$",
	}, {
		name: "a service manager tries again beside a ublk device that waits", rule: "docs/rules.md: the code is 3, so that no service manager tries again",
		in:  "cmd/pmnbd.beside",
		old: "export, path, export, path, export, path, path), exitLoss)", new: "export, path, export, path, export, path, path), 1)",
		pkg: "./cmd/pmnbd", run: "^TestUblkLeft$",
	}, {
		name: "a block device without a server is not found", rule: "docs/rules.md: no second ublk device of an export begins while the kernel may hold writes for one",
		in:  "ublk.find",
		old: "has.state != stateDead", new: "has.state == stateLive",
		pkg: "./ublk", run: "^TestFind$",
	}, {
		name: "a block device that may be one of the same export is left out", rule: "docs/rules.md: no second ublk device of an export begins while the kernel may hold writes for one",
		in:  "ublk.find",
		old: "case err != nil:", new: "case err != nil && false:",
		pkg: "./ublk", run: "^TestFind$",
	}, {
		name: "a detach that the kernel refuses is remembered", rule: "docs/rules.md: a device that the kernel does not disconnect stays attached",
		in:  "cmd/pmnbd/internal/attach.locked.disconnect",
		old: "a.Detached = before", new: "_ = before",
		pkg: "./cmd/pmnbd/internal/attach", run: "^TestDetachRefused$",
	}, {
		name: "a detach that the kernel refuses undoes the one before", rule: "docs/rules.md: a device that the kernel has disconnected stays detached",
		in:  "cmd/pmnbd/internal/attach.locked.disconnect",
		old: "a.Detached = before", new: "a.Detached = before && false",
		pkg: "./cmd/pmnbd/internal/attach", run: "^TestDetachWhileOpen$",
	}, {
		name: "a detach removes a block device that was begun again", rule: "docs/rules.md: a detach that has stopped the old device does not remove the new one",
		in:  "ublk.orderOf",
		old: "has.state == stateLive", new: "false",
		pkg: "./ublk", run: "^TestRemovedAndBegun$",
	}, {
		name: "a queue has the first thread", rule: "a queue's thread ends with the queue",
		in:  "ublk.ownThread",
		old: "unix.Gettid() != unix.Getpid()", new: "unix.Gettid() != 0",
		pkg: "./ublk", run: "^TestOwnThread$",
	}, {
		name: "a late WRITE that cannot be copied wakes nobody", rule: "a WRITE that waited for room and cannot be copied then fails at once, and has no pin",
		in:  "ublk.intake.run",
		old: "if !in.q.receive(s) { in.submit() continue }", new: "if !in.q.receive(s) { continue }",
		pkg: "./ublk", run: "^TestCopyFailsLate$", hangs: true,
	}, {
		name: "the identity leaves the lineage out", rule: "§6 a device continues only with the same lineage",
		in:  "cmd/pmnbd.ublkIdentity",
		old: "slices.Concat(device[:], lineage[:])", new: "slices.Concat(device[:], lineage[:0])",
		pkg: "./cmd/pmnbd", run: "^TestUblkIdentity$",
	}, {
		name: "the identity is that of a member", rule: "docs/rules.md: a device continues whichever member of a mirror is in sync",
		in:  "backend/remote.Snapshot.DeviceUUID",
		old: "return s.Mirror.Set", new: "return s.RegionUUID",
		pkg: "./cmd/pmnbd", run: "^TestUblkIdentity$",
	}, {
		name: "an nbd device remembers a member", rule: "docs/rules.md: a device of a mirror continues whichever member is in sync",
		in:  "cmd/pmnbd/internal/attach.Keeper.create",
		old: "src.device.DeviceUUID()", new: "src.device.RegionUUID",
		pkg: "./cmd/pmnbd/internal/attach", run: "^TestAttachAgainMirror$",
	}, {
		name: "an nbd device that 0.1.0 attached continues with one member alone", rule: "docs/rules.md: a device of a mirror continues whichever member is in sync, also if pmnbd 0.1.0 attached it",
		in:  "cmd/pmnbd/internal/attach.Attachment.isOn",
		old: "|| slices.Contains(s.Mirror.Regions, a.Region)", new: "|| slices.Contains(s.Mirror.Regions[:0], a.Region)",
		pkg: "./cmd/pmnbd/internal/attach", run: "^TestAttachAgainMirror$",
	}, {
		name: "a block device goes on with smaller requests", rule: "a server takes what the kernel was told",
		in:  "ublk.Device.fits",
		old: "case told.maxIO > p.maxIO:", new: "case false:",
		pkg: "./ublk", run: "^TestRecoveryRefused$", hangs: true,
	}, {
		name: "a descriptor may reach past the end", rule: "everything that the kernel says is bounded",
		in:  "ublk.rules.parse",
		old: "d.start > (r.size-op.Len)>>sectorShift", new: "d.start > r.size>>sectorShift",
		pkg: "./ublk", run: "^TestParse$",
	}, {
		name: "a descriptor may have any length", rule: "everything that the kernel says is bounded",
		in:  "ublk.rules.parse",
		old: "case op.Len > most:", new: "case false:",
		pkg: "./ublk", run: "^TestParse$",
	}, {
		name: "a completion may name a tag that is ours", rule: "everything that the kernel says is bounded",
		in:  "ublk.queue.arrivals",
		old: "|| q.slots[c.tag].place != kernels", new: "",
		pkg: "./ublk", run: "^TestBreach$", hangs: true,
	}, {
		name: "writes are answered after the post", rule: "§4.3 reply before the post",
		in:  "ublk.queue.submit",
		old: "err := q.flush(); q.dev.Post()", new: "q.dev.Post(); err := q.flush()",
		pkg: "./ublk", run: "^TestAnswersBeforePost$", hangs: true,
	}, {
		name: "whoever gives up waiting keeps its pins", rule: "§4.8 pins come back",
		in:  "ublk.intake.run",
		old: "in.room.Unpin()", new: "_ = in",
		pkg: "./ublk", run: "^TestShutdownWhileWaiting$",
	},
}
