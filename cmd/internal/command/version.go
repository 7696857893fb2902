package command

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"pmnbd/persist/wire"
)

// version is the line that --version prints, the first thing to compare when two ends do
// not understand each other: the program's name, the module's version, which go build takes
// from git, the version of the control protocol, the build tags, and the compiler and
// platform.
func version(program string) string {
	version, tags := "(unknown)", "none"
	if info, ok := debug.ReadBuildInfo(); ok {
		version = info.Main.Version
		for _, s := range info.Settings {
			if s.Key == "-tags" {
				tags = s.Value
			}
		}
	}
	return fmt.Sprintf("%s %s, protocol %d, tags %s, %s %s/%s\n",
		program, version, wire.Version, tags, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
