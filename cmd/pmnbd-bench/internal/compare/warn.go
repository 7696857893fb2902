package compare

import (
	"fmt"
	"slices"
	"strings"

	"pmnbd/cmd/internal/flags"
	"pmnbd/cmd/pmnbd-bench/internal/chart"
	"pmnbd/cmd/pmnbd-bench/internal/storage"
)

// A Warning is a reason to trust a figure less.
type Warning struct {
	// Code is for programs: volatile, no-sync, no-effect, no-flushes, too-fast, unequal, busy,
	// stolen, threads, spread or local.
	Code string `json:"code"`
	// Unfair means that a comparison with this subject is not like for like.
	Unfair  bool   `json:"unfair,omitempty"`
	Subject string `json:"subject,omitempty"`
	Text    string `json:"text"`
}

// Bounds of what is taken for normal.
const (
	tooFast    = 3.0  // µs; no disk answers an fsync in less
	tooBusy    = 0.10 // of the CPUs, used by others
	tooStolen  = 0.02 // of the CPUs, kept by the hypervisor
	tooSpread  = 2.0  // between the rounds' medians
	tooUnequal = 2.0  // between sizes
)

// warn returns all warnings, those of single subjects first.
func (r *Report) warn(places []*place) (all []Warning) {
	for _, p := range places {
		all = append(all, r.warnOf(p)...)
	}
	return append(all, r.warnOfAll(places)...)
}

// warnOf returns the warnings of one subject.
func (r *Report) warnOf(p *place) (all []Warning) {
	add := func(code string, unfair bool, format string, args ...any) {
		all = append(all, Warning{Code: code, Unfair: unfair, Subject: p.Label, Text: fmt.Sprintf(format, args...)})
	}
	if p.Volatile {
		add("volatile", true, "%s is of class volatile: what its fsync covers is lost with the target's power. Only its speed stands for that of persistent memory.", p.Label)
	}
	if p.disk.NoSync != "" {
		add("no-sync", true, "An fsync does nothing on %s: %s.", p.Label, p.disk.NoSync)
	}
	if c := r.cell(p.Label, "log"); c != nil && c.Commits > 0 && p.Form != FormExport && p.disk.NoSync == "" {
		switch {
		case c.DiskCounted && c.DiskWrites < uint64(c.Commits)/2:
			add("no-effect", true, "During %d fsyncs on %s its disk completed %s: the data went no further than the page cache.", c.Commits, p.Label, flags.Count(c.DiskWrites, "write"))
		case c.DiskCounted && p.disk.WriteCache == "write back" && c.DiskFlushes < uint64(c.Commits)/2 && !stacked(p.disk.Device):
			add("no-flushes", true, "During %d fsyncs on %s its disk completed %s: the data may still be in the disk's volatile cache.", c.Commits, p.Label, flags.Count(c.DiskFlushes, "flush request"))
		case p.disk.Kind != storage.PMem && c.P50 < tooFast:
			add("too-fast", true, "An fsync on %s takes %s. No disk is so fast: it ends in memory.", p.Label, chart.Duration(c.P50))
		}
	}
	var spread []string
	for _, pattern := range r.Patterns {
		if least, most := r.cell(p.Label, pattern.Name).medians(); least > 0 && most > tooSpread*least {
			spread = append(spread, fmt.Sprintf("%s %s to %s", pattern.Name, chart.Duration(least), chart.Duration(most)))
		}
	}
	if len(spread) > 0 {
		add("spread", false, "The rounds' medians on %s differ by more than a factor of %g (%s). Something else used the machine or the disk.", p.Label, tooSpread, strings.Join(spread, ", "))
	}
	return all
}

// stacked reports whether Linux counts the flushes of a device on those below it instead.
func stacked(device string) bool {
	return strings.HasPrefix(device, "dm-") || strings.HasPrefix(device, "md")
}

func (r *Report) writers() (n int) {
	for _, p := range r.Patterns {
		n = max(n, p.Writers)
	}
	return n
}

// warnOfAll returns the warnings of the run.
func (r *Report) warnOfAll(places []*place) (all []Warning) {
	add := func(code, format string, args ...any) {
		all = append(all, Warning{Code: code, Text: fmt.Sprintf(format, args...)})
	}
	var sized []*place // a directory has no size of its own
	var local []string
	for _, p := range places {
		if p.Form != FormDirectory {
			sized = append(sized, p)
		}
		if p.Local {
			local = append(local, p.Label)
		}
	}
	if len(sized) > 1 {
		bySize := func(a, b *place) int { return int(min(max(a.Size-b.Size, -1), 1)) }
		small, large := slices.MinFunc(sized, bySize), slices.MaxFunc(sized, bySize)
		if float64(large.Size) > tooUnequal*float64(small.Size) {
			add("unequal", "The sizes differ: %s has %s, %s has %s. All were measured on their first %s, which is a larger part of the smaller one.",
				small.Label, flags.Size(small.Size).Rounded(), large.Label, flags.Size(large.Size).Rounded(), flags.Size(r.Area).Rounded())
		}
	}
	switch h := r.Host; {
	case h.Busy > tooBusy:
		add("busy", "Others used %.0f %% of this machine's CPUs just before the run. Latencies are those of a busy machine.", 100*h.Busy)
	case h.Busy < 0 && h.Load > float64(h.CPUs)/2:
		add("busy", "The load of this machine was %.1f on %s before the run. Latencies are those of a busy machine.", h.Load, flags.Count(h.CPUs, "CPU"))
	}
	if r.Host.Stolen > tooStolen {
		add("stolen", "The hypervisor gave %.0f %% of this machine's CPUs to others during the run.", 100*r.Host.Stolen)
	}
	if r.Host.Threads < r.writers() {
		add("threads", "GOMAXPROCS is %d, so at most so many of up to %d writers run at a time. Unset it.", r.Host.Threads, r.writers())
	}
	if len(local) > 0 {
		add("local", "No network is between this client and the server of %s. If the server works for its replies on this machine, too, both share its CPUs.", strings.Join(local, ", "))
	}
	return all
}
