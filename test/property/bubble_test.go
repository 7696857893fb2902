package property

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// crashed counts the targets and initiators that crashed.
var crashed atomic.Int64

// bubble turns check into a property that runs in a bubble of testing/synctest. The clock of a
// bubble jumps to the next timer when all its goroutines wait. So a pause costs no time, and a
// check in which everybody waits for ever fails at once. A failure of the testing.TB fails the
// property, so rapid prints how to repeat it.
//
// In three checks of four the seed also decides which goroutine runs next: see turns.
func bubble(t *testing.T, check func(testing.TB, *rapid.T, turns)) func(*rapid.T) {
	first := new(atomic.Pointer[rapid.T])
	return func(rt *rapid.T) {
		var failure any
		defer func() {
			if left := recover(); failure == nil {
				failure = left // a check that passed left goroutines behind that wait for ever
			}
			// rapid tells failures apart by where they panic. When it shortens a sequence it
			// meets draws that end too early. A failure of ours must not look like one of
			// those.
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
			defer func() {
				failure = recover()
				if _, ours := failure.(runtime.Error); ours {
					rt.Logf("%v\n%s", failure, debug.Stack()) // the panic above has another
				}
			}()
			check(failing{t, rt, first}, rt, turns)
		})
	}
}

// Turns decide by a seed in which order goroutines run. Seed 0 leaves the order to Go's
// scheduler.
//
// Each woken end of a connection, and each goroutine that a process starts, first sleeps for a
// time that the seed gives it. In a bubble a sleeper wakes only when all other goroutines wait,
// so they run one after the other. Two runs of a seed can still differ: where a system call
// takes so long that Go runs another goroutine meanwhile, where Go preempts a goroutine, and
// with the race detector, which makes the scheduler choose at random. Of 17 seeds, each run
// three times on a busy machine, 15 took the same steps each time, 11 with the race detector.
type turns struct {
	seed uint64
	slot int // of a mirror's member: the ends of connections are numbered for each network
}

// random returns the numbers of goroutine who, the same in each run of the seed.
func (t turns) random(who uint64) *rand.Rand { return rand.New(rand.NewPCG(t.seed, who)) }

// longestTurn bounds a turn.
const longestTurn = 100 * time.Microsecond

// allHadTurns returns when everybody who was woken before has had its turn, and waits again.
func allHadTurns() {
	time.Sleep(longestTurn)
	synctest.Wait()
}

// sleep sleeps as long as the nth turn of goroutine who takes.
func (t turns) sleep(who, n uint64) {
	if t.seed != 0 {
		time.Sleep(time.Duration(t.random(who<<32 | n).IntN(int(longestTurn))))
	}
}

// woken is the Woken hook of rdmafake.Config.
func (t turns) woken(conn, wake int) { t.sleep(uint64(t.slot<<20|conn), uint64(wake)) }

// jitter is the Jitter hook of remote.Config for one process.
func (t turns) jitter(process int) func() float64 {
	if t.seed == 0 {
		return nil
	}
	var mu sync.Mutex
	rng := t.random(1<<63 | uint64(process))
	return func() float64 { // each leg's keeper calls it
		mu.Lock()
		defer mu.Unlock()
		return rng.Float64()
	}
}

var once = flag.Bool("once", false, "end at the first failure, without a shorter sequence that shows it")

// failing is a testing.TB that reports its failures to rt. It prints the first one at once: rapid
// says what a failure was when it has repeated it, and not every one can be repeated.
type failing struct {
	testing.TB
	rt    *rapid.T
	first *atomic.Pointer[rapid.T] // the check that failed first
}

func (f failing) Errorf(format string, args ...any) {
	if f.first.CompareAndSwap(nil, f.rt) {
		fmt.Fprintf(os.Stderr, "the first failure of "+f.Name()+": "+format+"\n", args...)
		if *once {
			os.Exit(1)
		}
	}
	f.rt.Errorf(format, args...)
}

// explain says more of a failure.
func (f failing) explain(what string) {
	if f.first.Load() == f.rt {
		fmt.Fprintln(os.Stderr, what)
	}
	f.rt.Log(what)
}

func (f failing) Fatalf(format string, args ...any) { f.Errorf(format, args...); f.FailNow() }
func (f failing) Error(args ...any)                 { f.Errorf("%s", fmt.Sprintln(args...)) }
func (f failing) Fatal(args ...any)                 { f.Error(args...); f.FailNow() }
func (f failing) Fail()                             { f.rt.Fail() }
func (f failing) FailNow()                          { f.rt.FailNow() }
func (f failing) Failed() bool                      { return f.rt.Failed() }
