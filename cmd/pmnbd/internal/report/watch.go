package report

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"pmnbd/backend/remote"
	"pmnbd/cmd/internal/flags"
	"pmnbd/internal/latency"
	"pmnbd/nbd"
)

// A Watched is a document and when it was asked for.
type Watched struct {
	Document
	At time.Time
}

// Since is what happened since before, which is an older document of the same process, or the zero
// value: rates and latencies of that time, and how all is now.
func (w *Watched) Since(before *Watched) string {
	var out strings.Builder
	h := w.Health()
	for i := range h {
		out.WriteString(h[i : i+1].Text())
		if n := i - len(w.Starting); n >= 0 && n < len(w.Exports) {
			e := &w.Exports[n]
			e.since(&out, before.export(e.Name), w.At.Sub(before.At).Seconds())
		}
	}
	return out.String()
}

// export returns the export of that name, or an empty one.
func (w *Watched) export(name string) *Export {
	for i := range w.Exports {
		if w.Exports[i].Name == name {
			return &w.Exports[i]
		}
	}
	return &Export{}
}

// since writes what happened in the last seconds, since before.
func (e *Export) since(out *strings.Builder, before *Export, seconds float64) {
	per := func(n, was uint64) string { return rate(n, was, seconds) }
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	width := len("WRITE") // names begin at the left, figures end at the right
	for i := range e.Device.Targets {
		width = max(width, len("barrier at "+e.Device.Targets[i].Target))
	}
	row := func(cells ...string) {
		cells[0] = fmt.Sprintf("%-*s", width, cells[0])
		_, _ = fmt.Fprintln(w, strings.Join(cells, "\t")+"\t")
	}
	row("", "/s", "bytes/s", "p50", "p99", "slowest")
	commands, was := e.Commands, before.Commands
	times, old := byCommand(&e.Latency), byCommand(&before.Latency)
	for i, t := range times {
		took := t.took.Since(old[i].took)
		bytes := "-"
		switch t.name {
		case "READ":
			bytes = flags.Size(perSecond(commands.Read.Bytes, was.Read.Bytes, seconds)).Rounded()
		case "WRITE":
			bytes = flags.Size(perSecond(commands.Write.Bytes, was.Write.Bytes, seconds)).Rounded()
		}
		row(append([]string{t.name, per(t.took.Count(), old[i].took.Count()), bytes}, quantiles(&took)...)...)
	}
	for i := range e.Device.Targets {
		t, old := &e.Device.Targets[i], e.oldTarget(i, before)
		took := t.Barriers.Since(&old.Barriers)
		row(append([]string{"barrier at " + t.Target, per(t.Barriers.Count(), old.Barriers.Count()), "-"}, quantiles(&took)...)...)
	}
	_ = w.Flush()
	e.now(out, before, seconds)
}

// now writes how full the window is, the outages, and who does what.
func (e *Export) now(out *strings.Builder, before *Export, seconds float64) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	line := func(name, format string, args ...any) { writeRow(w, name, format, args...) }
	win := &e.Device.Window
	line("window", "%s of %s (%d %%), %d of %d entries (%d %%); %s not flushed", flags.Size(win.Used).Rounded(), flags.Size(win.Limit).Rounded(), percent(win.Used, win.Limit),
		win.Entries, win.EntriesLimit, percent(win.Entries, win.EntriesLimit), flags.Size(win.Unflushed).Rounded())
	for i := range e.Device.Targets {
		t := &e.Device.Targets[i]
		if n := t.Outages.Count(); n > 0 {
			line("outages", "%d of %s, %v in all, the longest %s", n, t.Target, t.Outages.Sum().Round(time.Millisecond), quantiles(&t.Outages)[2])
		}
		if t.DoubtLeft > 0 {
			line("doubt", "%s has %s left to flush", t.Target, flags.Size(t.DoubtLeft).Rounded())
		}
	}
	for i, l := range e.Device.Lanes {
		var old remote.LaneSnapshot
		if i < len(before.Device.Lanes) && before.Device.Lanes[i].Peer == l.Peer && before.Device.Lanes[i].Posted <= l.Posted {
			old = before.Device.Lanes[i]
		}
		line(fmt.Sprintf("lane %d", i), "%s, %s work requests/s, %d outstanding", l.Peer, rate(l.Posted, old.Posted, seconds), l.Outstanding)
	}
	for i := range e.Clients {
		c := &e.Clients[i]
		old := before.client(c.Number)
		reads, writes, flushes := c.Commands.Read.Requests, c.Commands.Write.Requests, c.Latency.Flush.Count()+c.Latency.FUA.Count()
		both, oldBoth := durable(&c.Latency), durable(&old.Latency)
		took := both.Since(&oldBoth)
		line(fmt.Sprintf("client %d", c.Number), "%s, READ %s/s, WRITE %s/s, FLUSH and FUA %s/s, p99 of these %s", c.Name, rate(reads, old.Commands.Read.Requests, seconds),
			rate(writes, old.Commands.Write.Requests, seconds), rate(flushes, old.Latency.Flush.Count()+old.Latency.FUA.Count(), seconds), quantiles(&took)[1])
	}
	_ = w.Flush()
}

// durable is how long FLUSHes and FUA writes took together.
func durable(l *nbd.Latencies) latency.Histogram {
	both := l.Flush
	both.Add(&l.FUA)
	return both
}

// client returns the client of that number, or an empty one.
func (e *Export) client(number uint64) *nbd.Client {
	for i := range e.Clients {
		if e.Clients[i].Number == number {
			return &e.Clients[i]
		}
	}
	return &nbd.Client{}
}

// quantiles are the median, the 99th percentile and the end of the slowest one's bucket.
func quantiles(h *latency.Histogram) []string {
	if h.Count() == 0 {
		return []string{"-", "-", "-"}
	}
	all := make([]string, 0, 3)
	for _, q := range []float64{0.5, 0.99, 1} {
		all = append(all, rounded(h.Quantile(q)))
	}
	return all
}

// rounded writes d with three digits.
func rounded(d time.Duration) string {
	for unit := time.Duration(1); unit <= 100*time.Second; unit *= 10 {
		if d < 1000*unit {
			return d.Round(unit).String()
		}
	}
	return d.Round(time.Second).String()
}

func perSecond(n, was uint64, seconds float64) uint64 {
	if was > n || seconds <= 0 {
		was = 0 // it began anew
	}
	return uint64(float64(n-was) / max(seconds, 1e-3))
}

func rate(n, was uint64, seconds float64) string {
	return fmt.Sprint(perSecond(n, was, seconds))
}

func percent(n, of uint64) uint64 {
	if of == 0 {
		return 0
	}
	return 100 * n / of
}

// oldTarget returns the target of before that is number i of e, or an empty one.
func (e *Export) oldTarget(i int, before *Export) *remote.TargetSnapshot {
	at := e.Device.Targets[i].Target
	for k := range before.Device.Targets {
		if before.Device.Targets[k].Target == at {
			return &before.Device.Targets[k]
		}
	}
	return &remote.TargetSnapshot{}
}
