package target

import (
	"time"

	"pmnbd/persist"
	"pmnbd/persist/region"
)

// held reports whether the region has an owner, connected or not.
func (e *export) held(sb *region.Superblock, s *session) bool {
	return s != nil || (!sb.Clean && !e.released.Load() && sb.Owner != (persist.Owner{}))
}

// leaseLeft returns how long the owner may still stay silent: that of s or, if s is nil,
// one that this run of the target has not heard. The result may be negative.
func (e *export) leaseLeft(s *session) time.Duration {
	since := e.started.Load() // a target that starts grants a lease
	if s != nil {
		since = s.heard.Load()
	}
	return e.s.cfg.Lease - time.Duration(clock()-since)
}

// leased returns how long the lease of an id other than id still runs, or 0.
func (e *export) leased(id [16]byte, sb *region.Superblock, s *session) time.Duration {
	if id == sb.Owner.ID {
		return 0
	}
	return e.lease(sb, s)
}

// lease returns how long the lease of the region's owner still runs, or 0.
func (e *export) lease(sb *region.Superblock, s *session) time.Duration {
	if !e.held(sb, s) {
		return 0
	}
	return max(0, e.leaseLeft(s))
}
