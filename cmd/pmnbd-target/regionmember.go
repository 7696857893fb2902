package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"pmnbd/cmd/internal/flags"
	"pmnbd/persist"
	"pmnbd/persist/region"
)

// memberView is what a region knows of its mirror, in JSON. Names are those of
// target.MemberSnapshot where both have a field.
type memberView struct {
	Mirror     string       `json:"mirror"` // the UUID of the set
	Member     string       `json:"member"` // this region's letter
	Generation string       `json:"generation"`
	InSync     string       `json:"in_sync"` // the members in F
	MinCopies  int          `json:"min_copies"`
	Torn       bool         `json:"torn"`
	Async      string       `json:"async,omitempty"` // the members that follow
	Follows    *follows     `json:"follows,omitempty"`
	ChunkSize  uint64       `json:"chunk_size"`
	Members    []memberRow  `json:"members"`
	Lineage    []generation `json:"lineage"` // newest first
}

// follows is how far a region has surely followed that is such a member.
type follows struct {
	Barrier uint64    `json:"barrier"`
	Until   time.Time `json:"until"`
}

type memberRow struct {
	Member     string `json:"member"`
	UUID       string `json:"uuid"`
	ContentsID string `json:"contents_id"`
	Epoch      uint64 `json:"epoch"`
	InSync     bool   `json:"in_sync"`
	// Chunks and Behind are how many chunks and bytes the member may lack of what this
	// region has. Both are null if the file is too short to tell.
	Chunks *uint64 `json:"chunks_behind"`
	Behind *uint64 `json:"behind_bytes"`
}

type generation struct {
	Generation string `json:"generation"`
	InSync     string `json:"in_sync"`
}

// memberOf returns nil for a region that is no member of a mirror.
func memberOf(info region.Info) *memberView {
	sb := &info.Superblock
	rec := &sb.Record
	if *rec == (persist.Record{}) {
		return nil
	}
	v := &memberView{
		Mirror: uuid.UUID(rec.Set).String(), Member: persist.Member(int(rec.Slot)).String(), Generation: rec.String(), InSync: rec.F.String(),
		MinCopies: int(rec.MinCopies), Torn: rec.Torn, ChunkSize: sb.ChunkSize(), Lineage: []generation{},
	}
	v.Async = rec.Async.String()
	if p := rec.Follows; p != (persist.Point{}) {
		v.Follows = &follows{p.Barrier, time.Unix(0, p.At).UTC()}
	}
	for slot, m := range rec.Members {
		if !rec.Present().Has(slot) {
			continue
		}
		row := memberRow{
			Member: persist.Member(slot).String(), UUID: uuid.UUID(m.UUID).String(), ContentsID: uuid.UUID(m.Contents).String(), Epoch: m.Epoch,
			InSync: rec.F.Has(slot),
		}
		if info.Bits != nil {
			chunks := info.Bits[slot]
			behind := min(chunks*v.ChunkSize, sb.Size)
			row.Chunks, row.Behind = &chunks, &behind
		}
		v.Members = append(v.Members, row)
	}
	for _, a := range rec.Lineage {
		if a != (persist.Ancestor{}) {
			v.Lineage = append(v.Lineage, generation{a.String(), a.F.String()})
		}
	}
	return v
}

// shownLineage is how many generations of the lineage people see.
const shownLineage = 4

// memberRows shows people what a region knows of its mirror. row adds a row to the table.
func memberRows(row func(name, format string, args ...any), v *memberView, life uint64) {
	if v == nil {
		return
	}
	row("mirror", "member %s of %s, generation %s, in sync %s", v.Member, v.Mirror, v.Generation, v.InSync)
	row("min copies", "%d", v.MinCopies)
	if v.Torn {
		row("torn", "yes: a copy to the region has begun and has not ended")
	}
	if f := v.Follows; f != nil {
		row("follows", "has all that was flushed until %s (barrier %d)", f.Until.Format("2006-01-02 15:04:05.000 MST"), f.Barrier)
	}
	for _, m := range v.Members {
		what := "in sync"
		switch {
		case m.Member == v.Member && v.Follows != nil:
			what = "follows"
		case m.Member == v.Member && !m.InSync:
			what = "not in sync"
		case m.InSync:
		case m.Behind == nil:
			what = "behind; the file is too short to tell by how much"
		default:
			what = fmt.Sprintf("behind: may lack %s (%s of %s)", flags.Size(*m.Behind), flags.Count(*m.Chunks, "chunk"), flags.Size(v.ChunkSize))
		}
		if m.Member == v.Member {
			what = "this region, " + what
		}
		row("member "+m.Member, "%s: %s", m.UUID, what)
	}
	row("life", "%d", life)
	var past []string
	for i, g := range v.Lineage {
		if i == shownLineage {
			past = append(past, fmt.Sprintf("and %d older", len(v.Lineage)-i))
			break
		}
		past = append(past, g.Generation+" "+g.InSync)
	}
	if len(past) > 0 {
		row("lineage", "%s", strings.Join(past, ", "))
	}
}
