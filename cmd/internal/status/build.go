package status

import (
	"runtime"
	"runtime/debug"
	"sync"
)

// built is what the process was built from: the module's version, and the revision of its sources,
// which is empty if the build did not know it.
var built = sync.OnceValues(func() (version, revision string) {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "(unknown)", ""
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			revision = s.Value
		}
	}
	return info.Main.Version, revision
})

// Build sends the metric that says what the process was built from.
func Build(s Scrape, name string) {
	version, revision := built()
	Gauge(s, name, "What the process was built from. Always 1.", 1, "version", version, "revision", revision, "goversion", runtime.Version())
}
