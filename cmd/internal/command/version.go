package command

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"

	"pmnbd/internal/release"
	"pmnbd/persist/wire"
)

// version is the line that --version prints, the first thing to compare when two ends do
// not understand each other: the program's name, the release and its commit, the versions of
// the control protocol and of the files that the program keeps (docs/compatibility.md), the
// build tags, and the compiler and platform.
func (c *Command) version() string {
	tags := "none"
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "-tags" {
				tags = s.Value
			}
		}
	}
	formats := fmt.Sprintf("protocol %d", wire.Version)
	if c.Formats != "" {
		formats += ", " + c.Formats
	}
	return fmt.Sprintf("%s %s, revision %s, %s, tags %s, %s %s/%s\n",
		c.Name, release.Version, cmp.Or(release.Revision(), "unknown"), formats, tags, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
