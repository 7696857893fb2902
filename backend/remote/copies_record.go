package remote

import (
	"pmnbd/internal/mirror"
	"pmnbd/persist"
)

// A renewal is the wish of a leg outside F that all of F name the session that it has (mirror §3.6). leg has
// what they are to name.
type renewal struct {
	leg     mirror.Leg
	lacks   bool // it has lost its contents: all its bits are to be set, too
	begun   bool
	written persist.Members // they have the record
	done    chan error      // takes the result
}

// disownLocked has all of F note that g's member lacks everything: it was put back from a copy, which its contents id
// does not tell the next life, and its epoch perhaps neither (mirror §3.6). If that cannot be now, it is tried again
// when the target refuses g again. The caller holds commit.mu.
func (k *copies) disownLocked(g *leg) {
	m := &k.view.Record.Members[g.slot]
	if g.joins || k.view.Record.F.Has(g.slot) || m.Contents == [16]byte{} || k.renew != nil && k.renew.lacks {
		return
	}
	l := mirror.Leg{Name: g.cfg.Region + " at " + g.cfg.Addr, Epoch: m.Epoch}
	l.Record, _ = k.view.RecordFor(g.slot) // a life that goes on after a kill has seen none of g
	k.renew = &renewal{leg: l, lacks: true, done: make(chan error, 1)}
}

// nameSessionLocked has all of F name the session of a leg whose bits they could clear, unless they do. A member that
// lost its contents goes first: it waits for that. The caller holds commit.mu.
func (k *copies) nameSessionLocked() {
	if k.renew != nil || k.view.Pending || !k.view.Serves() {
		return
	}
	outside := k.view.Record.Present() &^ k.view.Record.F
	for _, g := range k.core.legs {
		clears := g.copying != nil && g.copying.clears || g.follow.on
		if !clears || !g.up.Load() || !outside.Has(g.slot) || k.namesLocked(g) {
			continue
		}
		l := mirror.Leg{Name: g.cfg.Region + " at " + g.cfg.Addr, Contents: g.granted.ContentsID, Epoch: g.granted.Epoch}
		l.Record, _ = k.view.RecordFor(g.slot)
		k.renew = &renewal{leg: l, done: make(chan error, 1)}
		return
	}
}

// namesLocked reports whether all of F name the session of g, durably. The caller holds commit.mu.
func (k *copies) namesLocked(g *leg) bool {
	m := &k.known.Members[g.slot]
	return m.Contents == g.granted.ContentsID && m.Epoch == g.granted.Epoch
}

// sendPendingLocked sends the pending record to the legs of todo that are there. The caller holds
// commit.mu.
func (k *copies) sendPendingLocked(todo persist.Members) {
	k.sendLocked(todo, func(slot int, record *persist.Record) {
		if k.view.Pending && k.view.Record.Generation == record.Generation {
			k.written |= persist.Member(slot)
		}
	})
}

// sendLocked asks the targets of the legs in todo that are there to persist their records, all at the
// same time: a target that hangs does not delay the others. kept is called with commit.mu held for each
// one that has its record durably. The caller holds commit.mu.
func (k *copies) sendLocked(todo persist.Members, kept func(slot int, record *persist.Record)) {
	for _, g := range k.core.legs {
		slot := g.slot // of a leg that is up it stays
		if !g.up.Load() || !todo.Has(slot) || g.recording || k.life.Err() != nil {
			continue
		}
		record, fill := k.recordLocked(g)
		connection := g.generation.Load()
		g.recording = true
		k.ended.Add(1)
		go func() {
			defer k.ended.Done()
			err := g.setRecord(k.asking, connection, record, fill)
			c := &k.core.commit
			c.mu.Lock()
			defer c.mu.Unlock()
			g.recording = false
			if err == nil {
				kept(slot, &record)
			}
			if err == nil || g.generation.Load() != connection { // else it is about to be lost, which rouses
				k.rouse()
			}
		}()
	}
}

// recordLocked is what g is to persist, with all bits of the members in fill set. Barriers that are
// queued from now on come behind that.
func (k *copies) recordLocked(g *leg) (record persist.Record, fill persist.Members) {
	if record, fill = k.view.RecordFor(g.slot); fill != 0 {
		g.fills++
	}
	return record, fill
}

// renewLocked does the next step of r, and reports whether r is through. The caller holds commit.mu.
func (k *copies) renewLocked(r *renewal) (through bool) {
	if !r.begun {
		name := k.view.Name
		if r.lacks {
			name = k.view.Renew
		}
		next, err := name(&r.leg)
		if err != nil {
			k.renew = nil
			r.done <- err
			return true
		}
		k.view, r.begun = next, true
		k.note(next)
	}
	todo := r.todo(&k.view)
	if todo == 0 {
		k.view, k.renew, k.known = k.view.Renewed(), nil, k.view.Record
		k.note(k.view)
		r.done <- nil
		return true
	}
	k.sendLocked(todo, func(slot int, _ *persist.Record) { r.written |= persist.Member(slot) })
	return false
}

// todo are the members that r still waits for.
func (r *renewal) todo(v *mirror.View) persist.Members {
	if !r.begun {
		return 0
	}
	return v.Record.F &^ r.written
}
