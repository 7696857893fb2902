package remote

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"pmnbd/internal/mirror"
	"pmnbd/persist"
	"pmnbd/rdma"
)

// The life of a mirror survives a kill. The next run RESUMEs its sessions as the same owner, finishes
// the generation that the header names, replays the window and closes the sessions (mirror §4.5). It
// does not decide anew: only the life itself knows which members are equal, and a barrier that it
// had not finished may be on any of them.

// leastPatience is how long a target may at least be away before a life that goes on lets its member
// go. The run before may have lost it at the moment when it was killed, or not at all.
const leastPatience = time.Second

// errNotListed: a member that the life relies on is none of the start's targets.
var errNotListed = errors.New("the previous run of this initiator had it among the members that have every flushed write: name the targets of all members")

// seats returns the slot of the member behind each target: as the target says; else as the life knew
// it; else any that is left, those first that the life relies on. A leg on a wrong seat never gets a
// session, because its target names another region.
func (h *header) seats(legs []Config, found []mirror.Leg) ([]int, error) {
	slots := make([]int, len(legs))
	var taken, real persist.Members
	seat := func(leg, slot int, member bool) {
		slots[leg] = slot
		taken |= persist.Member(slot)
		if member {
			real |= persist.Member(slot)
		}
	}
	record := &h.Mirror.Record
	var rest, strangers []int
	for i := range legs {
		switch l := &found[i]; {
		case l.Reach == mirror.Away:
			rest = append(rest, i)
		case !l.MemberOf(record) || taken.Has(int(l.Record.Slot)):
			strangers = append(strangers, i)
		default:
			seat(i, int(l.Record.Slot), true)
		}
	}
	var unknown []int
	for _, i := range rest {
		slot := h.slotOf(legs[i].targetSum())
		if slot < 0 || taken.Has(slot) {
			unknown = append(unknown, i)
			continue
		}
		seat(i, slot, true)
	}
	for _, i := range unknown {
		seat(i, firstFree(taken, h.relies()&^taken, record.Present()&^taken), true)
	}
	left := h.departing()
	for _, i := range strangers {
		slot := int(found[i].Record.Slot)
		if !found[i].MemberOf(&left) || taken.Has(slot) {
			slot = firstFree(taken)
		}
		seat(i, slot, false)
	}
	if missing := h.relies() &^ real; missing != 0 {
		return nil, fmt.Errorf("member %v of the mirror is none of the targets: %w", missing, errNotListed)
	}
	return slots, nil
}

// slotOf returns the slot in which the life had the target of this sum, or -1.
func (h *header) slotOf(sum uint64) int {
	for slot := range h.Sessions {
		if s := &h.Sessions[slot]; s.Epoch != 0 && s.Target == sum {
			return slot
		}
	}
	return -1
}

// firstFree returns the lowest slot of the first set that is not empty, or else the lowest one that
// is not taken.
func firstFree(taken persist.Members, wanted ...persist.Members) int {
	for _, set := range append(wanted, (1<<persist.MaxMembers-1)&^taken) {
		for slot := range persist.MaxMembers {
			if set.Has(slot) {
				return slot
			}
		}
	}
	return 0 // a mirror has no more legs than slots
}

// goOn makes the replayer the life in the header. Its legs let go of what stays away, as a Device's
// do.
func (r *replayer) goOn(d *Device) {
	cfg := d.cfg
	cfg.LegTimeout = max(cfg.LegTimeout, leastPatience)
	cfg.LossTimeout = 0 // the next start adopts the window again, however long that takes
	r.core.copies = newCopies(r.core, cfg, d.noteMirror, r.fail)
	r.core.copies.view, r.core.copies.replays = r.file.header().Mirror, true
	r.core.copies.givesUp = cfg.Degraded && cfg.AcceptLoss
	if r.core.copies.view.Arbiter { // else it tells nobody; the life behind it does
		r.core.copies.office.term = d.term
	}
	r.core.copies.office.begin(&r.core.copies.view)
	h := r.file.header()
	// Not all of F may have it. But it names no session of this run: each RESUME raises the epoch.
	if r.core.copies.known = h.departing(); !h.Mirror.Pending {
		r.core.copies.departLocked() // nobody else has the mutex yet
	}
	r.core.copies.begin()
}

// farewell waits until the members that the life has removed know it, or cannot be told.
func (r *replayer) farewell(ctx context.Context) {
	k := r.core.copies
	if k == nil {
		return
	}
	c := &k.core.commit
	c.mu.Lock()
	leaving := k.left
	c.mu.Unlock()
	for _, left := range leaving {
		if left == nil {
			continue
		}
		select {
		case <-left.told: //nolint:errcheck // departs has logged the error
		case <-r.core.over:
		case <-ctx.Done():
		}
	}
}

// left returns the error of a replay that ended with err, and left the sessions with leaving. A life
// that cannot go on is a loss: another life has begun since, or the last member that had every write
// lost its contents. A session of a mirror that was not closed only costs the next life its clean start.
//
// The window of a region alone is lost, too, once no start can bring it to the target. Otherwise each start would end at
// the same place, and --accept-loss with it. A disk that was slower than the loss timeout is no such cause.
func (r *replayer) left(err, leaving error) error {
	if r.core.copies == nil {
		if err != nil && errors.As(r.cause, new(*lastingError)) && !errors.Is(r.cause, rdma.ErrTimeout) {
			return loss("%v; %d acknowledged bytes were not flushed", r.cause, r.core.unflushed())
		}
		return errors.Join(err, leaving)
	}
	if leaving != nil {
		r.log.Warn("a session of the previous pmnbd was not closed", slog.String("region", r.region), slog.Any("error", leaving))
	}
	if err != nil && (errors.As(r.cause, new(*lastingError)) || errors.Is(r.cause, mirror.ErrNoneEqual)) {
		lost := &LossError{fmt.Sprintf("%v; %d acknowledged bytes were not flushed", r.cause, r.core.unflushed())}
		if r.file.header().State == windowDrained && slices.ContainsFunc(r.legs, func(g *leg) bool { return g.givenBack(r.cause) }) {
			return closedError{lost}
		}
		return lost
	}
	return err
}

// A closedError means that a target refused the replay of a drained window because the previous run had closed its
// session. Everything was durable before that CLOSE, so nothing is lost.
type closedError struct{ lost *LossError }

func (e closedError) Error() string { return e.lost.Error() }
func (e closedError) Unwrap() error { return e.lost }
