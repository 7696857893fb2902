package remote

import (
	"errors"
	"log/slog"

	"pmnbd/internal/mirror"
	"pmnbd/persist/wire"
)

// A member of F can be of no use for a while, and the mirror must have it all the same, because too few
// copies would remain (Config of the mirror: M). Its target is asked again and again, after pauses that
// grow as those of a target that nothing waits for:
//
//	refused ─► (region clear) ─► granted, other contents ─► in F, not equal ─► resync ─► a generation names them
//	an access error, twice ─► granted, the same contents ─► goes on

// retriedLocked returns what becomes of g, which is in F, and would be met so, if it was of no use before,
// or has lost its contents. It is let go first, unless the mirror needs it. The caller holds commit.mu.
func (k *copies) retriedLocked(g *leg, meeting mirror.Meeting, o *wire.Opened) mirror.Meeting {
	slot := int(o.Record.Slot)
	switch meeting {
	case mirror.Resume:
		// One that could not make a barrier durable comes back with other contents.
		if g.bad != nil && (k.doesWithoutLocked(g) || errors.As(g.bad, new(*BarrierError))) {
			return mirror.Gone
		}
	case mirror.Gone:
		if o.ContentsID != k.view.Record.Members[slot].Contents && k.regainsLocked(g, slot) {
			return mirror.Resume
		}
	}
	return meeting
}

// regainsLocked has the member of g, which lost its contents, stay in F and get all of them again. It is
// false if the member is to be let go, or must wait for that. The caller holds commit.mu.
func (k *copies) regainsLocked(g *leg, slot int) bool {
	next, ok := k.view.Regains(slot, k.awayLocked(k.timeout))
	if !ok {
		return false
	}
	if k.view.Equal.Has(slot) {
		k.log.Warn("A MEMBER LOST ITS CONTENTS, and too few copies would remain without it: FLUSH waits until everything is copied to it",
			slog.String("region", g.cfg.Region), slog.String("target", g.cfg.Addr))
	}
	k.view = next
	k.note(next)
	k.core.readableLocked()
	return true
}

// regains reports whether a member of F lacks the contents that its record names.
func (k *copies) regains() bool {
	c := &k.core.commit
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, g := range k.core.legs {
		if g.granted.Epoch != 0 && k.view.Lacks(g.slot, g.granted.ContentsID) {
			return true
		}
	}
	return false
}

// blamed notes that the target of g is of no use for now. It is asked again after pauses that grow.
func (g *leg) blamed(err error) bool {
	if !g.core.copies.blames(g, err) {
		return false
	}
	g.faulty = true
	return true
}
