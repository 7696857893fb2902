package target

import (
	"errors"
	"fmt"
	"log/slog"

	"pmnbd/persist"
	"pmnbd/persist/region"
	"pmnbd/persist/wire"
)

// close handles CLOSE. The region is free before the initiator hears of it.
func (s *session) close(epoch uint64) error {
	if epoch != s.epoch {
		return fmt.Errorf("%w: CLOSE of epoch %d in epoch %d", errStranger, epoch, s.epoch)
	}
	if err := s.endLease(); err != nil {
		return err
	}
	s.conn.log.Info("session closed", slog.String("region", s.export.r.Name()), slog.Uint64("epoch", s.epoch))
	s.conn.session = nil
	m := wire.Closed{Epoch: epoch, Mark: s.export.r.Superblock().Mark}
	err := s.conn.out.send(s.conn, m.Append(nil))
	s.conn.standBy()
	return err
}

// endLease ends the lease: it ends the other lanes and the session's key, then marks the
// region clean.
func (s *session) endLease() error {
	e := s.export
	if !e.granting.TryLock() {
		return errors.New("the target is granting the region to another session")
	}
	defer e.granting.Unlock()
	if err := s.end(s.conn); err != nil {
		return fmt.Errorf("end the other lanes: %w", err)
	}
	e.syncer.forget(s.conn)
	e.settlings.forget(s.conn) // the connection may get another session, whose barriers do not cover them
	s.conn.behind, s.conn.midway = false, false
	s.conn.failed.Store(0)
	if err := s.conn.domain.Deregister(s.mem); err != nil {
		return fmt.Errorf("end the session's key: %w", err)
	}
	err := e.r.Update(func(sb *region.Superblock) error {
		sb.Clean = !sb.Doubt && !sb.Failed
		sb.Mark++ // a copy that was made during the session has the session's epoch, too
		return nil
	})
	if err != nil {
		return fmt.Errorf("mark the region clean: %w", err)
	}
	if e.image != nil && s.method == persist.MethodGPSPM {
		e.image.Known() // every barrier has named what it covers, and CLOSE comes behind all of them
	}
	e.released.Store(true)
	e.mu.Lock()
	e.session = nil
	e.mu.Unlock()
	return nil
}
