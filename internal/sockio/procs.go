package sockio

import (
	"os"
	"runtime"
	"runtime/debug"
)

// minProcs is how many Ps a program gets at least: more than connections are busy at a time in
// most. A P that nobody uses costs nothing.
const minProcs = 16

// maxThreads is how many threads a program may have: two for each of thousands of connections. Go's own
// limit is 10,000, and a program that needs one more dies. A thread that waits takes 20 KiB of memory.
const maxThreads = 1 << 16

// Procs gives the process enough Ps to wait for its sockets (wait.go says why), unless the
// environment says how many it shall have (GOMAXPROCS), and lets it have enough threads. It is for
// the main function.
func Procs() {
	debug.SetMaxThreads(maxThreads)
	if os.Getenv("GOMAXPROCS") == "" && runtime.GOMAXPROCS(0) < minProcs {
		runtime.GOMAXPROCS(minProcs)
	}
}
