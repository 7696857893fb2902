package remote

import (
	"cmp"
	"log/slog"
	"slices"
)

// replaceSourceLocked makes another member the source if the one that was chosen is lost before the life's first
// generation is active (mirror §4.4). Once clients are served they have read from the source, and no other member can
// take its place. waits reports that nobody can do that yet, and that a member which is away could. The caller holds
// commit.mu.
func (k *copies) replaceSourceLocked() (waits bool) {
	sources := k.view.Sources() & k.sources
	if sources == 0 || k.view.Equal&^k.awayLocked(k.timeout) != 0 {
		return false
	}
	var fit []*leg
	for _, g := range k.core.legs {
		// One that lost its contents can have a session: it waits until everything is copied to it (Regains).
		if !sources.Has(g.slot) || g.bad != nil || g.granted.ContentsID != k.view.Record.Members[g.slot].Contents {
			continue
		}
		if waits = waits || !g.up.Load(); g.up.Load() {
			fit = append(fit, g)
		}
	}
	if len(fit) == 0 {
		return waits
	}
	g := slices.MinFunc(fit, func(a, b *leg) int { // nobody can copy what a medium has lost
		return cmp.Or(cmp.Compare(a.badPlaces.Load().bytes(), b.badPlaces.Load().bytes()), cmp.Compare(a.slot, b.slot))
	})
	k.log.Warn("the mirror begins with what another member has: the one that was chosen is lost, and nobody was served yet",
		slog.String("region", g.cfg.Region), slog.String("target", g.cfg.Addr))
	k.view = k.view.From(g.slot)
	k.note(k.view)
	k.core.readableLocked()
	return false
}
