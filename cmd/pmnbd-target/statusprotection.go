package main

import (
	"fmt"
	"time"

	"pmnbd/cmd/internal/flags"
	"pmnbd/persist/target"
)

// batteryText shows to people what the battery says.
func batteryText(b *target.BatterySnapshot) string {
	text := "on line"
	switch {
	case b.Error != "":
		return "UNKNOWN: " + b.Error
	case b.OnBattery:
		text = "ON BATTERY"
	}
	if b.Weak != "" {
		text += ", " + b.Weak
	}
	if b.Runtime != nil {
		text += fmt.Sprintf(", lasts %v", time.Duration(*b.Runtime*float64(time.Second)).Round(time.Second))
	}
	return text
}

// protectionRows shows to people how a region is saved.
func protectionRows(p *target.ProtectionSnapshot, row func(name, format string, args ...any)) {
	state := "live: a power failure without a save loses the region"
	if p.Whole {
		state = "whole: it has all that the memory has"
	}
	row("image", "%s, %s", p.Image, state)
	if p.SavedAt != nil {
		row("saved", "%s", p.SavedAt.Format(time.RFC3339))
	}
	if p.Saving != nil {
		row("saving", "%s", savingText(p.Saving))
	}
	row("save", "would write %s at %s, %v; may take %v", flags.Size(p.Dirty).Rounded(), rate(p.Speed), round(seconds(p.Expected)), seconds(p.Within))
	if p.LostAt != nil {
		row("LOST", "%s, the last time at %s", flags.Count(uint64(p.Losses), "time"), p.LostAt.Format(time.RFC3339))
	}
	if p.Lost != "" {
		row("", "at this start: %s", p.Lost)
	}
	if p.Refuses != "" {
		row("refuses", "%s", p.Refuses)
	}
}

// savingText shows to people how far a save is.
func savingText(s *target.SavingSnapshot) string {
	return fmt.Sprintf("%s of %s, %v left", flags.Size(s.Written).Rounded(), flags.Size(s.Of).Rounded(), round(seconds(s.Left)))
}
