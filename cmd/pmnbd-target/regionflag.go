package main

import (
	"fmt"
	"strings"

	"github.com/google/uuid"

	"pmnbd/cmd/internal/flags"
	"pmnbd/persist/region"
)

// A servedRegion is a region to serve: a table of the file, or a flag.
type servedRegion struct {
	Name string     `toml:"name"`
	Path regionPath `toml:"path"`
	// Parts are the further parts of a region of several. In the file the key has the first
	// one, too, in the place of path.
	Parts []regionPath `toml:"parts"`
	// Size is the size of the region that is made if Path does not exist. If it is 0, Path
	// must exist.
	Size flags.Size `toml:"size"`
	// Save is the directory of the image, of a region of class protected; "": it is of another class.
	Save regionPath `toml:"save"`
	// Allow are the ids of the initiators that may have the region; nil: all.
	Allow []allowedID `toml:"allow"`
	// Encrypted demands that connections to the region are encrypted.
	Encrypted bool `toml:"encrypted"`
}

// A regionPath is the path of a region. It is a struct, since the decoder of the file does not
// call UnmarshalText of a string.
type regionPath struct{ string }

// UnmarshalText reads what the flag takes as PATH.
func (p *regionPath) UnmarshalText(b []byte) (err error) {
	p.string, err = flags.Path(string(b))
	return err
}

// An allowedID is the id of an initiator that may have a region.
type allowedID struct{ uuid.UUID }

// UnmarshalText reads a UUID.
func (a *allowedID) UnmarshalText(b []byte) (err error) {
	if a.UUID, err = uuid.ParseBytes(b); err != nil || a.UUID == uuid.Nil {
		return flags.Usagef("%q is not the id of an initiator: use a UUID, as in the file initiator-id of its state directory", b)
	}
	return nil
}

// regionForm is the form of a region as a flag.
const regionForm = "NAME=PATH[,part=PATH][,size=SIZE][,save=DIR][,allow=ID][,encrypted]"

// parseRegion reads regionForm. A comma always ends the path, unless that is quoted
// (flags.CutPath). If a misspelt option became part of the path, the region would be open to
// every initiator, and a file of that name would appear.
func parseRegion(s string) (r servedRegion, err error) {
	name, rest, ok := strings.Cut(s, "=")
	if r.Name = name; !ok {
		return r, r.usage("use %s", regionForm)
	}
	path, options, more, err := flags.CutPath(rest)
	if err != nil {
		return r, r.usage("%v", err)
	}
	r.Path.string = path
	for more && err == nil {
		if dir, ok := strings.CutPrefix(options, "save="); ok {
			options, more, err = r.saveTo(dir)
			continue
		}
		if part, ok := strings.CutPrefix(options, "part="); ok {
			options, more, err = r.addPart(part)
			continue
		}
		var option string
		option, options, more = strings.Cut(options, ",")
		err = r.option(option)
	}
	return r, err
}

// saveTo reads the value of the option save at the beginning of s, which is a path like that of the
// region. rest is what follows, and more says whether there is something.
func (r *servedRegion) saveTo(s string) (rest string, more bool, err error) {
	dir, rest, more, err := flags.CutPath(s)
	switch {
	case err != nil:
		return "", false, r.usage("%v", err)
	case r.Save.string != "":
		return "", false, r.usage("save is given twice")
	case dir == "":
		return "", false, r.usage("save names no directory")
	}
	r.Save.string = dir
	return rest, more, nil
}

// addPart reads the value of the option part at the beginning of s, as saveTo does.
func (r *servedRegion) addPart(s string) (rest string, more bool, err error) {
	path, rest, more, err := flags.CutPath(s)
	switch {
	case err != nil:
		return "", false, r.usage("%v", err)
	case path == "":
		return "", false, r.usage("part names no file or device")
	}
	r.Parts = append(r.Parts, regionPath{path})
	return rest, more, nil
}

// option reads an option behind the path.
func (r *servedRegion) option(s string) error {
	switch option, value, _ := strings.Cut(s, "="); option {
	case "size":
		if r.Size != 0 {
			return r.usage("its size is given twice")
		}
		if err := r.Size.Set(value); err != nil {
			return r.usage("%v", err)
		}
		if err := region.CheckSize(uint64(r.Size)); err != nil {
			return r.usage("%v", err)
		}
	case "allow":
		var id allowedID
		if err := id.UnmarshalText([]byte(value)); err != nil {
			return r.usage("allow: %v", err)
		}
		r.Allow = append(r.Allow, id)
	case "encrypted":
		if s != option {
			return r.usage("encrypted has no value: use ,encrypted")
		}
		r.Encrypted = true
	default:
		return r.usage("unknown option %q: use %s, and double quotes around a PATH with a comma in it", option, regionForm)
	}
	return nil
}

// check refuses what makes no sense on any machine.
func (r *servedRegion) check() error {
	if err := region.CheckName(r.Name); err != nil {
		return r.usage("%v", err)
	}
	if r.Path.string == "" {
		return r.usage("it has no path")
	}
	if err := r.checkParts(); err != nil {
		return err
	}
	if r.Save.string != "" {
		const create = "pmnbd-target region create %s PATH --class protected --save DIR --size SIZE"
		switch {
		case r.Path.string == region.PathMemfd:
			return r.usage("anonymous memory has no image: leave save out, or make a region with an image: "+create, r.Name)
		case r.Size != 0:
			return r.usage("save and size exclude each other: leave size out if the region exists, or make it first: "+create, r.Name)
		}
	}
	if r.Size != 0 {
		if err := region.CheckSize(uint64(r.Size)); err != nil {
			return r.usage("%v", err)
		}
	} else if r.Path.string == region.PathMemfd {
		return r.usage("anonymous memory needs a size")
	}
	if r.Allow != nil && len(r.Allow) == 0 {
		return r.usage("nobody is allowed: name the ids of initiators, or leave allow out")
	}
	return nil
}

// options are those with which the region is opened.
func (r *servedRegion) options(allowVolatile bool) region.OpenOptions {
	return region.OpenOptions{Name: r.Name, AllowVolatile: allowVolatile, CreateSize: uint64(r.Size), Parts: r.paths()[1:], Save: r.Save.string}
}

func (r *servedRegion) usage(format string, args ...any) error {
	return flags.Usagef("region %q: %s", r.Name, fmt.Sprintf(format, args...))
}
