package region

import (
	"encoding/binary"

	"pmnbd/persist"
)

// The record in a copy of the superblock (superblock.go). A generation and its F take 40
// bytes, and so does a member.
//
//	0                8                16               32      33         40
//	├────────────────┼────────────────┼────────────────┼───────┼──────────┤
//	│ life (8)       │ count (8)      │ nonce (16)     │ F (1) │ 0        │
//	└────────────────┴────────────────┴────────────────┴───────┴──────────┘
//	0                                 16                       32         40
//	├─────────────────────────────────┼────────────────────────┼──────────┤
//	│ UUID (16)                       │ contents id (16)       │ epoch (8)│
//	└─────────────────────────────────┴────────────────────────┴──────────┘
const (
	offAncestorCount = 8
	offAncestorNonce = 16
	offAncestorF     = 32
	ancestorSize     = 40

	offMemberContents = 16
	offMemberEpoch    = 32
	memberSize        = 40
)

// putRecord stores rec in a copy of the superblock, whose bytes are 0 there.
func putRecord(b []byte, rec *persist.Record) {
	copy(b[offSet:], rec.Set[:])
	b[offSlot], b[offMinCopies] = rec.Slot, rec.MinCopies
	if rec.Torn {
		b[offTorn] = 1
	}
	b[offAsync] = byte(rec.Async)
	binary.LittleEndian.PutUint64(b[offFollows:], rec.Follows.Barrier)
	binary.LittleEndian.PutUint64(b[offFollows+8:], uint64(rec.Follows.At))
	if rec.Arbiter {
		b[offArbiter] = 1
	}
	putAncestor(b[offRecordGeneration:], &rec.Ancestor)
	for slot := range rec.Members {
		m, at := &rec.Members[slot], b[offMembers+slot*memberSize:]
		copy(at, m.UUID[:])
		copy(at[offMemberContents:], m.Contents[:])
		binary.LittleEndian.PutUint64(at[offMemberEpoch:], m.Epoch)
	}
	for i := range rec.Lineage {
		putAncestor(b[offLineage+i*ancestorSize:], &rec.Lineage[i])
	}
}

func putAncestor(b []byte, a *persist.Ancestor) {
	binary.LittleEndian.PutUint64(b, a.Life)
	binary.LittleEndian.PutUint64(b[offAncestorCount:], a.Count)
	copy(b[offAncestorNonce:], a.Nonce[:])
	b[offAncestorF] = byte(a.F)
}

// getRecord loads what putRecord stored. The caller checks it.
func getRecord(b []byte) (rec persist.Record) {
	rec.Set = [16]byte(b[offSet:])
	rec.Slot, rec.MinCopies, rec.Torn = b[offSlot], b[offMinCopies], b[offTorn] != 0
	rec.Async = persist.Members(b[offAsync])
	rec.Follows = persist.Point{Barrier: binary.LittleEndian.Uint64(b[offFollows:]), At: int64(binary.LittleEndian.Uint64(b[offFollows+8:]))}
	rec.Arbiter = b[offArbiter] != 0
	rec.Ancestor = getAncestor(b[offRecordGeneration:])
	for slot := range rec.Members {
		at := b[offMembers+slot*memberSize:]
		rec.Members[slot] = persist.Membership{
			UUID: [16]byte(at), Contents: [16]byte(at[offMemberContents:]), Epoch: binary.LittleEndian.Uint64(at[offMemberEpoch:]),
		}
	}
	for i := range rec.Lineage {
		rec.Lineage[i] = getAncestor(b[offLineage+i*ancestorSize:])
	}
	return rec
}

func getAncestor(b []byte) (a persist.Ancestor) {
	a.Life, a.Count = binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[offAncestorCount:])
	a.Nonce, a.F = [16]byte(b[offAncestorNonce:]), persist.Members(b[offAncestorF])
	return a
}
