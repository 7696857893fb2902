package sockio

import (
	"os"
	"runtime"
)

// minProcs is how many Ps a program gets at least: more than connections are busy at a time in
// most. A P that nobody uses costs nothing.
const minProcs = 16

// Procs gives the process enough Ps to wait for its sockets (wait.go says why), unless the
// environment says how many it shall have (GOMAXPROCS). It is for the main function.
func Procs() {
	if os.Getenv("GOMAXPROCS") == "" && runtime.GOMAXPROCS(0) < minProcs {
		runtime.GOMAXPROCS(minProcs)
	}
}
