package target

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"pmnbd/persist/region"
	"pmnbd/persist/wire"
)

// An Offer is what a server serves, and to whom. Nobody changes one that a server has.
type Offer struct {
	// Regions are served by their names.
	Regions []*region.Region
	// Allow names, by region, the ids of the initiators that may OPEN it. Anybody may
	// OPEN a region that is not in Allow. Without Keys ids are not proven, so Allow then
	// prevents mistakes, not attacks.
	Allow map[string][][16]byte
	// Encrypted has the names of the regions that only encrypted connections may OPEN.
	Encrypted map[string]bool
	// Keys has the keys with which sessions authenticate from now on. It is nil if and only if
	// Config.Keys is.
	Keys Keys
}

// An offered is an Offer in force.
type offered struct {
	Offer
	exports map[string]*export
}

// served returns the regions that are served now. Nobody changes the map.
func (s *Server) served() map[string]*export { return s.offer.Load().exports }

// newExport begins to serve r.
func (s *Server) newExport(r *region.Region) *export {
	e := &export{s: s, r: r}
	e.started.Store(clock())
	switch _, ok := r.Protection(); {
	case s.cfg.image != nil:
		e.image = s.cfg.image(r)
	case ok:
		e.image = r
	}
	e.syncer = newSyncer(e) // which looks at the image at once if there is doubt
	if e.image != nil {
		e.watch(lookEvery)
	}
	return e
}

// close ends the goroutines of e. All its lanes must have ended.
func (e *export) close() {
	e.disk.close()
	e.syncer.close()
}

// A HeldError means that a region cannot be withdrawn: an initiator holds it.
type HeldError struct {
	Region string
	Holder uuid.UUID     // zero: it is being granted
	Left   time.Duration // of the holder's lease, unless it shows that it lives
}

func (e *HeldError) Error() string {
	if e.Holder == uuid.Nil {
		return fmt.Sprintf("region %s is being granted to an initiator", e.Region)
	}
	return fmt.Sprintf("region %s is held by initiator %s, for %d more seconds and longer while that lives: end its pmnbd first", e.Region, e.Holder, int64(e.Left.Seconds()+1))
}

// errWithdrawing is the error of a Change after Close.
var errWithdrawing = errors.New("the target is ending")

// errKeys is the error of a Change that would begin or cease to ask for keys.
var errKeys = errors.New("a server has keys from its start to its end, or never")

// Change makes the server serve what o offers, and nothing else. Sessions on regions that it served
// before and that o has (the same *region.Region) go on: who may OPEN them, and with which key, counts
// from the next OPEN or RESUME. No session is granted partly by the old offer and partly by o. A
// region that o does not have is withdrawn. If an initiator holds that, Change fails with a
// *HeldError for each such region, and changes nothing. So it does if a region's disk hangs, and its
// last session cannot end. Otherwise Change calls last once the sessions on those regions have ended.
// A Save includes the regions until last has returned. The caller closes them once Change has returned.
func (s *Server) Change(o Offer, last func()) error {
	left, err := s.change(o)
	closeAll(left) // without the lock: a save must not wait for a disk that hangs
	if err == nil {
		last()
	}
	s.changing.Lock() // the caller must wait for a save of what has left
	defer s.changing.Unlock()
	for _, e := range left {
		delete(s.left, e)
		s.leaving.Done()
	}
	return err
}

// change does what Change says, and returns the exports to close, which are in s.left then, and counted in s.leaving.
func (s *Server) change(o Offer) (left []*export, _ error) {
	s.changing.Lock()
	defer s.changing.Unlock()
	defer func() {
		for _, e := range left {
			s.left[e] = true
			s.leaving.Add(1)
		}
	}()
	if s.isClosed() {
		return nil, errWithdrawing
	}
	if (o.Keys == nil) != (s.cfg.Keys == nil) {
		return nil, errKeys
	}
	old, next := s.served(), make(map[string]*export)
	var begun, gone []*export
	for _, r := range o.Regions {
		if e := old[r.Name()]; e != nil && e.r == r {
			next[r.Name()] = e
			continue
		}
		e := s.newExport(r)
		begun, next[r.Name()] = append(begun, e), e
	}
	for name, e := range old {
		if next[name] != e {
			gone = append(gone, e)
		}
	}
	slices.SortFunc(gone, func(a, b *export) int { return strings.Compare(a.r.Name(), b.r.Name()) })
	if err := s.withdraw(gone); err != nil {
		return begun, err
	}
	s.offer.Store(&offered{o, next})
	for _, e := range gone {
		e.granting.Unlock() // a grant that waits finds it withdrawn
	}
	return gone, nil
}

// closeAll closes them at the same time: each may wait for a disk that hangs.
func closeAll(exports []*export) {
	var all sync.WaitGroup
	for _, e := range exports {
		all.Go(e.close)
	}
	all.Wait()
}

// withdraw lets nobody have the regions any more, or changes nothing. It returns with the lock
// granting of each.
func (s *Server) withdraw(exports []*export) error {
	var held []error
	var locked []*export
	for _, e := range exports {
		if !e.granting.TryLock() {
			held = append(held, &HeldError{Region: e.r.Name()})
			continue
		}
		locked = append(locked, e)
		if err := e.holderLocked(); err != nil {
			held = append(held, err)
		}
	}
	for _, e := range locked {
		if len(held) > 0 {
			break
		}
		// The session of an owner whose lease is over may still have queue pairs.
		if e.session != nil {
			if err := s.endSoon(e.session); errors.Is(err, errHangs) {
				held = append(held, fmt.Errorf("region %s: %w", e.r.Name(), err))
			} else if err != nil {
				held = append(held, fmt.Errorf("region %s: the adapter did not end the previous session, restart pmnbd-target: %w", e.r.Name(), err))
			}
		}
	}
	for _, e := range locked {
		if len(held) > 0 {
			e.granting.Unlock()
			continue
		}
		e.withdrawn = true
	}
	return errors.Join(held...)
}

// errHangs: a lane waits for a disk, in a sync or in a page fault.
var errHangs = errors.New("its disk does not answer, and the previous session waits for that: try again when it has")

// endSoon ends a session, whose lease is over. If that takes as long as no disk should, endSoon gives up, with
// errHangs. The session ends all the same. The caller holds s.changing.
func (s *Server) endSoon(old *session) error {
	ended := make(chan error, 1)
	s.leaving.Go(func() { ended <- old.end(nil) })
	patience := time.NewTimer(s.cfg.diskAnswers)
	defer patience.Stop()
	select {
	case err := <-ended:
		return err
	case <-patience.C:
		return errHangs
	}
}

// holderLocked returns a *HeldError if the region's owner has not closed, and its lease runs. The lock
// is e.granting.
func (e *export) holderLocked() error {
	sb := e.r.Superblock()
	if left := e.leaseLeft(e.session); e.held(&sb, e.session) && left > 0 {
		return &HeldError{Region: e.r.Name(), Holder: sb.Owner.ID, Left: left}
	}
	return nil
}

// unknown refuses a region that the target does not serve.
func unknown(name string) *wire.Refused {
	return &wire.Refused{Code: wire.CodeUnknownRegion, Text: fmt.Sprintf("the target serves no region %q", name)}
}
