package report

import (
	"fmt"
	"strings"

	"pmnbd/backend/remote"
	"pmnbd/cmd/internal/status"
)

// Health implements status.Document.
func (d Document) Health() status.Health {
	var h status.Health
	for i := range d.Starting {
		s := &d.Starting[i]
		if s.Standby {
			h = append(h, status.Condition{Name: "export " + s.Name, Why: "but not active; " + s.Waits})
			continue
		}
		h = append(h, status.Condition{
			Name: "export " + s.Name, Level: status.Waiting, Why: "it is starting: " + s.Waits,
			Next: "Start the targets that it waits for, or see docs/mirror.md, \"When a start begins\"",
		})
	}
	for i := range d.Exports {
		h = append(h, d.Exports[i].condition())
	}
	for i := range d.Removing {
		h = append(h, d.Removing[i].condition())
	}
	return h
}

// condition is how well the export is.
func (e *Export) condition() status.Condition {
	d := &e.Device
	c := status.Condition{Name: "export " + e.Name, Since: d.Since}
	switch d.State {
	case remote.StateOpen:
		c.Why, c.Next = e.troubles()
	case remote.StateWaiting:
		c.Level, c.Why = status.Waiting, "READ and FLUSH wait for the target: "+d.Cause
		if d.WaitingSince != nil {
			c.Since = *d.WaitingSince
		}
		c.Next = fmt.Sprintf("Start pmnbd-target there (%s), or mend the network. Nothing is lost, and pmnbd goes on by itself", targets(d))
	case remote.StateFailed:
		c.Level, c.Why = status.Failed, d.Cause
		c.Next = "Unmount or detach the device, and start pmnbd again. If that exits with 3, docs/durability.md says what is lost and how to go on"
		if d.Taken {
			c.Next = "Unmount or detach the device, and start pmnbd with --accept-loss, and with --takeover if the other still holds the region"
		}
	case remote.StateClosed:
		c.Level, c.Why = status.Waiting, "pmnbd is ending"
	}
	return c
}

// slowSync is how long a target syncs before that is worth a word.
const slowSync = 10 // seconds

// troubles says what is wrong with an export that serves, and what to do.
func (e *Export) troubles() (why, next string) {
	d := &e.Device
	switch {
	case d.Barriers.AtTarget >= slowSync:
		return fmt.Sprintf("but FLUSH waits: the target has been syncing for %.0f s", d.Barriers.AtTarget), "Look at the disk of the target"
	case d.Mirror != nil && d.Mirror.Copies < d.Mirror.Synchronous():
		return fmt.Sprintf("but %d of %d copies are in sync", d.Mirror.Copies, d.Mirror.Synchronous()), "`pmnbd mirror status` says why"
	case d.Mirror != nil:
		for i := range d.Mirror.Legs {
			if l := &d.Mirror.Legs[i]; l.Follows != nil && l.Follows.AtBound {
				return fmt.Sprintf("but FLUSH waits: %s at %s follows the mirror and is %.0f s behind", l.Region, l.Target, l.Follows.LagSeconds),
					"Look at the line to it, and at docs/mirror.md, \"A member that follows\""
			}
		}
	}
	return "", ""
}

// targets lists where the copies are.
func targets(d *remote.Snapshot) string {
	all := make([]string, 0, len(d.Targets))
	for i := range d.Targets {
		all = append(all, d.Targets[i].Target)
	}
	return strings.Join(all, ", ")
}
