package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/pflag"

	"pmnbd/cmd/internal/command"
	"pmnbd/cmd/internal/flags"
	"pmnbd/persist"
	"pmnbd/persist/region"
)

// protect puts what was asked for of class protected into o.
func protect(o *region.CreateOptions, set *pflag.FlagSet, class, save string, within time.Duration) error {
	switch {
	case class == "" && save == "" && !set.Changed("save-within"):
		return nil
	case class == "":
		return flags.Usagef("--save and --save-within are for class %v: add --class %v, or leave them out", persist.ClassProtected, persist.ClassProtected)
	case class != persist.ClassProtected.String():
		return flags.Usagef("--class %q: only class %v is declared; leave the flag out for the others, which are found out", class, persist.ClassProtected)
	case save == "":
		return flags.Usagef("--save is missing: class %v needs a directory for its image, on a disk", persist.ClassProtected)
	case within <= 0:
		return flags.Usagef("--save-within %v: use a time such as 2m", within)
	}
	o.Class, o.Save, o.SaveWithin = persist.ClassProtected, save, within
	return nil
}

// imageView is the image of a region of class protected in JSON. Names stay once published.
type imageView struct {
	Path              string     `json:"path"`
	Whole             bool       `json:"whole"`
	Other             bool       `json:"other_moment,omitempty"` // it would be whole, and the memory is not what it has
	SavedAt           *time.Time `json:"saved_at"`               // null: never
	Size              uint64     `json:"size"`
	Speed             uint64     `json:"bytes_per_second"`
	LongestSeconds    float64    `json:"longest_save_seconds"`
	SaveWithinSeconds float64    `json:"save_within_seconds"`
	Losses            uint32     `json:"losses"`
	LostAt            *time.Time `json:"lost_at"` // null: never
}

func imageOf(p region.Protection) *imageView {
	v := &imageView{
		Path: p.Image, Whole: p.Whole, Size: p.Size, Speed: p.Speed,
		LongestSeconds: p.Longest.Seconds(), SaveWithinSeconds: p.SaveWithin.Seconds(), Losses: p.Losses,
	}
	if !p.SavedAt.IsZero() {
		v.SavedAt = &p.SavedAt
	}
	if !p.LostAt.IsZero() {
		v.LostAt = &p.LostAt
	}
	return v
}

// rows shows an image to people. There may be none.
func (v *imageView) rows(row func(name, format string, args ...any)) {
	if v == nil {
		return
	}
	worth := "live: a power failure now loses the region"
	switch {
	case v.Other:
		worth = "of ANOTHER MOMENT than the memory, a copy perhaps: a power failure now brings that back; a start of pmnbd-target makes it live"
	case v.Whole:
		worth = "whole: it has all that the memory has"
	}
	row("image", "%s, %s", v.Path, worth)
	if v.SavedAt != nil {
		row("saved", "%s", v.SavedAt.Format(time.RFC3339))
	}
	row("save of all", "%s at %s; it may take %s", round(seconds(v.LongestSeconds)), rate(v.Speed), seconds(v.SaveWithinSeconds))
	if v.Losses > 0 && v.LostAt != nil {
		row("LOST", "%d times, last %s: the memory was gone, and the image was not whole", v.Losses, v.LostAt.Format(time.RFC3339))
	}
}

// inspectImage shows a file that is no region, if it is an image. Otherwise it returns notRegion.
func inspectImage(call *command.Call, asJSON bool, notRegion error) error {
	p, err := region.InspectImage(call.Flags.Arg(0))
	if errors.Is(err, region.ErrNoImage) {
		return notRegion
	}
	if err != nil {
		return err
	}
	v := imageOf(p)
	if asJSON {
		enc := json.NewEncoder(call.Stdout)
		enc.SetIndent("", "  ")
		return enc.Encode(v)
	}
	var out strings.Builder
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	v.rows(func(name, format string, args ...any) {
		_, _ = fmt.Fprintf(w, name+"\t"+format+"\n", args...) // a strings.Builder never fails
	})
	_ = w.Flush()
	_, err = fmt.Fprint(call.Stdout, out.String())
	return err
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// rate shows a speed in bytes a second.
func rate(speed uint64) string {
	if speed == 0 {
		return "an unknown speed"
	}
	return fmt.Sprintf("%d MB/s", speed/1e6)
}

// round shows a time with two or three digits.
func round(d time.Duration) time.Duration {
	if d < time.Second {
		return d.Round(time.Millisecond)
	}
	return d.Round(time.Second / 10)
}
