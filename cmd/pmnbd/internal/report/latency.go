package report

import (
	"pmnbd/cmd/internal/status"
	"pmnbd/internal/latency"
	"pmnbd/nbd"
)

// A timed is what clients ask for, and how long it took.
type timed struct {
	name string
	took *latency.Histogram
}

// byCommand returns l in the order of text and metrics, under the names of the document.
func byCommand(l *nbd.Latencies) []timed {
	return []timed{{"READ", &l.Read}, {"WRITE", &l.Write}, {"FLUSH", &l.Flush}, {"FUA", &l.FUA}}
}

// collectTimes sends how long things took, and since when they take.
func (e *Export) collectTimes(s status.Scrape) {
	for _, c := range byCommand(&e.Latency) {
		status.Durations(s, "pmnbd_command_duration_seconds", "How long NBD requests took, from the read of their header until the reply was in the socket.", c.took, "command", c.name)
	}
	waiting := 0.0
	if since := e.Device.WaitingSince; since != nil {
		waiting = float64(since.UnixMilli()) / 1e3
	}
	status.Gauge(s, "pmnbd_session_waiting_since_seconds", "Since when READ and FLUSH wait for the target, since the epoch; 0 if they do not.", waiting)
	for i := range e.Device.Targets {
		t := &e.Device.Targets[i]
		leg := s.With("target", t.Target, "region", t.Region)
		status.Durations(leg, "pmnbd_barrier_duration_seconds", "How long barriers took at the target, from when they were queued until its last lane answered.", &t.Barriers)
		status.Durations(leg, "pmnbd_session_outage_seconds", "How long sessions that were lost took to come back.", &t.Outages)
		status.Gauge(leg, "pmnbd_session_bad_bytes", "How much of the region its medium has lost.", t.Bad)
		status.Gauge(leg, "pmnbd_session_doubt_left_bytes", "How much the target still has to flush before it can answer a barrier in inherited doubt.", t.DoubtLeft)
	}
}
