package main

import (
	"errors"
	"fmt"
	"text/tabwriter"

	"github.com/google/uuid"

	"pmnbd/cmd/internal/command"
	"pmnbd/cmd/internal/flags"
	"pmnbd/persist"
	"pmnbd/persist/region"
)

func regionList(call *command.Call) error {
	if err := call.Parse("DIR", "[…]"); err != nil {
		return err
	}
	w := tabwriter.NewWriter(call.Stdout, 0, 0, 2, ' ', 0)
	var errs []error
	n := 0
	for _, dir := range call.Flags.Args() {
		all, err := region.List(dir)
		errs = append(errs, err)
		for _, l := range all {
			if n++; n == 1 {
				_, _ = fmt.Fprintln(w, "REGION\tSIZE\tCLASS\tSTATE\tPATH")
			}
			var part *region.FurtherError
			if errors.As(l.Err, &part) {
				_, _ = fmt.Fprintf(w, "%s\t%s\t%v\tpart %d of %d\t%s\n", uuid.UUID(part.Region), flags.Size(part.Size), part.Class, part.Place, part.Parts, l.Path)
				continue
			}
			if l.Err != nil {
				_, _ = fmt.Fprintf(w, "?\t?\t?\t%v\t%s\n", l.Err, l.Path)
				continue
			}
			sb := &l.Info.Superblock
			_, _ = fmt.Fprintf(w, "%s\t%s\t%v\t%s\t%s\n", sb.Name, flags.Size(sb.Size), sb.Class, stateWord(sb), l.Path)
		}
	}
	if err := errors.Join(append(errs, w.Flush())...); err != nil {
		return err
	}
	if n == 0 {
		return errors.New("no region found")
	}
	return nil
}

// stateWord is state in one word.
func stateWord(sb *region.Superblock) string {
	switch {
	case sb.Failed:
		return "FAILED"
	case sb.Suspect:
		return "SUSPECT"
	case sb.Record.Torn:
		return "torn"
	case sb.Doubt:
		return "doubt"
	case sb.Clean:
		return "clean"
	}
	return "unclean"
}

func regionRemove(call *command.Call) error {
	force := call.Flags.Bool("force", false, "remove it although it was not closed cleanly, is failed, suspect or damaged")
	save := call.Flags.String("save", "", "class protected: the directory of the image, which is removed, too")
	parts := partFlag(call.Flags)
	if err := call.Parse("[PATH]"); err != nil {
		return err
	}
	path, further, err := partPaths(call, 0, *parts)
	if err != nil {
		return err
	}
	if *save != "" {
		if len(further) > 0 {
			return flags.Usagef("--save and --part: a region of class %v has no parts", persist.ClassProtected)
		}
		err = region.RemoveSaved(path, *save, *force)
	} else {
		err = region.Remove(path, *force, further...)
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(call.Stdout, "removed the region at %s\n", path)
	return err
}
