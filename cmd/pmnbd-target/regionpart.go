package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"pmnbd/cmd/internal/command"
	"pmnbd/cmd/internal/flags"
	"pmnbd/persist/region"
)

// partFlag declares --part. Its value is read by partPaths.
func partFlag(set *pflag.FlagSet) *[]string {
	return set.StringArray("part", nil, "a `PATH` of a region of several parts, repeated for each part in their order; the first one can be PATH instead")
}

// partPaths returns the paths of a region on a command line: the argument number arg, if it
// is there, and those of --part.
func partPaths(call *command.Call, arg int, parts []string) (path string, further []string, err error) {
	all := slices.Concat(call.Flags.Args()[arg:], parts)
	switch {
	case len(all) == 0:
		return "", nil, flags.Usagef("PATH is missing: name the region's file or device, or all of its parts with --part")
	case slices.Contains(all, ""):
		return "", nil, flags.Usagef("--part names no file or device")
	}
	return all[0], all[1:], nil
}

// paths are those of all parts.
func (r *servedRegion) paths() (all []string) {
	all = append(all, r.Path.string)
	for _, p := range r.Parts {
		all = append(all, p.string)
	}
	return all
}

// whole lets the list of parts in a file stand for the path, which is the first part's.
func (r *servedRegion) whole() error {
	switch {
	case len(r.Parts) == 0:
		return nil
	case r.Path.string != "":
		return r.usage("it has path and parts: name all parts in parts, the first one too")
	}
	r.Path, r.Parts = r.Parts[0], r.Parts[1:]
	if len(r.Parts) == 0 {
		return r.usage("it has one part: use path")
	}
	return nil
}

// checkParts refuses what a region of several parts cannot have.
func (r *servedRegion) checkParts() error {
	all := r.paths()
	if len(all) == 1 {
		return nil
	}
	for i, path := range all {
		switch {
		case path == "":
			return r.usage("a part has no path")
		case path == region.PathMemfd:
			return r.usage("anonymous memory cannot be a part")
		case slices.Contains(all[:i], path):
			return r.usage("part %s is named twice", path)
		}
	}
	switch {
	case len(all) > region.MaxParts:
		return r.usage("it has %d parts, and a region has at most %d", len(all), region.MaxParts)
	case r.Size != 0:
		return r.usage("a region of several parts is not made by serve: leave size out, and make it with `pmnbd-target region create %s --part PATH --part PATH --size-per-part SIZE`", r.Name)
	case r.Save.string != "":
		return r.usage("a region of class protected cannot have several parts")
	}
	return nil
}

// partsView is what inspect shows of a region of several parts, in JSON.
type partsView struct {
	Count    int        `json:"count"`
	Stamp    uint64     `json:"stamp"`
	Stamping bool       `json:"stamping"` // a change of the stamp is under way, or was interrupted
	Parts    []partView `json:"parts"`    // empty unless all parts were named
}

type partView struct {
	Path   string    `json:"path"`
	Size   uint64    `json:"size"`
	Start  uint64    `json:"start"` // where in the region
	Class  string    `json:"class"` // as it is now
	Stamp  uint64    `json:"stamp"`
	Copies [2]string `json:"copies"`
}

func partsOf(info region.Info) *partsView {
	sb := &info.Superblock
	if sb.Parts == 0 {
		return nil
	}
	v := &partsView{Count: int(sb.Parts), Stamp: sb.Stamp, Stamping: sb.Stamping, Parts: []partView{}}
	for _, p := range info.Parts {
		v.Parts = append(v.Parts, partView{
			Path: p.Path, Size: p.Size, Start: p.Start, Class: p.Class.String(), Stamp: p.Stamp,
			Copies: [2]string{p.Copies[0].String(), p.Copies[1].String()},
		})
	}
	return v
}

// rows shows people the parts of a region.
func (v *partsView) rows(row func(name, format string, args ...any)) {
	if v == nil {
		return
	}
	if len(v.Parts) == 0 {
		row("parts", "%d, of which this is the first; --part shows the others", v.Count)
		return
	}
	row("parts", "%d, with stamp %d", v.Count, v.Stamp)
	for i, p := range v.Parts {
		row(fmt.Sprintf("part %d", i), "%s, %s, class %s; copy 0: %s, copy 1: %s", p.Path, flags.Size(p.Size), p.Class, p.Copies[0], p.Copies[1])
	}
}

// pathText names the parts of a region where people read it.
func pathText(path string, parts []string) string {
	if len(parts) > 0 {
		return strings.Join(parts, " + ")
	}
	return path
}

// paths returns those of the parts that inspect was told of.
func paths(info region.Info) (all []string) {
	for _, p := range info.Parts {
		all = append(all, p.Path)
	}
	return all
}
