package report

import (
	"strconv"

	"pmnbd/backend/remote"
	"pmnbd/cmd/internal/status"
	"pmnbd/nbd"
)

// Collect implements status.Document. Names stay once published; docs/status.md lists them, and
// a test compares the two.
func (d Document) Collect(s status.Scrape) {
	status.Gauge(s, "pmnbd_start_time_seconds", "When the process began to serve, since the epoch.", float64(d.Started.UnixMilli())/1e3)
	status.Build(s, "pmnbd_build_info")
	status.Durations(s, "pmnbd_tls_handshake_duration_seconds", "How long TLS handshakes with NBD clients took, those that failed too.", &d.TLSHandshakes)
	for i := range d.Starting {
		status.Truth(s, "pmnbd_standby", "1 while another pmnbd has the export's mirror, 0 while it begins. There is none while it is served.", d.Starting[i].Standby, "export", d.Starting[i].Name)
	}
	for i := range d.Exports {
		d.Exports[i].collect(s.With("export", d.Exports[i].Name))
	}
}

func (e *Export) collect(s status.Scrape) {
	d := &e.Device
	status.Gauge(s, "pmnbd_session_info", "The session with the target: the region, its class, and the durability method. Always 1.", 1, "region", d.Region, "region_uuid", d.RegionUUID.String(), "class", d.Class, "method", d.Method, "target", d.Target)
	for _, state := range []remote.State{remote.StateOpen, remote.StateWaiting, remote.StateFailed, remote.StateClosed} {
		status.Truth(s, "pmnbd_session_state", "1 for the state that the session is in, 0 for the others.", d.State == state, "state", string(state))
	}
	status.Truth(s, "pmnbd_session_doubt", "1 until a barrier has succeeded in a session that inherited doubt.", d.Doubt)
	status.Truth(s, "pmnbd_session_unclean", "1 if the session before was not closed.", d.Unclean)
	status.Gauge(s, "pmnbd_session_epoch", "The session's number.", d.Epoch)
	status.Counter(s, "pmnbd_session_recoveries_total", "How often the session was interrupted and went on.", d.Recoveries)
	status.Counter(s, "pmnbd_bad_requests_total", "Requests that got an I/O error because the medium has lost what they name.", d.BadRequests)
	status.Gauge(s, "pmnbd_device_size_bytes", "The device's size.", d.Size)
	for i := range d.Targets {
		t := &d.Targets[i]
		status.Gauge(s, "pmnbd_session_trust_info", "The fingerprint of the key that has proven the session with the target, and what encrypts it; empty: none. Always 1.", 1, "target", t.Target, "region", t.Region, "key", t.Key, "cipher", t.Cipher)
	}
	if d.Mirror != nil {
		collectMirror(s, d.Mirror)
	}
	for i, l := range d.Lanes {
		status.Counter(s, "pmnbd_lane_work_requests_total", "RDMA work requests made since the lane connected.", l.Posted, "lane", strconv.Itoa(i))
		status.Gauge(s, "pmnbd_lane_outstanding_work_requests", "Work requests whose place in the send queue is not known to be free.", l.Outstanding, "lane", strconv.Itoa(i))
	}
	w := &d.Window
	status.Gauge(s, "pmnbd_window_used_bytes", "Memory of the window in use.", w.Used)
	status.Gauge(s, "pmnbd_window_limit_bytes", "Memory that the window may use.", w.Limit)
	status.Gauge(s, "pmnbd_window_used_entries", "Entries of the window's index in use.", w.Entries)
	status.Gauge(s, "pmnbd_window_limit_entries", "Entries that the window's index has.", w.EntriesLimit)
	status.Gauge(s, "pmnbd_window_unflushed_bytes", "Bytes acknowledged that no successful barrier covers.", w.Unflushed)
	b := &d.Barriers
	status.Counter(s, "pmnbd_barriers_total", "Barriers that succeeded.", b.Done)
	status.Counter(s, "pmnbd_barriers_answering_total", "Barriers that answered FLUSHes or FUA writes.", b.Answered)
	status.Counter(s, "pmnbd_barrier_requests_total", "FLUSHes and FUA writes that barriers answered.", b.Asked)
	status.Truth(s, "pmnbd_barriers_in_flight", "Barriers under way.", b.InFlight)
	status.Gauge(s, "pmnbd_barrier_at_target_seconds", "How long the target has been working on the barrier under way, 0 if it is not.", b.AtTarget)
	status.Gauge(s, "pmnbd_barrier_waiting_requests", "FLUSHes and FUA writes that wait for the next barrier.", b.Waiting)
	status.Gauge(s, "pmnbd_clients", "NBD clients connected.", e.Connections)
	status.Counter(s, "pmnbd_clients_entered_total", "NBD clients that have ever negotiated.", e.Entered)
	e.collectTimes(s)
	for _, c := range listed(&e.Commands) {
		status.Counter(s, "pmnbd_commands_total", "NBD requests answered.", c.count.Requests, "command", c.name)
		status.Counter(s, "pmnbd_command_bytes_total", "Bytes that successful NBD requests read, wrote or named.", c.count.Bytes, "command", c.name)
		status.Counter(s, "pmnbd_command_fua_total", "Successful NBD requests that had FUA set.", c.count.FUA, "command", c.name)
		status.Counter(s, "pmnbd_command_errors_total", "NBD requests answered with an error.", c.count.Errors, "command", c.name)
	}
}

// A counted is an NBD command and its count.
type counted struct {
	name  string
	count nbd.Count
}

// listed returns c in the order of text and metrics, under the names of the document.
func listed(c *nbd.Commands) []counted {
	return []counted{
		{"READ", c.Read}, {"WRITE", c.Write}, {"FLUSH", c.Flush}, {"TRIM", c.Trim}, {"CACHE", c.Cache},
		{"WRITE_ZEROES", c.WriteZeroes}, {"BLOCK_STATUS", c.BlockStatus}, {"OTHER", c.Other},
	}
}
