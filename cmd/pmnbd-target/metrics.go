package main

import (
	"strings"

	"pmnbd/cmd/internal/status"
	"pmnbd/persist/target"
)

// Collect implements status.Document. Names stay once published; docs/status.md lists them, and
// a test compares the two.
func (r report) Collect(s status.Scrape) {
	status.Gauge(s, "pmnbd_target_start_time_seconds", "When the process began to serve, since the epoch.", float64(r.Started.UnixMilli())/1e3)
	status.Build(s, "pmnbd_target_build_info")
	if r.Battery != nil {
		collectBattery(s, r.Battery)
	}
	for i := range r.Regions {
		collectRegion(s.With("region", r.Regions[i].Name), &r.Regions[i])
	}
}

func collectRegion(s status.Scrape, r *target.RegionSnapshot) {
	status.Gauge(s, "pmnbd_target_region_info", "The region and its class. Always 1.", 1, "region_uuid", r.UUID.String(), "class", r.Class)
	status.Gauge(s, "pmnbd_target_region_size_bytes", "The region's size.", r.Size)
	status.Gauge(s, "pmnbd_target_region_epoch", "The number of the last session.", r.Epoch)
	status.Truth(s, "pmnbd_target_region_clean", "1 if the last session gave the region back, 0 during one.", r.Clean)
	status.Truth(s, "pmnbd_target_region_doubt", "1 if some of what can be read may not be durable.", r.Doubt)
	status.Truth(s, "pmnbd_target_region_failed", "1 if a sync of the region failed: it serves nobody until region clear.", r.Failed)
	status.Truth(s, "pmnbd_target_region_suspect", "1 if the platform lost power without saving: it serves nobody until region clear.", r.Suspect)
	status.Truth(s, "pmnbd_target_region_held", "1 if an initiator owns the region.", r.Held)
	status.Gauge(s, "pmnbd_target_region_lease_left_seconds", "How long the owner may stay silent before another can have the region, 0 if nobody holds it.", r.LeaseLeft)
	if m := r.Member; m != nil {
		collectMember(s, m)
	}
	if p := r.Protection; p != nil {
		collectProtection(s, p)
	}
	lanes := 0
	if session := r.Session; session != nil {
		lanes = len(session.Lanes)
		owner := ""
		if r.Owner != nil {
			owner = r.Owner.ID.String()
		}
		status.Gauge(s, "pmnbd_target_session_info", "The session of this run, if there is one: its owner and its durability method. Always 1.", 1, "owner_id", owner, "method", session.Method)
		status.Gauge(s, "pmnbd_target_session_trust_info", "The fingerprint of the key that has proven the session, and what encrypts it; empty: none. Always 1.", 1, "key", session.Key, "cipher", session.Cipher)
	}
	status.Gauge(s, "pmnbd_target_session_lanes", "Connections that the owner has now.", lanes)
	status.Counter(s, "pmnbd_target_barriers_total", "Barriers acknowledged, on each lane.", r.Barriers)
	status.Gauge(s, "pmnbd_target_syncing_seconds", "How long the sync behind barriers that is under way has taken so far, 0 if there is none.", r.Syncing)
	status.Counter(s, "pmnbd_target_syncs_total", "Calls of fdatasync begun, those of the superblock among them.", r.Syncs)
	status.Durations(s, "pmnbd_target_write_back_duration_seconds", "How long parts of barriers took to write back with the CPU, for classes volatile and pmem.", &r.WriteBack)
	status.Durations(s, "pmnbd_target_fdatasync_duration_seconds", "How long calls of fdatasync took, those of the superblock among them.", &r.Fdatasync)
	status.Gauge(s, "pmnbd_target_region_bad_bytes", "How much of the region its medium has lost.", badBytes(r.Bad))
	status.Gauge(s, "pmnbd_target_region_doubt_left_bytes", "How much the flush that settles doubt still has to do.", r.DoubtLeft)
}

func collectBattery(s status.Scrape, b *target.BatterySnapshot) {
	status.Truth(s, "pmnbd_target_battery_unknown", "1 if the command of --battery-command failed.", b.Error != "")
	status.Truth(s, "pmnbd_target_battery_on", "1 if the host runs on battery.", b.OnBattery)
	if b.Runtime != nil {
		status.Gauge(s, "pmnbd_target_battery_runtime_seconds", "How long the battery lasts, by its own words.", *b.Runtime)
	}
}

func collectProtection(s status.Scrape, p *target.ProtectionSnapshot) {
	saved := 0.0
	if p.SavedAt != nil {
		saved = float64(p.SavedAt.UnixMilli()) / 1e3
	}
	status.Truth(s, "pmnbd_target_image_whole", "1 if the image has everything: a power failure now loses nothing.", p.Whole)
	status.Gauge(s, "pmnbd_target_image_saved_time_seconds", "When the last save ended, since the epoch; 0 if there was none.", saved)
	status.Gauge(s, "pmnbd_target_image_dirty_bytes", "How much a save would write now.", p.Dirty)
	status.Gauge(s, "pmnbd_target_image_disk_bytes_per_second", "What the disk for saves was measured to take; 0 if it could not be measured.", p.Speed)
	written, of := 0.0, 0.0
	if p.Saving != nil {
		written, of = float64(p.Saving.Written), float64(p.Saving.Of)
	}
	status.Gauge(s, "pmnbd_target_saving_bytes", "How much the save under way writes; 0 if there is none.", of)
	status.Gauge(s, "pmnbd_target_saving_written_bytes", "How much of that it has written.", written)
	status.Gauge(s, "pmnbd_target_save_expected_seconds", "How long a save would take now.", p.Expected)
	status.Gauge(s, "pmnbd_target_save_within_seconds", "How long a save may take.", p.Within)
	status.Truth(s, "pmnbd_target_region_refusing", "1 if no session is granted, because the region was saved, or could not be.", p.Refuses != "")
	status.Gauge(s, "pmnbd_target_region_losses", "How often the region's contents were lost.", uint64(p.Losses))
}

func collectMember(s status.Scrape, m *target.MemberSnapshot) {
	status.Gauge(s, "pmnbd_target_member_info", "The mirror that the region is a member of. Always 1.", 1, "mirror", m.Mirror.String(), "member", m.Member)
	status.Truth(s, "pmnbd_target_member_torn", "1 if a copy to the region has begun and has not ended: it serves nobody.", m.Torn)
	status.Truth(s, "pmnbd_target_member_in_sync", "1 if the region had every flushed write when its record was written.", strings.Contains(m.InSync, m.Member))
	for _, o := range m.Others {
		status.Gauge(s, "pmnbd_target_member_behind_bytes", "How many bytes another member of the mirror may lack.", o.Behind, "other", o.Member)
	}
}
