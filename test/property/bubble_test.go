package property

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// crashed counts the targets and initiators that crashed.
var crashed atomic.Int64

// bubble makes a property of check: it runs in a bubble of testing/synctest, whose clock
// jumps to the next timer when all its goroutines wait. So a pause costs no time, and a
// check in which all wait for ever fails at once. A failure of the testing.TB is one of the property, so
// that rapid says how to repeat it.
//
// In three checks of four the seed decides who runs next, too: see turns.
func bubble(t *testing.T, check func(testing.TB, *rapid.T, turns)) func(*rapid.T) {
	return func(rt *rapid.T) {
		var failure any
		defer func() {
			if left := recover(); failure == nil {
				failure = left // goroutines that wait for ever, after a check that went well
			}
			// rapid tells failures apart by where they panic, and one may not pass for a sequence
			// of draws that is too short, which it meets when it looks for a shorter one.
			switch {
			case failure == nil:
			case fmt.Sprintf("%T", failure) == "rapid.invalidData":
				panic(failure)
			default:
				panic(failure)
			}
		}()
		var turns turns
		if rapid.IntRange(0, 3).Draw(rt, "turns of the seed") > 0 {
			turns.seed = rapid.Uint64Min(1).Draw(rt, "turns")
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
		}
		hangs := time.AfterFunc(time.Minute, func() {
			fmt.Fprintf(os.Stderr, "a check hangs: repeat it and those before it with -run=%s -rapid.seed=%v\n", t.Name(), flag.Lookup("rapid.seed").Value)
		})
		defer hangs.Stop()
		synctest.Test(t, func(t *testing.T) {
			defer func() { failure = recover() }()
			check(failing{t, rt}, rt, turns)
		})
	}
}

// Turns decide in which order goroutines run, by a seed; 0 leaves it to Go's scheduler.
//
// Each end of a connection that was woken, and what a process starts, first sleeps for a time that the seed gives it. In a
// bubble one wakes when all others wait, so that they run one after the other. Two runs of
// a seed still differ where a system call takes so long that Go runs another goroutine
// meanwhile, where Go takes the CPU from one, and with the race detector, which has the
// scheduler choose at random. Of 17 seeds, each run three times on a busy machine, 15 took
// the same steps each time, 11 with the race detector.
type turns struct{ seed uint64 }

// random are numbers for one who takes turns, the same for each run of the seed.
func (t turns) random(who uint64) *rand.Rand { return rand.New(rand.NewPCG(t.seed, who)) }

// sleep sleeps for the nth time of who.
func (t turns) sleep(who, n uint64) {
	if t.seed != 0 {
		time.Sleep(time.Duration(t.random(who<<32 | n).IntN(100_000)))
	}
}

// woken is rdmafake's Woken.
func (t turns) woken(conn, wake int) { t.sleep(uint64(conn), uint64(wake)) }

// jitter is remote's Jitter, for a process.
func (t turns) jitter(process int) func() float64 {
	if t.seed == 0 {
		return nil
	}
	return t.random(1<<63 | uint64(process)).Float64 // one goroutine after the other asks
}

// failing is a testing.TB whose failures are those of rt.
type failing struct {
	testing.TB
	rt *rapid.T
}

func (f failing) Error(args ...any)                 { f.rt.Error(args...) }
func (f failing) Errorf(format string, args ...any) { f.rt.Errorf(format, args...) }
func (f failing) Fail()                             { f.rt.Fail() }
func (f failing) FailNow()                          { f.rt.FailNow() }
func (f failing) Failed() bool                      { return f.rt.Failed() }
func (f failing) Fatal(args ...any)                 { f.rt.Fatal(args...) }
func (f failing) Fatalf(format string, args ...any) { f.rt.Fatalf(format, args...) }
