package remote

import (
	"crypto/sha256"
	"encoding/binary"

	"pmnbd/internal/mirror"
	"pmnbd/persist"
	"pmnbd/persist/wire"
)

// A session is what the header of a mirror's window keeps of one member: what its target granted, so
// that the next run can RESUME. All is zero if the run never had a session on the member.
type session struct {
	UUID, ContentsID [16]byte // of the region
	Epoch            uint64
	Mark             uint64 // the highest mark that the target has told
	// Target is a sum of the address and of the region's name. It says where a member is that
	// cannot be reached.
	Target uint64
	Class  uint32
}

// targetSum is the sum of a target in a session.
func (c *Config) targetSum() uint64 {
	sum := sha256.Sum256([]byte(c.Addr + "\x00" + c.Region))
	return binary.LittleEndian.Uint64(sum[:])
}

// noteSession keeps what the target of g granted.
func (h *header) noteSession(g *leg, o *wire.Opened) {
	is := &h.Sessions[g.slot]
	if is.UUID != o.UUID {
		*is = session{}
	}
	*is = session{
		UUID: o.UUID, ContentsID: o.ContentsID, Epoch: o.Epoch, Mark: max(is.Mark, o.Mark),
		Target: g.cfg.targetSum(), Class: uint32(o.Class),
	}
	h.Size = o.Size
}

// session is what a leg has to know of the session on the member in slot before it sends RESUME.
// Its epoch is zero if the run never had a session there.
func (h *header) session(slot int) wire.Opened {
	s := &h.Sessions[slot]
	if s.Epoch == 0 {
		return wire.Opened{}
	}
	return wire.Opened{UUID: s.UUID, Size: h.Size, Class: persist.Class(s.Class), ContentsID: s.ContentsID, Epoch: s.Epoch, Mark: s.Mark}
}

// goesOn reports whether the life in the header of a mirror's window may have begun a generation. Only
// that life can tell which members have every write, so the next run is that life (mirror §4.5).
func (h *header) goesOn() bool { return h.Mirror.Pending || h.Mirror.Serves() }

// relies returns the members that the life in h cannot do without. One that it was about to remove is
// none.
func (h *header) relies() persist.Members {
	return (h.Mirror.Record.F | h.Mirror.Active) & h.Mirror.Record.Present()
}

// noteMirror keeps what this life knows of its mirror for the next run, before any member learns it
// (mirror §3.3).
func (d *Device) noteMirror(v mirror.View) {
	if d.file == nil {
		return
	}
	d.file.update(func(h *header) { h.Mirror = v })
}

// noteServes notes that clients are served from now on.
func (d *Device) noteServes() {
	d.served.Store(true)
	if d.file != nil {
		d.file.update(func(h *header) { h.Opened = 1 })
	}
}

// forgetSession implements device.
func (d *Device) forgetSession(region [16]byte) {
	if d.file == nil {
		return
	}
	d.file.update(func(h *header) {
		for slot := range h.Sessions { // another member may have got its slot
			if h.Sessions[slot].UUID == region {
				h.Sessions[slot] = session{}
			}
		}
	})
}

// departing returns the record of the life in h with the members that it has removed, or is about to
// remove, and whose targets nobody has told that.
func (h *header) departing() persist.Record {
	r := h.Mirror.Record
	for slot := range h.Sessions {
		if s := &h.Sessions[slot]; s.Epoch != 0 && !r.Present().Has(slot) {
			r.Members[slot].UUID = s.UUID
		}
	}
	return r
}

// noteLife keeps the sessions with which owner begins a life, and the generation that is pending. It
// is one update: a view whose sessions nobody knows cannot go on.
func (d *Device) noteLife(owner persist.Owner, v mirror.View, granted map[*leg]*wire.Opened) {
	if d.file == nil {
		return
	}
	d.file.update(func(h *header) {
		h.Owner, h.Mirror, h.Sessions = owner, v, [persist.MaxMembers]session{}
		for g, o := range granted {
			h.noteSession(g, o)
		}
	})
}
