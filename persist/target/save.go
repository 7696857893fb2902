package target

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"pmnbd/persist/region"
	"pmnbd/persist/wire"
)

// A protected is what the server asks of a region of class protected, beyond what it asks of
// every region. Tests put something else in its place.
type protected interface {
	Save(ctx context.Context) (region.Saved, error)
	Protection() (region.Protection, bool)
	SaveTrouble() error
	Known()
}

// A Saved is what came of the save of one region.
type Saved struct {
	Region string
	// Bytes is how many were written, and Took how long that took.
	Bytes uint64
	Took  time.Duration
	// Err is why the region is not saved, or nil.
	Err error
}

// protects returns the regions of class protected, by name.
func (s *Server) protects() []*export {
	offer := s.offer.Load()
	if offer == nil {
		return nil // New is not through
	}
	var all []*export
	for _, e := range offer.exports {
		if e.image != nil {
			all = append(all, e)
		}
	}
	slices.SortFunc(all, func(a, b *export) int { return strings.Compare(a.r.Name(), b.r.Name()) })
	return all
}

// Save saves all regions of class protected, at the same time, and returns when that is done.
// First it ends their sessions: their keys are destroyed, and the server grants no session on
// such a region any more until Resume. Owners keep their regions, and come back by RESUME.
// Sessions on other regions go on. A second Save waits for the first one, and writes what
// remains. If ctx ends, the saves do. A disk that does not answer for a minute
// ends its save.
func (s *Server) Save(ctx context.Context) ([]Saved, error) {
	return s.SaveTelling(ctx, func(Saved) {})
}

// SaveTelling is Save, and calls tell with what came of each region as soon as that is through, one
// at a time.
func (s *Server) SaveTelling(ctx context.Context, tell func(Saved)) ([]Saved, error) {
	s.changing.Lock() // no region comes or goes meanwhile
	defer s.changing.Unlock()
	if s.isClosed() {
		return nil, errWithdrawing
	}
	exports := s.protects()
	for e := range s.left {
		if e.image != nil { // its Change waits for a disk that hangs, maybe of another region
			exports = append(exports, e)
		}
	}
	if len(exports) == 0 {
		return nil, nil
	}
	s.halted.Store(true) // a grant looks at it with the lock that save takes
	s.log.Info("saving: sessions on protected regions end, and none is granted before `pmnbd-target resume`", slog.Int("regions", len(exports)))
	saved := make([]Saved, len(exports))
	var all sync.WaitGroup
	var telling sync.Mutex
	for i, e := range exports {
		all.Go(func() {
			saved[i] = e.save(ctx)
			telling.Lock()
			defer telling.Unlock()
			tell(saved[i])
		})
	}
	all.Wait()
	return saved, nil
}

// save ends the region's session, and saves the region.
func (e *export) save(ctx context.Context) Saved {
	e.granting.Lock() // waits for a grant under way
	defer e.granting.Unlock()
	log := e.s.log.With(slog.String("region", e.r.Name()))
	if e.session != nil {
		// The Writes of a session that goes on would be acknowledged and not in the image.
		if err := e.session.end(nil); err != nil {
			err = fmt.Errorf("the adapter did not end the session, and what it still stores would be missing: restart pmnbd-target, then save: %w", err)
			log.Error("region not saved", slog.Any("error", err))
			return Saved{Region: e.r.Name(), Err: err}
		}
	}
	switch err := e.syncer.rest(); {
	case errors.Is(err, region.ErrSave):
		log.Warn("the image could not be changed before the save, which tries it again", slog.Any("error", err))
	case err != nil:
		log.Warn("the region failed, and is saved as it is", slog.Any("error", err))
	}
	done, err := e.image.Save(ctx)
	if err != nil {
		log.Error("region not saved", slog.Any("error", err))
		return Saved{Region: e.r.Name(), Err: err}
	}
	log.Info("region saved", slog.Uint64("bytes", done.Bytes), slog.Duration("took", done.Took))
	return Saved{Region: e.r.Name(), Bytes: done.Bytes, Took: done.Took}
}

// errNotHalted is the error of a Resume without a Save.
var errNotHalted = errors.New("nothing to resume: the target grants sessions, unless status says why not")

// Resume ends what Save began: sessions are granted again. Each owner has a lease's time to
// come back before another initiator can have its region.
func (s *Server) Resume() error {
	s.changing.Lock()
	defer s.changing.Unlock()
	if !s.halted.Load() {
		return errNotHalted
	}
	exports := s.protects()
	for _, e := range exports {
		e.heard()
	}
	s.halted.Store(false)
	for _, e := range exports {
		e.syncer.signal() // it may have work from before
	}
	s.log.Info("resumed: sessions are granted again")
	return nil
}

// halted reports whether a save of e has begun, and Resume has not been called.
func (e *export) halted() bool { return e.image != nil && e.s.halted.Load() }

// heard begins the owner's lease again.
func (e *export) heard() {
	e.mu.Lock()
	session := e.session
	e.mu.Unlock()
	if session != nil {
		session.heard.Store(clock())
	}
	e.started.Store(clock())
}

// withheld refuses m, which could be granted, while a save could not keep what it would store.
// That holds for RESUME, too, unless it is the memory that has lost something (short): until the owner
// is back it keeps its window, and a FLUSH that it sent could be lost. The image of a region that was saved stays whole. Meanwhile the owner's
// lease goes on as long as it asks.
func (e *export) withheld(m *wire.Open, resume bool) *wire.Refused {
	why := e.withholds(resume)
	if why == "" {
		return nil
	}
	if owner := e.r.Superblock().Owner; resume && m.Owner == owner {
		e.heard()
	}
	return &wire.Refused{Code: wire.CodeBusy, Seconds: 1, Text: why}
}
