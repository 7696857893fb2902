package region

import "pmnbd/internal/latency"

// SyncLatency says how long the syncs took that ended since the region was opened, those that
// failed and those of the superblock too. Only class file has any. It does not wait for a sync.
func (r *Region) SyncLatency() latency.Histogram { return r.synced.Took() }
