package status

import (
	"runtime"

	"pmnbd/internal/release"
)

// Build sends the metric that says what the process was built from.
func Build(s Scrape, name string) {
	Gauge(s, name, "What the process was built from. Always 1.", 1, "version", release.Version, "revision", release.Revision(), "goversion", runtime.Version())
}
