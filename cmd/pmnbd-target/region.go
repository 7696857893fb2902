package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/google/uuid"

	"pmnbd/cmd/internal/command"
	"pmnbd/cmd/internal/flags"
	"pmnbd/cmd/internal/progress"
	"pmnbd/cmd/internal/status"
	"pmnbd/internal/flush"
	"pmnbd/persist"
	"pmnbd/persist/region"
	"pmnbd/persist/target"
)

var regionCommand = command.Command{
	Name: "region",
	Help: `A region is a named, fixed-size extent of memory: a device-dax device or a file on DAX (class pmem:
persistent memory), a file on ext4, xfs or f2fs (class file: durable after fdatasync), or a file on tmpfs
(class volatile: gone with the power; or class protected: saved to a disk before the power goes). See
docs/regions.md.

Usage:
  pmnbd-target region create NAME PATH [--size SIZE] [--force]   make a region
  pmnbd-target region create NAME PATH --size SIZE --class protected --save DIR   one with an image
  pmnbd-target region create NAME --part PATH --part PATH …      one of several files or devices
  pmnbd-target region inspect PATH [--json]                      show what a region knows of itself
  pmnbd-target region list DIR…                                  list the regions in directories
  pmnbd-target region remove PATH [--force]                      remove a region
  pmnbd-target region clear PATH --reason TEXT                   give a failed or suspect region back to service

"pmnbd-target region COMMAND --help" explains a command.
`,
	Commands: []command.Command{
		{Name: "create", Run: regionCreate, Help: `Makes a region named NAME of the file or device-dax device at PATH. If PATH does not exist, the command
makes a file there, and removes it again if that fails. It allocates all space at once. NAME is letters,
digits, '.', '_' and '-'.

With --class protected the region is memory (PATH on tmpfs or hugetlbfs) that "pmnbd-target save" writes to
its image, DIR/NAME.save, when a UPS says that the power goes. The command writes the image in full and
measures the disk.

With --part, repeated, the region has several parts, files or devices of any kind, one behind the other. All
of them are named in that order wherever the region is: serve --region NAME=PATH,part=PATH.

Usage:
  pmnbd-target region create NAME PATH [--size SIZE] [--force]
  pmnbd-target region create NAME PATH --size SIZE --class protected --save DIR [--save-within TIME] [--force]
  pmnbd-target region create NAME --part PATH --part PATH … [--size-per-part SIZE] [--force]
`},
		{Name: "inspect", Run: regionInspect, Help: `Shows the superblock of the region at PATH, and what the machine says of its memory. Changes nothing, and
works while the region is served. Then it also asks the pmnbd-target that serves it for the session: which key
has proven it, and what encrypts it. With --save it shows the region's image, too: also if the memory is gone
and only the image is left, of which NAME.save then is the PATH.

Usage:
  pmnbd-target region inspect PATH [--save DIR] [--json]
  pmnbd-target region inspect --part PATH --part PATH … [--json]
`},
		{Name: "list", Run: regionList, Help: `Lists the regions among the files and device-dax devices in each DIR, with their states: clean, unclean
(or in use), doubt, torn (half of a mirror's copy), SUSPECT or FAILED. Changes nothing.

Usage:
  pmnbd-target region list DIR…
`},
		{Name: "remove", Run: regionRemove, Help: `Removes the region at PATH with all that is stored in it: the file, or from a device the superblock.
Refuses while the region is served, and if it is not clean; never removes anything but a region. With --save
it removes the image of a region of class protected, too.

Usage:
  pmnbd-target region remove PATH [--save DIR] [--force]
  pmnbd-target region remove --part PATH --part PATH … [--force]
`},
		{Name: "clear", Run: regionClear, Help: `Gives a failed or suspect region back to service: makes durable what can be read from it, forgets its
owner, raises its epoch and sets doubt. Writes that were acknowledged but not flushed may be missing:
check what is stored there first (fsck, a database's own check). The region must not be served.

Usage:
  pmnbd-target region clear PATH --reason TEXT [--save DIR]
  pmnbd-target region clear --part PATH --part PATH … --reason TEXT
`},
	},
}

func regionCreate(call *command.Call) error {
	var size flags.Size
	call.Flags.Var(&size, "size", "size of the data extent: bytes, or K, M, G, T (binary); a multiple of 4K.\nNot needed for a device or a file that exists: all of it, less 2M")
	force := call.Flags.Bool("force", false, "discard what an existing file or device holds, and an image in --save")
	class := call.Flags.String("class", "", "protected, or nothing: then the class is the memory's")
	save := call.Flags.String("save", "", "class protected: the directory for the image, on a disk that the UPS feeds")
	within := call.Flags.Duration("save-within", region.DefaultSaveWithin, "class protected: how long a save may take")
	parts := partFlag(call.Flags)
	var each flags.Size
	call.Flags.Var(&each, "size-per-part", "like --size, of each part of a region of several")
	if err := call.Parse("NAME", "[PATH]"); err != nil {
		return err
	}
	name := call.Flags.Arg(0)
	path, further, err := partPaths(call, 1, *parts)
	if err != nil {
		return err
	}
	if err := region.CheckName(name); err != nil {
		return flags.Usagef("%v", err)
	}
	if call.Flags.Changed("size") {
		if err := region.CheckSize(uint64(size)); err != nil {
			return flags.Usagef("--size %s: %v", size.String(), err)
		}
	}
	switch {
	case len(further) > 0 && call.Flags.Changed("size"):
		return flags.Usagef("--size is for a region of one part: use --size-per-part")
	case len(further) == 0 && call.Flags.Changed("size-per-part"):
		return flags.Usagef("--size-per-part is for a region of several parts: use --size")
	case call.Flags.Changed("size-per-part"):
		if err := region.CheckSize(uint64(each)); err != nil {
			return flags.Usagef("--size-per-part %s: %v", each.String(), err)
		}
	}
	o := region.CreateOptions{Name: name, Size: uint64(size) + uint64(each), Force: *force, Parts: further}
	if err := protect(&o, call.Flags, *class, *save, *within); err != nil {
		return err
	}
	shown := progress.Start(call.Stderr, "create "+name)
	o.Progress = shown.Set
	info, err := region.Create(path, o)
	shown.Stop()
	if err != nil {
		return err
	}
	sb := &info.Superblock
	note := ""
	switch sb.Class {
	case persist.ClassVolatile:
		note = ": its contents go with the power, serve needs --allow-volatile"
	case persist.ClassPMem:
		note = ": " + persistence(info)
	case persist.ClassProtected:
		p := info.Protection
		note = fmt.Sprintf(": a save of all of it takes %s at the %s of %s, and may take %v; serve needs save=%s",
			round(p.Longest), rate(p.Speed), p.Image, p.SaveWithin, *save)
	}
	_, err = fmt.Fprintf(call.Stdout, "created region %s at %s: %s, class %v%s\n", sb.Name, pathText(path, paths(info)), flags.Size(sb.Size), sb.Class, note)
	return err
}

func regionInspect(call *command.Call) error {
	asJSON := call.Flags.Bool("json", false, "print JSON")
	save := call.Flags.String("save", "", "the directory of the image of a region of class protected")
	control := status.DefaultPlace()
	call.Flags.Var(&control, "control", "the control socket of the pmnbd-target that serves the region, or, with a / at its end, where to look for it")
	parts := partFlag(call.Flags)
	if err := call.Parse("[PATH]"); err != nil {
		return err
	}
	path, further, err := partPaths(call, 0, *parts)
	if err != nil {
		return err
	}
	info, err := region.Inspect(path, further...)
	if errors.Is(err, region.ErrNoSuperblock) {
		return inspectImage(call, *asJSON, err)
	}
	if err != nil {
		return err
	}
	v := viewOf(info)
	if *save != "" {
		p, other, err := region.InspectImageOf(region.ImagePath(*save, info.Superblock.Name), &info.Superblock)
		if err != nil {
			return err
		}
		v.Image = imageOf(p)
		v.Image.Other = other
	}
	if served := servedAs(&control, info.Superblock.UUID); served != nil {
		v.Session = served.Session
		v.Bad, v.BadUnknown = served.Bad, served.BadUnknown // it has met places that no list has
	}
	if *asJSON {
		enc := json.NewEncoder(call.Stdout)
		enc.SetIndent("", "  ")
		return enc.Encode(v)
	}
	_, err = io.WriteString(call.Stdout, v.table(info))
	return err
}

// regionView is a region in JSON. Names stay once published.
type regionView struct {
	Path            string                `json:"path"`
	Name            string                `json:"name"`
	UUID            string                `json:"uuid"`
	Size            uint64                `json:"size"`
	Class           string                `json:"class"`
	Version         int                   `json:"version"`
	Generation      uint64                `json:"generation"`
	Epoch           uint64                `json:"epoch"`
	Mark            uint64                `json:"mark"`
	Owner           *target.OwnerSnapshot `json:"owner"`
	Clean           bool                  `json:"clean"`
	Doubt           bool                  `json:"doubt"`
	Failed          bool                  `json:"failed"`
	Failure         string                `json:"failure,omitempty"`
	Suspect         bool                  `json:"suspect"`
	Cleared         string                `json:"cleared,omitempty"`
	UnsafeShutdowns uint64                `json:"unsafe_shutdowns"`
	BootID          string                `json:"boot_id"`
	ContentsID      string                `json:"contents_id"`
	Copies          [2]string             `json:"copies"`
	Parts           *partsView            `json:"parts"` // null: the region is one file or device
	Life            uint64                `json:"life"`
	Member          *memberView           `json:"member"` // null: no member of a mirror
	Image           *imageView            `json:"image,omitempty"`
	// Session is what the pmnbd-target that serves the region says; null: none does, or none has a session.
	Session *target.SessionSnapshot `json:"session"`
	// What follows is about the memory as it is now, on this machine.
	ClassNow string        `json:"class_now"`         // "": it could not be a region here
	Exposed  string        `json:"exposed,omitempty"` // why a pmnbd-target of this user would not serve it
	Flush    string        `json:"flush"`             // the instruction that writes cache lines back
	Platform *platformView `json:"platform"`          // null: no persistent memory
	// Bad has the places that the medium has lost. BadUnknown is why there may be more.
	Bad        []target.PlaceSnapshot `json:"bad_places"`
	BadUnknown string                 `json:"bad_unknown,omitempty"`
}

type platformView struct {
	Regions []string `json:"nd_regions"`
	Domain  string   `json:"persistence_domain"`
	EADR    bool     `json:"eadr"`
	// UnsafeShutdowns is null if the machine does not count them.
	UnsafeShutdowns *uint64 `json:"unsafe_shutdowns"`
}

func viewOf(info region.Info) regionView {
	sb := &info.Superblock
	v := regionView{
		Path: info.Path, Name: sb.Name, UUID: uuid.UUID(sb.UUID).String(), Size: sb.Size, Class: sb.Class.String(),
		Version: sb.Version(), Generation: sb.Generation, Epoch: sb.Epoch, Mark: sb.Mark,
		Clean: sb.Clean, Doubt: sb.Doubt, Failed: sb.Failed, Failure: sb.Failure, Suspect: sb.Suspect, Cleared: sb.Cleared,
		UnsafeShutdowns: sb.UnsafeShutdowns, BootID: uuid.UUID(sb.Boot).String(), ContentsID: uuid.UUID(sb.Contents).String(),
		Copies: [2]string{info.Copies[0].String(), info.Copies[1].String()},
		Parts:  partsOf(info),
		Flush:  flush.Instruction(),
		Life:   sb.Life, Member: memberOf(info), Bad: target.PlacesOf(info.Bad),
	}
	if info.BadUnknown != nil {
		v.BadUnknown = info.BadUnknown.Error()
	}
	if info.Class != 0 {
		v.ClassNow = info.Class.String()
	}
	if info.Exposed != nil {
		v.Exposed = info.Exposed.Error()
	}
	if p := &info.Platform; len(p.Regions) > 0 {
		v.Platform = &platformView{Regions: p.Regions, Domain: string(p.Domain), EADR: p.Domain.EADR()}
		if p.Counted {
			v.Platform.UnsafeShutdowns = &p.UnsafeShutdowns
		}
	}
	if sb.Owner != (persist.Owner{}) {
		v.Owner = &target.OwnerSnapshot{ID: sb.Owner.ID, Nonce: sb.Owner.Nonce}
	}
	return v
}

// servedAs asks the processes at place for the region with that UUID; nil: none serves it. A process that
// cannot be asked says nothing: the superblock is what inspect is for.
func servedAs(place *status.Place, id [16]byte) *target.RegionSnapshot {
	found, _ := status.Find[report](context.Background(), place, program)
	for i := range found {
		for j := range found[i].Document.Regions {
			if r := &found[i].Document.Regions[j]; r.UUID == id {
				return r
			}
		}
	}
	return nil
}

// table shows a region to people, what matters most first.
func (v *regionView) table(info region.Info) string {
	var out strings.Builder
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) {
		_, _ = fmt.Fprintf(w, name+"\t"+format+"\n", args...) // a strings.Builder never fails
	}
	row("region", "%s", v.Name)
	row("path", "%s", v.Path)
	row("size", "%s (%d bytes)", flags.Size(v.Size), v.Size)
	switch v.ClassNow {
	case v.Class:
		row("class", "%s", v.Class)
	case "":
		row("class", "%s; where it is now it could not be served", v.Class)
	default:
		row("class", "%s; where it is now it would be %s, and is not served", v.Class, v.ClassNow)
	}
	if v.Platform != nil {
		row("persistence", "%s", persistence(info))
	}
	row("state", "%s", state(&info.Superblock))
	v.Image.rows(row)
	v.Parts.rows(row)
	if v.Failed {
		row("failure", "%q", v.Failure)
	}
	if text := badText(v.Bad, v.BadUnknown); text != "" {
		row("bad places", "%s", text)
	}
	if v.Exposed != "" {
		row("not served", "%s", v.Exposed)
	}
	row("epoch", "%d", v.Epoch)
	row("mark", "%d", v.Mark)
	if v.Owner != nil {
		row("owner", "%s (run %s)", v.Owner.ID, v.Owner.Nonce)
	} else {
		row("owner", "none")
	}
	if v.Session != nil {
		row("session", "%s, %s", v.Session.Method, status.Trust(v.Session.Key, v.Session.Cipher))
	}
	if v.Cleared != "" {
		row("last cleared", "%q", v.Cleared)
	}
	memberRows(row, v.Member, v.Life)
	row("uuid", "%s", v.UUID)
	row("contents id", "%s", v.ContentsID)
	row("boot id", "%s", v.BootID)
	if v.Platform != nil && v.Platform.UnsafeShutdowns != nil {
		row("unsafe shutdowns", "%d at the last clean close, %d now", v.UnsafeShutdowns, *v.Platform.UnsafeShutdowns)
	} else {
		row("unsafe shutdowns", "not counted here (%d at the last clean close)", v.UnsafeShutdowns)
	}
	row("superblock", "version %d, generation %d; copy 0: %s, copy 1: %s", v.Version, v.Generation, v.Copies[0], v.Copies[1])
	_ = w.Flush()
	return out.String()
}

// persistence says in words what the platform promises, and what durability then needs.
func persistence(info region.Info) string {
	on := strings.Join(info.Platform.Regions, ", ")
	kind, needs := "ADR", "cache lines are written back by "+flush.Instruction()
	switch d := info.Platform.Domain; {
	case !d.Persistent():
		return "no persistence domain is promised on " + on
	case d.EADR():
		kind, needs = "eADR", "a fence is enough"
	}
	if info.Class != persist.ClassPMem {
		needs = "not mapped directly (DAX), so no use is made of it"
	}
	return fmt.Sprintf("persistence domain %s (%s) on %s: %s", info.Platform.Domain, kind, on, needs)
}

// state says in words in which state a region is.
func state(sb *region.Superblock) string {
	var words []string
	if sb.Failed {
		words = append(words, "FAILED: serves nobody until `region clear`")
	}
	if sb.Suspect {
		words = append(words, "SUSPECT: serves nobody until `region clear`")
	}
	if sb.Doubt {
		words = append(words, "in doubt: some of what can be read may not be durable; the next flush makes it so")
	}
	if sb.Clean {
		words = append(words, "closed cleanly")
	} else {
		words = append(words, "not closed cleanly (or in use)")
	}
	return strings.Join(words, "; ")
}
