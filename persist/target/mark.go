package target

import (
	"log/slog"

	"pmnbd/persist"
	"pmnbd/persist/region"
)

// A region's mark distinguishes it from an older copy of itself. The epoch cannot,
// because it stays the same throughout a session. The mark advances while a session makes
// writes durable, and with CLOSE. The initiator keeps the highest mark that it was told
// and names it in RESUME. If the region has a lower one, somebody has restored it from an
// older copy.
//
// Only sessions advance the mark. A restored region grants no session to the owner that
// could notice, so the mark of a copy never catches up. That is why a start of the target
// and `region clear` leave the mark alone.

// beat makes the syncer advance the mark if session s has made writes durable since the
// last time, and that was an interval ago. Each heartbeat of s calls it. So the last
// writes before an idle time are marked, too, and the disk can sleep afterwards. Once an
// interval, also in an idle session, beat makes the syncer check whether the region is
// still ours.
func (y *syncer) beat(s *session) {
	y.mu.Lock()
	defer y.mu.Unlock()
	now, interval := clock(), int64(y.e.s.cfg.MarkInterval)
	// Under the methods without the target's CPU, the target does not see barriers.
	active := s.method != persist.MethodGPSPM || y.e.barriers.Load() != y.marked
	mark, look := active && now-y.markedAt >= interval, now-y.lookedAt >= interval
	if mark && !y.marking || look && !y.looking {
		y.marking, y.looking = mark || y.marking, look || y.looking
		y.signal()
	}
}

// look ends the session if another process has changed the superblock. The initiator then
// learns that the region failed, even if it only reads.
func (y *syncer) look() {
	y.mu.Lock()
	due := y.looking
	if due { // a heartbeat during the look can ask for the next one
		y.looking, y.lookedAt = false, clock()
	}
	y.mu.Unlock()
	if !due {
		return
	}
	failed := y.e.r.Failed() != nil // a barrier has reported it, or the next one does
	err := y.e.r.Check()
	if err == nil {
		return
	}
	if !failed {
		y.e.s.log.Error("region failed", slog.String("region", y.e.r.Name()), slog.Any("error", err))
	}
	y.end(!failed)
}

// end ends the session of a region that failed. Under gpspm the next barrier reports the
// failure, so end ends the session only if that is not soon enough.
func (y *syncer) end(now bool) {
	y.e.mu.Lock()
	s := y.e.session
	y.e.mu.Unlock()
	if s != nil && (now || s.method != persist.MethodGPSPM) {
		s.interrupt()
	}
}

// mark advances the mark if that is due.
func (y *syncer) mark() {
	y.mu.Lock()
	due := y.marking
	y.mu.Unlock()
	if !due {
		return
	}
	barriers := y.e.barriers.Load() // barriers that are acknowledged from here on need another mark
	err := y.e.r.Update(func(sb *region.Superblock) error {
		sb.Mark++
		return nil
	})
	y.mu.Lock()
	y.marking, y.marked, y.markedAt = false, barriers, clock()
	y.mu.Unlock()
	if err != nil { // the region has failed, or the disk of its image
		y.e.s.log.Error("mark not advanced", slog.String("region", y.e.r.Name()), slog.Any("error", err))
		y.end(false)
	}
}
