package main

import (
	"github.com/prometheus/client_golang/prometheus"

	"pmnbd/persist/target"
	"pmnbd/status"
)

// What a serving pmnbd-target shows as metrics. Names are kept once published;
// docs/status.md lists them, which a test compares.
var (
	startTime = status.Gauge("pmnbd_target_start_time_seconds", "When the process began to serve, since the epoch.")

	regionInfo    = status.Gauge("pmnbd_target_region_info", "The region and its class. Always 1.", "region", "region_uuid", "class")
	regionSize    = status.Gauge("pmnbd_target_region_size_bytes", "The region's size.", "region")
	regionEpoch   = status.Gauge("pmnbd_target_region_epoch", "The number of the last session.", "region")
	regionClean   = status.Gauge("pmnbd_target_region_clean", "1 if the last session gave the region back, 0 during one.", "region")
	regionDoubt   = status.Gauge("pmnbd_target_region_doubt", "1 if some of what can be read may not be durable.", "region")
	regionFailed  = status.Gauge("pmnbd_target_region_failed", "1 if making it durable failed: it serves nobody until region clear.", "region")
	regionSuspect = status.Gauge("pmnbd_target_region_suspect", "1 if the platform lost power without saving: it serves nobody until region clear.", "region")
	regionHeld    = status.Gauge("pmnbd_target_region_held", "1 if an owner has it.", "region")
	leaseLeft     = status.Gauge("pmnbd_target_region_lease_left_seconds", "How long the owner may stay silent before another can have the region, 0 if nobody holds it.", "region")

	sessionInfo  = status.Gauge("pmnbd_target_session_info", "The session of this run, if there is one: its owner and its durability method. Always 1.", "region", "owner_id", "method")
	sessionLanes = status.Gauge("pmnbd_target_session_lanes", "Connections that the owner has now.", "region")

	barriers = status.Counter("pmnbd_target_barriers_total", "Barriers acknowledged, on each lane.", "region")
	syncing  = status.Gauge("pmnbd_target_syncing_seconds", "How long the sync behind barriers that is under way has taken so far, 0 if there is none.", "region")
	syncs    = status.Counter("pmnbd_target_syncs_total", "Calls of fdatasync begun, those of the superblock among them.", "region")
)

// Collect implements status.Document.
func (r report) Collect(ch chan<- prometheus.Metric) {
	status.Send(ch, startTime, float64(r.Started.UnixMilli())/1e3)
	for i := range r.Regions {
		collectRegion(ch, &r.Regions[i])
	}
}

func collectRegion(ch chan<- prometheus.Metric, r *target.RegionSnapshot) {
	status.Send(ch, regionInfo, 1, r.Name, r.UUID.String(), r.Class)
	status.Send(ch, regionSize, r.Size, r.Name)
	status.Send(ch, regionEpoch, r.Epoch, r.Name)
	status.SendBool(ch, regionClean, r.Clean, r.Name)
	status.SendBool(ch, regionDoubt, r.Doubt, r.Name)
	status.SendBool(ch, regionFailed, r.Failed, r.Name)
	status.SendBool(ch, regionSuspect, r.Suspect, r.Name)
	status.SendBool(ch, regionHeld, r.Held, r.Name)
	status.Send(ch, leaseLeft, r.LeaseLeft, r.Name)
	lanes := 0
	if s := r.Session; s != nil {
		lanes = len(s.Lanes)
		owner := ""
		if r.Owner != nil {
			owner = r.Owner.ID.String()
		}
		status.Send(ch, sessionInfo, 1, r.Name, owner, s.Method)
	}
	status.Send(ch, sessionLanes, lanes, r.Name)
	status.Send(ch, barriers, r.Barriers, r.Name)
	status.Send(ch, syncing, r.Syncing, r.Name)
	status.Send(ch, syncs, r.Syncs, r.Name)
}
