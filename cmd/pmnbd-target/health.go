package main

import (
	"fmt"
	"time"

	"pmnbd/cmd/internal/flags"
	"pmnbd/cmd/internal/status"
	"pmnbd/persist/target"
)

// Health implements status.Document.
func (r report) Health() status.Health {
	h := make(status.Health, 0, len(r.Regions))
	for i := range r.Regions {
		h = append(h, condition(&r.Regions[i]))
	}
	return h
}

// condition is how well the target serves a region. A region that nobody has is well.
func condition(r *target.RegionSnapshot) status.Condition {
	c := status.Condition{Name: "region " + r.Name}
	switch {
	case r.Failed:
		c.Level, c.Why = status.Failed, r.Failure
		c.Next = "Nobody can have it: docs/regions.md says what that means for the data, and `pmnbd-target region clear PATH` ends it"
	case r.Suspect:
		c.Level, c.Why = status.Failed, "the platform lost power without saving what it had"
		c.Next = "Nobody can have it: docs/regions.md says what that means for the data, and `pmnbd-target region clear PATH` ends it"
	case r.Protection != nil && r.Protection.Refuses != "":
		return refusing(c, r.Protection)
	case r.Member != nil && r.Member.Torn:
		c.Level, c.Why = status.Waiting, "a copy to it has begun and has not ended"
		c.Next = "The mirror's pmnbd copies the rest once it has a session here"
	case r.Doubt && r.Held:
		c.Level, c.Why = status.Waiting, fmt.Sprintf("barriers wait while the target settles doubt: %s left to flush", flags.Size(r.DoubtLeft).Rounded())
		c.Next = "It goes on by itself, as fast as the memory or disk takes the whole region"
	case r.Syncing >= slowSync:
		c.Level, c.Why = status.Waiting, fmt.Sprintf("barriers wait: the sync under way has taken %.0f s so far", r.Syncing)
		c.Next = "Look at the disk beneath " + pathText(r.Path, r.Parts)
	case r.Protection != nil && r.Protection.LostAt != nil:
		c.Why = fmt.Sprintf("its contents were lost, the last time at %s", r.Protection.LostAt.Format(time.RFC3339))
	}
	return c
}

// refusing is how well a region is that is granted to nobody because it was saved, or could not be.
func refusing(c status.Condition, p *target.ProtectionSnapshot) status.Condition {
	switch {
	case p.Halted && p.Whole:
		c.Level, c.Why = status.Failed, "it has been saved, and is granted to nobody"
		c.Next = "Run `pmnbd-target resume` if the power stays"
	case p.Halted && p.Saving != nil:
		c.Level, c.Why = status.Failed, "it is being saved: "+savingText(p.Saving)
		c.Next = "Run `pmnbd-target resume` behind that if the power stays"
	case p.Halted:
		c.Level, c.Why = status.Failed, "its sessions were ended for a save, and its image is not whole"
		c.Next = "The log says why: mend that and run `pmnbd-target save` again, or `pmnbd-target resume` if the power stays"
	default:
		c.Level, c.Why = status.Waiting, "no session is granted, because a save could not keep what it would store: "+p.Refuses
		c.Next = "Mend what that names. Once the power and the disk for saves are well it goes on by itself"
	}
	return c
}

// slowSync is how many seconds a sync may take before the region counts as waiting.
const slowSync = 10
