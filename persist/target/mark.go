package target

import (
	"go.uber.org/zap"

	"pmnbd/persist"
	"pmnbd/persist/region"
)

// A region's mark tells a region from an older copy of it. The epoch cannot: it stays the
// same for as long as a session goes on. The mark advances while a session makes writes
// durable, and with CLOSE; the initiator keeps the highest that it was told, and names it
// in RESUME. A region with a lower one was put back from a copy that somebody made before.
//
// Only sessions advance it, and a region that was put back gets none of the owner that
// could notice: so the mark of a copy never catches up. That is why a start of the target
// and `region clear` leave it alone.

// beat has the syncer advance the mark, if session s has made writes durable since the last
// time and that was an interval ago. Each heartbeat of s calls it: so what is idle has its
// last writes marked, too, and its disk may sleep afterwards. An interval after the last
// time the syncer looks whether the region is still ours, also while the session is idle.
func (y *syncer) beat(s *session) {
	y.mu.Lock()
	defer y.mu.Unlock()
	now, interval := clock(), int64(y.e.s.cfg.MarkInterval)
	// Under the methods without the target's CPU nobody sees what a session does.
	active := s.method != persist.MethodGPSPM || y.e.barriers.Load() != y.marked
	mark, look := active && now-y.markedAt >= interval, now-y.lookedAt >= interval
	if mark && !y.marking || look && !y.looking {
		y.marking, y.looking = mark || y.marking, look || y.looking
		y.signal()
	}
}

// look ends the session if another process has changed the superblock: its initiator then
// hears that the region failed, also if it only reads.
func (y *syncer) look() {
	y.mu.Lock()
	due := y.looking
	if due { // a heartbeat that comes during the look can ask for the next one
		y.looking, y.lookedAt = false, clock()
	}
	y.mu.Unlock()
	if !due {
		return
	}
	failed := y.e.r.Failed() != nil // a barrier has said so, or the next one does
	err := y.e.r.Check()
	if err == nil {
		return
	}
	if !failed {
		y.e.s.log.Error("region failed", zap.String("region", y.e.r.Name()), zap.Error(err))
	}
	y.end(!failed)
}

// end ends the session of a region that failed. One whose barriers come to this CPU hears of
// the failure from the next barrier, and is ended only if that is not soon enough.
func (y *syncer) end(now bool) {
	y.e.mu.Lock()
	s := y.e.session
	y.e.mu.Unlock()
	if s != nil && (now || s.method != persist.MethodGPSPM) {
		s.interrupt()
	}
}

// mark advances the mark, if that is due.
func (y *syncer) mark() {
	y.mu.Lock()
	due := y.marking
	y.mu.Unlock()
	if !due {
		return
	}
	barriers := y.e.barriers.Load() // what is acknowledged from here on needs another mark
	err := y.e.r.Update(func(sb *region.Superblock) error {
		sb.Mark++
		return nil
	})
	y.mu.Lock()
	y.marking, y.marked, y.markedAt = false, barriers, clock()
	y.mu.Unlock()
	if err != nil { // the region has failed
		y.e.s.log.Error("mark not advanced", zap.String("region", y.e.r.Name()), zap.Error(err))
		y.end(false)
	}
}
