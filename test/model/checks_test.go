package model

import (
	"os"
	"strings"
	"testing"
)

// The promises, as a model names the one that is broken.
const (
	lostFlush   = "(1) what a successful FLUSH or FUA covered is not durable"
	oldRead     = "(2,3) a READ returned an older value or garbage"
	staleWrite  = "(3) a stale write was enqueued behind a newer one"
	oldFlush    = "(1,5) what a successful FLUSH covered is not durable"
	goneFlush   = "(1,5) what a successful FLUSH covered is lost"
	goneBack    = "(2,3) a READ returned a value older than one acknowledged or read before"
	lateWrite   = "(4) a former owner's write landed in another owner's session"
	foreignData = "(2,4) another owner wrote under a client whose device never died"
)

// limit is how many states a check visits at most.
const limit = 10_000_000

// A check explores a model. It must visit exactly states of them: a model that shrinks by
// accident holds for the wrong reason. bad is the promise that must break; "" means none.
type check struct {
	name   string
	run    func(limit int) result
	states int
	bad    string
}

func check1(name string, c m1cfg, states int, bad string) check {
	return check{"M1 " + name, func(limit int) result { return explore(m1model(c), limit) }, states, bad}
}

func check2(name string, c m2cfg, states int, bad string) check {
	return check{"M2 " + name, func(limit int) result { return explore(m2model(c), limit) }, states, bad}
}

func check3(name string, writes uint8, exact bool, mut string, states int, bad string) check {
	return check{"M3 " + name, func(limit int) result { return explore(m3model(writes, exact, mut), limit) }, states, bad}
}

// without drops a rule of M1.
func (c m1cfg) without(rule string) m1cfg { c.mut = rule; return c }

// without drops a rule of M2.
func (c m2cfg) without(rule string) m2cfg { c.mut = rule; return c }

// rules adds the rules that M2 found to be needed. The superblock remembers in which epoch its
// owner became owner, which refuses a late OPEN.
func (c m2cfg) rules() m2cfg {
	c.fixSince, c.fixRestart, c.fixShort, c.fixContents, c.fixCancel = true, true, true, true, true
	return c
}

// named adds the same rules, but refuses a late OPEN by the epoch that it names, as the product
// does.
func (c m2cfg) named() m2cfg {
	c = c.rules()
	c.fixCAS, c.fixSince = true, false
	return c
}

func TestModel(t *testing.T) {
	quick := os.Getenv("PMNBD_MODEL") != "all"
	for _, list := range [][]check{checks1(), checksTwo(), checks3(), checks2(), checks4(), checksTwoMirror(), checksFollow()} {
		for _, c := range list {
			t.Run(c.name, func(t *testing.T) {
				if quick && c.states > c.quick() {
					t.Skipf("visits more than %d states: run it with PMNBD_MODEL=all", c.quick())
				}
				c.test(t)
			})
		}
	}
}

// quick is how many states a check visits at most in a run that takes seconds. M4 has no smaller
// checks that hold.
func (c *check) quick() int {
	if c.bad == "" && strings.HasPrefix(c.name, "M4") {
		return 75_000
	}
	return 10_000
}

func (c *check) test(t *testing.T) {
	r := c.run(limit)
	for i, event := range r.trace {
		t.Logf("%2d  %s", i+1, event)
	}
	if r.bad != c.bad {
		t.Errorf("breaks %q, want %q", r.bad, c.bad)
	}
	if r.states != c.states {
		t.Errorf("visited %d states, want %d: if the model was changed on purpose, change the table", r.states, c.states)
	}
	switch {
	case r.bad != "":
		t.Logf("a counterexample of %d events, %d states", len(r.trace), r.states)
	case r.complete:
		t.Logf("holds: %d states", r.states)
	default:
		t.Logf("no counterexample within %d states", r.states)
	}
}

func checks1() []check {
	two, one, single := []uint8{0, 2}, []uint8{0, 1}, []uint8{0} // blocks: on two lanes, on one lane, one
	plain := m1cfg{nW: 2, nF: 2, nR: 1, blocks: two}
	same := m1cfg{nW: 3, nF: 1, blocks: one}
	power := m1cfg{nW: 2, nF: 1, nR: 1, nPow: 1, blocks: one}
	fua := m1cfg{nW: 1, n2: 1, nF: 1, blocks: two}
	zeroes := m1cfg{nW: 2, nZ: 1, nF: 1, blocks: single}
	zeroesLost := m1cfg{nW: 1, nZ: 1, nF: 1, nR: 1, blocks: single, nLoss: 1}
	apm, apmLost := zeroes, zeroesLost
	apm.apm, apmLost.apm = true, true
	lost := m1cfg{nW: 2, nF: 1, nR: 1, nLoss: 1, nPow: 1, nEv: 1, blocks: two}
	killed := m1cfg{nW: 2, nF: 1, nR: 1, nKill: 1, nPow: 1, nEv: 1, blocks: single}
	killedTwo := m1cfg{nW: 2, nF: 1, nR: 1, nKill: 1, nPow: 1, blocks: two}
	killedLost := m1cfg{nW: 2, nF: 1, nR: 1, nKill: 1, nLoss: 1, nEv: 1, blocks: single}
	syncs := m1cfg{nW: 2, nF: 2, nErr: 1, blocks: two}
	sliced := m1cfg{nW: 3, nF: 1, nR: 1, nLoss: 1, nPow: 1, blocks: two, slices: true}
	slicedOne := m1cfg{nW: 3, nF: 1, nR: 1, nLoss: 2, blocks: one, slices: true}
	slicedKilled := m1cfg{nW: 3, nF: 1, nR: 1, nLoss: 1, nKill: 1, nEv: 1, blocks: single, slices: true}
	return []check{
		check1("two lanes, two FLUSHes", plain, 24206, ""),
		check1("two blocks on a lane", same, 5240, ""),
		check1("two blocks on a lane, power loss", power, 21032, ""),
		check1("FUA in two pieces", fua, 12303, ""),
		check1("zeroes", zeroes, 2605, ""),
		check1("zeroes, lost connection", zeroesLost, 10564, ""),
		check1("zeroes under apm", apm, 2677, ""),
		check1("zeroes under apm, lost connection", apmLost, 10214, ""),
		check1("lost connection, power loss, eviction", lost, 149720, ""),
		check1("kill and adoption, power loss", killed, 23236, ""),
		check1("kill and adoption, two lanes", killedTwo, 86374, ""),
		check1("kill and loss", killedLost, 24410, ""),
		check1("sync error", syncs, 6233, ""),

		// replay in slices
		check1("slices: lost connections, power loss", sliced, 1424224, ""),
		check1("slices: lost connections on one lane", slicedOne, 713402, ""),
		check1("slices: kill and loss", slicedKilled, 183760, ""),
		check1("slices without: slice-completes-flush", sliced.without("slice-completes-flush"), 356679, lostFlush),
		check1("slices without: slice-covers-the-ring", slicedOne.without("slice-covers-the-ring"), 197816, oldRead),
		check1("slices without: read-before-its-slice", slicedOne.without("read-before-its-slice"), 1917, oldRead),

		// large
		check1("large: two lanes, loss, power loss, kill", m1cfg{nW: 1, n2: 1, nF: 1, nR: 1, nLoss: 1, nPow: 1, nKill: 1, blocks: two}, 2007447, ""),
		check1("large: three blocks, zero, loss, power loss", m1cfg{nW: 2, nZ: 1, nF: 1, nR: 1, nLoss: 1, nPow: 1, blocks: []uint8{0, 1, 2}}, 6994316, ""),
		check1("large: zero, kill, power loss, eviction", m1cfg{nW: 2, nZ: 1, nF: 2, nR: 1, nKill: 1, nLoss: 1, nPow: 1, nEv: 1, blocks: single}, 2144536, ""),

		// rules dropped
		check1("R1: replies before the marks move", killed.without("reply-before-mark"), 17683, lostFlush),
		check1("R2: replay while a barrier is being retired", lost.without("replay-during-retire"), 157811, lostFlush),
		check1("without: apm-barrier-ignores-zeroes", apm.without("apm-barrier-ignores-zeroes"), 1831, lostFlush),
		check1("without: lane0-only", plain.without("lane0-only"), 8626, lostFlush),
		check1("without: ranges-outside-mutex", power.without("ranges-outside-mutex"), 25572, oldRead),
		check1("without: barriers-out-of-order", plain.without("barriers-out-of-order"), 20791, lostFlush),
		check1("without: empty-flush-at-once", plain.without("empty-flush-at-once"), 3574, lostFlush),
		check1("without: dirty-before-waiters", plain.without("dirty-before-waiters"), 703, lostFlush),
		check1("without: fua-listed-early", fua.without("fua-listed-early"), 6929, lostFlush),
		check1("without: zero-does-not-stop-queue", zeroesLost.without("zero-does-not-stop-queue"), 503, oldRead),
		check1("without: barrier-passes-stopped-queue", zeroes.without("barrier-passes-stopped-queue"), 2573, lostFlush),
		check1("without: barrier-does-not-wait-for-zeroes", zeroes.without("barrier-does-not-wait-for-zeroes"), 1895, lostFlush),
		check1("without: no-join-of-zeroes", zeroesLost.without("no-join-of-zeroes"), 7021, oldRead),
		check1("without: reuse-before-mark", killed.without("reuse-before-mark"), 15672, oldRead),
		check1("without: reply-before-valid", killed.without("reply-before-valid"), 1170, oldRead),
		check1("without: valid-before-payload", killed.without("valid-before-payload"), 2528, oldRead),
		check1("without: number-outside-mutex", killed.without("number-outside-mutex"), 9539, oldRead),
		check1("without: ranges-not-returned", lost.without("ranges-not-returned"), 6181, lostFlush),
		check1("without: failed-not-tested", syncs.without("failed-not-tested"), 2248, lostFlush),
	}
}

func checks3() []check {
	return []check{
		check3("connections", 4, true, "", 43959, ""),
		check3("F7: no poll while the export has one connection", 3, false, "", 5888, staleWrite),
		check3("without: no-hang-up-check", 3, true, "no-hang-up-check", 3432, staleWrite),
		check3("without: poll-outside-mutex", 3, true, "poll-outside-mutex", 7977, staleWrite),
		check3("without: poll-first-lane-only", 3, true, "poll-first-lane-only", 5409, staleWrite),
		check3("without: single-decided-outside-mutex", 3, true, "single-decided-outside-mutex", 5696, staleWrite),

		// not needed for safety
		check3("without: enters-early", 3, true, "enters-early", 24230, ""),
	}
}

func checks2() []check {
	s1 := m2cfg{drops: 2, crashes: 1, flushes: 1, reads: 1, maxv: 2, procs: 1}  // one owner: lost connections, kills, target crashes
	s2 := m2cfg{drops: 1, reads: 1, maxv: 2, procs: 3}                          // A and B, late messages
	s3 := m2cfg{crashes: 1, flushes: 1, reads: 1, maxv: 2, procs: 3}            // A and B, target crash
	s4 := m2cfg{reboots: 1, flushes: 1, reads: 1, maxv: 2, procs: 3}            // A, its host reboots, B, A2: three owners in a row
	s5 := m2cfg{crashes: 1, reads: 2, maxv: 1, procs: 3}                        // two READs around a crash
	s6 := m2cfg{reboots: 1, flushes: 1, reads: 1, maxv: 1, procs: 3, closes: 1} // CLOSE between owners
	s7 := m2cfg{drops: 1, flushes: 1, reads: 1, maxv: 1, procs: 3}              // A and B, FLUSH, lost connection
	s8 := m2cfg{drops: 1, crashes: 1, flushes: 1, maxv: 1, procs: 3}            // late messages and a target crash together
	s9 := m2cfg{reads: 1, maxv: 1, procs: 3, closes: 2, restarts: 1}            // A drained and closed, B, A restarted under a living client
	s10 := m2cfg{reboots: 1, crashes: 1, flushes: 1, reads: 1, maxv: 1, procs: 3}
	s11 := m2cfg{crashes: 1, closes: 1, restarts: 1, reads: 2, flushes: 1, maxv: 1, procs: 3}

	f1, f2, f3, f4 := s2.rules(), s4.rules(), s3.rules(), s5.rules()
	f1.fixSince, f2.fixRestart, f3.fixShort, f4.fixContents = false, false, false, false
	f5 := m2cfg{drops: 1, flushes: 1, procs: 3}.rules()
	f5.fixCancel = false
	r3 := m2cfg{reboots: 1, maxv: 1, procs: 3}.named()
	r3.fixRestart = false // a restart would also stop the flush that is about to write
	return []check{
		check2("S1 one owner", s1.rules(), 1637267, ""),
		check2("S2 takeover, late messages", s2.rules(), 3524670, ""),
		check2("S2 takeover, late messages, named epoch", s2.named(), 1646815, ""),
		check2("S3 takeover, target crash", s3.rules(), 7581385, ""),
		check2("S3 takeover, target crash, named epoch", s3.named(), 8642718, ""),
		check2("S4 three owners", s4.rules(), 8781782, ""),
		check2("S4 three owners, named epoch", s4.named(), 6958841, ""),
		check2("S5 two reads and a crash", s5.rules(), 527804, ""),
		check2("S6 CLOSE", s6.rules(), 2667375, ""),
		check2("S7 takeover, FLUSH, lost connection", s7.rules(), 3822143, ""),
		check2("S8 late messages, target crash", s8.named(), 10000001, ""),
		check2("S9 drained restart, named epoch", s9.named(), 18188, ""),
		check2("S10 three owners, target crash", s10.named(), limit, ""),
		check2("S11 CLOSE, drained restart, target crash", s11.named(), 5497264, ""),

		// rules dropped
		check2("F1: a late OPEN is granted", f1, 1407095, lateWrite),
		check2("F2: a flush older than the grant clears the doubt", f2, 6107604, oldFlush),
		check2("F3: a FLUSH in doubt with nothing dirty needs no barrier", f3, 239732, oldFlush),
		check2("F4: a power loss in doubt keeps the contents id", f4, 265102, goneBack),
		check2("F5: a grant joins a barrier that waits for doubt", f5, 82720, stuck),
		check2("F6: a drained window opens in any epoch", s9.rules(), 17648, foreignData),
		check2("R3: superblock updated outside the lock", r3.without("superblock-outside-lock"), 83698, lateWrite),
		check2("without: no-replay", s1.rules().without("no-replay"), 31930, goneBack),
		check2("without: no-adopt", s1.rules().without("no-adopt"), 30016, goneFlush),
		check2("without: read-before-replay", s1.rules().without("read-before-replay"), 56275, goneBack),
		check2("without: no-owner-check", s2.rules().without("no-owner-check"), 267424, lateWrite),
		check2("without: no-recheck", s2.rules().without("no-recheck"), 306350, lateWrite),
		check2("without: no-join", s2.rules().without("no-join"), 8205, lateWrite),
		check2("without: no-destroy", s2.rules().without("no-destroy"), 7652, lateWrite),
		check2("without: same-key", s2.rules().without("same-key"), 21885, lateWrite),
		check2("without: reply-before-persist", s3.rules().without("reply-before-persist"), 275920, oldFlush),
		check2("without: no-doubt", s3.rules().without("no-doubt"), 141047, oldFlush),
		check2("without: barrier-ignores-doubt", s3.rules().without("barrier-ignores-doubt"), 684854, oldFlush),
		check2("without: close-clears-doubt", s6.rules().without("close-clears-doubt"), 1791215, oldFlush),
		check2("without: resume-clears-doubt", s7.rules().without("resume-clears-doubt"), 1969761, oldFlush),
	}
}
