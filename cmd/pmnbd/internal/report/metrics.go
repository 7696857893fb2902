package report

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"pmnbd/backend/remote"
	"pmnbd/nbd"
	"pmnbd/status"
)

// What a serving pmnbd shows as metrics. Names are kept once published; docs/status.md
// lists them, which a test compares.
var (
	startTime = status.Gauge("pmnbd_start_time_seconds", "When the process began to serve, since the epoch.")

	sessionInfo = status.Gauge("pmnbd_session_info", "The session with the target: the region, its class, and the durability method. Always 1.",
		"export", "region", "region_uuid", "class", "method", "target")
	sessionState      = status.Gauge("pmnbd_session_state", "1 for the state that the session is in, 0 for the others.", "export", "state")
	sessionDoubt      = status.Gauge("pmnbd_session_doubt", "1 as long as inherited doubt is not settled by a barrier.", "export")
	sessionUnclean    = status.Gauge("pmnbd_session_unclean", "1 if the session before was not closed.", "export")
	sessionEpoch      = status.Gauge("pmnbd_session_epoch", "The session's number.", "export")
	sessionRecoveries = status.Counter("pmnbd_session_recoveries_total", "How often the session was interrupted and went on.", "export")
	deviceSize        = status.Gauge("pmnbd_device_size_bytes", "The device's size.", "export")

	laneRequests    = status.Counter("pmnbd_lane_work_requests_total", "RDMA work requests made since the lane connected.", "export", "lane")
	laneOutstanding = status.Gauge("pmnbd_lane_outstanding_work_requests", "Work requests whose place in the send queue is not known to be free.", "export", "lane")

	windowUsed         = status.Gauge("pmnbd_window_used_bytes", "Memory of the window in use.", "export")
	windowLimit        = status.Gauge("pmnbd_window_limit_bytes", "Memory that the window may use.", "export")
	windowEntries      = status.Gauge("pmnbd_window_used_entries", "Entries of the window's index in use.", "export")
	windowEntriesLimit = status.Gauge("pmnbd_window_limit_entries", "Entries that the window's index has.", "export")
	windowUnflushed    = status.Gauge("pmnbd_window_unflushed_bytes", "Bytes acknowledged that no successful barrier covers.", "export")

	barriers         = status.Counter("pmnbd_barriers_total", "Barriers that succeeded.", "export")
	barriersAnswered = status.Counter("pmnbd_barriers_answering_total", "Barriers that answered FLUSHes or FUA writes.", "export")
	barrierRequests  = status.Counter("pmnbd_barrier_requests_total", "FLUSHes and FUA writes that barriers answered.", "export")
	barriersInFlight = status.Gauge("pmnbd_barriers_in_flight", "Barriers under way.", "export")
	barrierAtTarget  = status.Gauge("pmnbd_barrier_at_target_seconds", "How long the target has been at the barrier under way, 0 if it is not.", "export")
	barrierWaiting   = status.Gauge("pmnbd_barrier_waiting_requests", "FLUSHes and FUA writes that wait for the next barrier.", "export")

	clients        = status.Gauge("pmnbd_clients", "NBD clients connected.", "export")
	clientsEntered = status.Counter("pmnbd_clients_entered_total", "NBD clients that ever were connected.", "export")
	commands       = status.Counter("pmnbd_commands_total", "NBD requests answered.", "export", "command")
	commandBytes   = status.Counter("pmnbd_command_bytes_total", "Bytes that successful NBD requests read, wrote or named.", "export", "command")
	commandFUA     = status.Counter("pmnbd_command_fua_total", "Successful NBD requests that had FUA set.", "export", "command")
	commandErrors  = status.Counter("pmnbd_command_errors_total", "NBD requests answered with an error.", "export", "command")
)

// Collect implements status.Document.
func (r Document) Collect(ch chan<- prometheus.Metric) {
	status.Send(ch, startTime, float64(r.Started.UnixMilli())/1e3)
	for i := range r.Exports {
		r.Exports[i].collect(ch)
	}
}

func (e *Export) collect(ch chan<- prometheus.Metric) {
	d := &e.Device
	status.Send(ch, sessionInfo, 1, e.Name, d.Region, d.RegionUUID.String(), d.Class, d.Method, d.Target)
	for _, s := range []remote.State{remote.StateOpen, remote.StateWaiting, remote.StateFailed, remote.StateClosed} {
		status.SendBool(ch, sessionState, d.State == s, e.Name, string(s))
	}
	status.SendBool(ch, sessionDoubt, d.Doubt, e.Name)
	status.SendBool(ch, sessionUnclean, d.Unclean, e.Name)
	status.Send(ch, sessionEpoch, d.Epoch, e.Name)
	status.Send(ch, sessionRecoveries, d.Recoveries, e.Name)
	status.Send(ch, deviceSize, d.Size, e.Name)
	for i, l := range d.Lanes {
		status.Send(ch, laneRequests, l.Posted, e.Name, strconv.Itoa(i))
		status.Send(ch, laneOutstanding, l.Outstanding, e.Name, strconv.Itoa(i))
	}
	w := &d.Window
	status.Send(ch, windowUsed, w.Used, e.Name)
	status.Send(ch, windowLimit, w.Limit, e.Name)
	status.Send(ch, windowEntries, w.Entries, e.Name)
	status.Send(ch, windowEntriesLimit, w.EntriesLimit, e.Name)
	status.Send(ch, windowUnflushed, w.Unflushed, e.Name)
	b := &d.Barriers
	status.Send(ch, barriers, b.Done, e.Name)
	status.Send(ch, barriersAnswered, b.Answered, e.Name)
	status.Send(ch, barrierRequests, b.Asked, e.Name)
	status.SendBool(ch, barriersInFlight, b.InFlight, e.Name)
	status.Send(ch, barrierAtTarget, b.AtTarget, e.Name)
	status.Send(ch, barrierWaiting, b.Waiting, e.Name)
	status.Send(ch, clients, e.Connections, e.Name)
	status.Send(ch, clientsEntered, e.Entered, e.Name)
	for _, c := range listed(&e.Commands) {
		status.Send(ch, commands, c.count.Requests, e.Name, c.name)
		status.Send(ch, commandBytes, c.count.Bytes, e.Name, c.name)
		status.Send(ch, commandFUA, c.count.FUA, e.Name, c.name)
		status.Send(ch, commandErrors, c.count.Errors, e.Name, c.name)
	}
}

// A counted is a command and its count.
type counted struct {
	name  string
	count nbd.Count
}

// listed is c in the order in which people and metrics see it, by the names that the
// document has.
func listed(c *nbd.Commands) []counted {
	return []counted{
		{"READ", c.Read}, {"WRITE", c.Write}, {"FLUSH", c.Flush}, {"TRIM", c.Trim}, {"CACHE", c.Cache},
		{"WRITE_ZEROES", c.WriteZeroes}, {"BLOCK_STATUS", c.BlockStatus}, {"OTHER", c.Other},
	}
}
