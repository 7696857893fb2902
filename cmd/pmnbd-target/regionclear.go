package main

import (
	"fmt"
	"strings"

	"pmnbd/cmd/internal/command"
	"pmnbd/cmd/internal/flags"
	"pmnbd/cmd/internal/progress"
	"pmnbd/persist"
	"pmnbd/persist/region"
)

func regionClear(call *command.Call) error {
	reason := call.Flags.String("reason", "", "why; kept in the superblock")
	call.Flags.Lookup("reason").Annotations = map[string][]string{command.MayBeEmpty: nil} // what follows says more
	save := call.Flags.String("save", "", "class protected: the directory of the image")
	parts := partFlag(call.Flags)
	if err := call.Parse("[PATH]"); err != nil {
		return err
	}
	path, further, err := partPaths(call, 0, *parts)
	if err != nil {
		return err
	}
	if strings.TrimSpace(*reason) == "" {
		return flags.Usagef("--reason is missing: say why, such as --reason 'disk replaced, fsck clean'")
	}
	if *save != "" && len(further) > 0 {
		return flags.Usagef("--save and --part: a region of class %v has no parts", persist.ClassProtected)
	}
	before, err := region.Inspect(path, further...)
	if err != nil {
		return err
	}
	shown := progress.Start(call.Stderr, "clear "+before.Superblock.Name)
	if *save != "" {
		err = region.ClearSaved(path, *save, *reason, shown.Set)
	} else {
		err = region.ClearShowing(path, *reason, shown.Set, further...)
	}
	shown.Stop()
	if err != nil {
		return err
	}
	info, err := region.Inspect(path, further...)
	if err != nil {
		return err
	}
	sb := &info.Superblock
	owner, contents := "no owner", ""
	if sb.Owner != (persist.Owner{}) {
		owner = "its mirror copies all of it"
	}
	if sb.Contents != before.Superblock.Contents {
		contents = "new contents id, "
	}
	_, err = fmt.Fprintf(call.Stdout, "cleared region %s at %s: epoch %d, %s, %sin doubt until its first flush; reason: %q\n", sb.Name, info.Path, sb.Epoch, owner, contents, sb.Cleared)
	return err
}
