package target

import (
	"github.com/stretchr/testify/require"

	"pmnbd/persist"
	"pmnbd/persist/wire"
)

// newRecord makes a RECORD from the one that log has, mostly of the next generation.
func (m *model) newRecord() *wire.Record {
	rec := m.record
	if rec == (persist.Record{}) {
		rec = memberOf(m.log, m.life, 0, memberA)
	}
	rec.Life += m.number(1)
	rec.Count += m.number(1)
	rec.F = persist.Members(m.number(1) % 16)
	switch change := m.number(1); change {
	case 1:
		rec = persist.Record{}
	case 2:
		rec.Set[0]++
	case 3:
		rec.Slot++
	case 4:
		rec.Members[3].UUID[0]++
	case 5:
		rec.Members[rec.Slot].UUID[0]++
	case 6:
		rec.Torn = !rec.Torn
	case 7:
		rec.Count -= 2
	case 8:
		rec.Members[1].Epoch++
	}
	return &wire.Record{Seq: 1, Record: rec, Fill: persist.Members(m.number(1) % 16)}
}

// took: the target has taken a RECORD. It must have been one that the region could get.
func (m *model) took(msg []byte) {
	var done wire.Record
	require.NoError(m.t, done.Decode(msg))
	old, rec := &m.record, &done.Record
	none := persist.Record{}
	if *rec != none {
		require.Equal(m.t, m.log.UUID(), rec.Members[rec.Slot].UUID)
		require.LessOrEqual(m.t, rec.Life, m.life)
	}
	if *old != none && *rec != none {
		require.Equal(m.t, old.Set, rec.Set)
		require.Equal(m.t, old.Slot, rec.Slot)
		require.False(m.t, rec.Before(old.Generation))
		if rec.Generation == old.Generation {
			require.Equal(m.t, old.F, rec.F)
		}
	}
	outside := rec.Present() &^ rec.F &^ persist.Member(int(rec.Slot))
	for slot := range rec.Members {
		if rec.Members[slot].UUID != old.Members[slot].UUID {
			m.lack |= persist.Member(slot)
		}
	}
	if done.Fill != 0 {
		m.fills++
	}
	m.lack = (m.lack | done.Fill) & outside
	if *rec == none && *old != none {
		m.life = 0
	}
	m.record = *rec
}

// acknowledged: the target has acknowledged a barrier.
func (m *model) acknowledged(msg []byte) {
	var b wire.Barrier
	require.NoError(m.t, b.Decode(msg))
	for _, g := range b.Clear {
		if g.Off == 0 && g.Len == fuzzSize {
			m.lack &^= persist.Member(int(b.ClearSlot))
		}
	}
	for _, g := range b.Ranges {
		if g.Len > 0 && m.record.F != 0 {
			m.lack |= m.record.Present() &^ m.record.F &^ persist.Member(int(m.record.Slot))
		}
	}
}

// refused checks what a refusal tells of a mirror.
func (m *model) refused(answer []byte) {
	var r wire.Refused
	require.NoError(m.t, r.Decode(answer))
	if r.UUID == m.log.UUID() {
		require.Equal(m.t, m.record, r.Record)
		require.Equal(m.t, m.life, r.Life)
		return
	}
	require.Zero(m.t, r.Record)
	require.Zero(m.t, r.Life)
}
