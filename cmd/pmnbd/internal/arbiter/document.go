package arbiter

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"pmnbd/persist"
)

// errDocument: what etcd has under a key is not what this package writes there.
var errDocument = errors.New("etcd holds something else than pmnbd writes there")

// maxDocument bounds what is read of etcd, in bytes. A full record takes 6 KiB.
const maxDocument = 64 << 10

// version is that of a record. A pmnbd that does not know a field would forget it.
const version = 1

// A generation is a persist.Ancestor as JSON. Nonce has the form of a UUID.
type generation struct {
	Life  uint64    `json:"life"`
	Count uint64    `json:"count"`
	Nonce uuid.UUID `json:"nonce"`
	F     string    `json:"in_sync"`
}

// A member is a persist.Membership as JSON. The ids have the form of a UUID.
type member struct {
	Slot     string    `json:"slot"`
	UUID     uuid.UUID `json:"uuid"`
	Contents uuid.UUID `json:"contents"`
	Epoch    uint64    `json:"epoch"`
}

// A record is a persist.Record as JSON. Slots are letters.
type record struct {
	Version   int       `json:"version"`
	Set       uuid.UUID `json:"mirror"`
	MinCopies uint8     `json:"min_copies"`
	Async     string    `json:"asynchronous,omitempty"`
	generation
	Members []member     `json:"members"`
	Lineage []generation `json:"lineage"`
}

// encodeRecord encodes what the arbiter holds of a mirror. It fails if r has what the JSON has no room
// for: Decode would lose it.
func encodeRecord(r *persist.Record) ([]byte, error) {
	is := record{Version: version, Set: r.Set, MinCopies: r.MinCopies, Async: letters(r.Async), generation: of(&r.Ancestor)}
	for slot := range r.Members {
		if m := &r.Members[slot]; *m != (persist.Membership{}) {
			is.Members = append(is.Members, member{persist.Member(slot).String(), m.UUID, m.Contents, m.Epoch})
		}
	}
	for i := range r.Lineage {
		if a := &r.Lineage[i]; *a != (persist.Ancestor{}) {
			is.Lineage = append(is.Lineage, of(a))
		}
	}
	b, err := json.Marshal(&is)
	if err != nil {
		return nil, fmt.Errorf("encode the record of a mirror: %w", err)
	}
	if back, err := decodeRecord(b); err != nil || back != *r {
		return nil, fmt.Errorf("encode the record of generation %s: %w", r, errors.Join(errDocument, err))
	}
	return b, nil
}

// decodeRecord decodes what encodeRecord returned.
func decodeRecord(b []byte) (r persist.Record, err error) {
	var is record
	if len(b) > maxDocument {
		return r, fmt.Errorf("%w: a record of %d bytes", errDocument, len(b))
	}
	if err := json.Unmarshal(b, &is); err != nil {
		return r, fmt.Errorf("%w: %w", errDocument, err)
	}
	if is.Version != version {
		return r, fmt.Errorf("%w: a record of version %d, and this pmnbd knows %d: use one pmnbd everywhere", errDocument, is.Version, version)
	}
	r.Set, r.MinCopies, r.Arbiter = is.Set, is.MinCopies, true
	var ok [3]bool
	r.Ancestor, ok[0] = is.ancestor()
	r.Async, ok[1] = members(is.Async)
	ok[2] = len(is.Lineage) <= len(r.Lineage)
	for i := range min(len(is.Lineage), len(r.Lineage)) {
		var known bool
		r.Lineage[i], known = is.Lineage[i].ancestor()
		ok[2] = ok[2] && known
	}
	for _, m := range is.Members {
		slot, known := members(m.Slot)
		if !known || slot.Count() != 1 {
			return r, fmt.Errorf("%w: a member in slot %q", errDocument, m.Slot)
		}
		for i := range r.Members {
			if slot.Has(i) {
				r.Members[i] = persist.Membership{UUID: m.UUID, Contents: m.Contents, Epoch: m.Epoch}
			}
		}
	}
	for r.Slot < persist.MaxMembers-1 && !r.F.Has(int(r.Slot)) {
		r.Slot++
	}
	if ok != [3]bool{true, true, true} {
		return r, fmt.Errorf("%w: slots that are no letters from A to %v", errDocument, persist.Member(persist.MaxMembers-1))
	}
	if err := r.Check(); err != nil {
		return r, fmt.Errorf("%w: %w", errDocument, err)
	}
	return r, nil
}

func of(a *persist.Ancestor) generation {
	return generation{a.Life, a.Count, a.Nonce, letters(a.F)}
}

func (g *generation) ancestor() (a persist.Ancestor, ok bool) {
	a.Generation = persist.Generation{Life: g.Life, Count: g.Count, Nonce: g.Nonce}
	a.F, ok = members(g.F)
	return a, ok
}

// letters is m as in "AC".
func letters(m persist.Members) string {
	var b strings.Builder
	for slot := range persist.MaxMembers {
		if m.Has(slot) {
			b.WriteString(persist.Member(slot).String())
		}
	}
	return b.String()
}

// members is what letters returned m for.
func members(text string) (m persist.Members, ok bool) {
	for _, c := range text {
		slot := int(c - 'A')
		if slot < 0 || slot >= persist.MaxMembers {
			return 0, false
		}
		m |= persist.Member(slot)
	}
	return m, true
}

// A holder is the value of the active key: who has a mirror.
type holder struct {
	Initiator uuid.UUID `json:"initiator"`
	Boot      uuid.UUID `json:"boot"` // of the host
	Host      string    `json:"host"`
	PID       int       `json:"pid"`
	Since     time.Time `json:"since"`
}

func (h *holder) String() string {
	if h.Initiator == uuid.Nil {
		return "another initiator"
	}
	return fmt.Sprintf("%s (initiator %v, process %d)", h.Host, h.Initiator, h.PID)
}

// decodeHolder decodes the value of an active key. What cannot be read is nobody that this package knows.
func decodeHolder(b []byte) (h holder) {
	if len(b) > maxDocument || json.Unmarshal(b, &h) != nil {
		return holder{}
	}
	return h
}
