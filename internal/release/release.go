// Package release says which release of pmnbd this is.
//
// It exists so that there is one place to change for a new release: Version. Programs and packages
// take it from here, and a test compares it with CHANGELOG.md. It is a constant, and not what the
// linker or git could say, because a build from an archive of the sources has neither. The package
// imports no other package of this module.
package release

import (
	"runtime/debug"
	"sync"
)

// Version is the number of this release (semver.org), without a v.
const Version = "0.1.0"

// Revision is the commit that the process was built from, with a + if the sources had been changed
// since. It is empty if the build did not know it.
func Revision() string { return revision() }

var revision = sync.OnceValue(func() (commit string) {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	changed := ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			commit = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			changed = "+"
		}
	}
	return commit + changed
})
