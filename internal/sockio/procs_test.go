package sockio

import (
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestProcs(t *testing.T) {
	was := runtime.GOMAXPROCS(0)
	defer runtime.GOMAXPROCS(was)
	for _, c := range []struct {
		name      string
		env       string
		now, want int
	}{
		{"few CPUs", "", 2, minProcs},
		{"many CPUs", "", minProcs + 1, minProcs + 1},
		{"the environment has said so", "2", 2, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("GOMAXPROCS", c.env)
			runtime.GOMAXPROCS(c.now)
			Procs()
			require.Equal(t, c.want, runtime.GOMAXPROCS(0))
		})
	}
}

// Go ends a program that has more than 10,000 threads, and 4,096 NBD clients that do not read what they
// asked for have nearly as many.
func TestProcsHasThreadsForAllConnections(t *testing.T) {
	was := debug.SetMaxThreads(10_000)
	defer debug.SetMaxThreads(was)
	t.Setenv("GOMAXPROCS", "2")
	Procs()
	require.Equal(t, maxThreads, debug.SetMaxThreads(was))
}
