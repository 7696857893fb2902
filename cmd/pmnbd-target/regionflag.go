package main

import (
	"fmt"
	"strings"

	"github.com/google/uuid"

	"pmnbd/cmd/internal/flags"
	"pmnbd/persist/region"
)

// A servedRegion is a region that shall be served: a table of the file, or a flag.
type servedRegion struct {
	Name string `toml:"name"`
	Path string `toml:"path"`
	// Size is what the region is made with if Path does not exist; 0: it must.
	Size flags.Size `toml:"size"`
	// Allow are the ids of the initiators that may have it; nil: every one.
	Allow []uuid.UUID `toml:"allow"`
}

// UnmarshalText reads NAME=PATH[,size=SIZE][,allow=ID]. Only options that end the
// flag are taken out of the path.
func (r *servedRegion) UnmarshalText(b []byte) error {
	var ok bool
	if r.Name, r.Path, ok = strings.Cut(string(b), "="); !ok {
		return r.usage("use NAME=PATH[,size=SIZE][,allow=ID]")
	}
	for {
		i := strings.LastIndexByte(r.Path, ',')
		if i < 0 {
			return nil
		}
		switch option, value, _ := strings.Cut(r.Path[i+1:], "="); option {
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
			id, err := uuid.Parse(value)
			if err != nil {
				return r.usage("allow=%s: %v", value, err)
			}
			r.Allow = append(r.Allow, id)
		default:
			return nil
		}
		r.Path = r.Path[:i]
	}
}

// String is the region as people name it.
func (r servedRegion) String() string { return r.Name }

// check says what makes no sense on any machine.
func (r *servedRegion) check() error {
	if err := region.CheckName(r.Name); err != nil {
		return r.usage("%v", err)
	}
	if r.Path == "" {
		return r.usage("it has no path")
	}
	if r.Size != 0 {
		if err := region.CheckSize(uint64(r.Size)); err != nil {
			return r.usage("%v", err)
		}
	} else if r.Path == region.PathMemfd {
		return r.usage("anonymous memory needs a size")
	}
	if r.Allow != nil && len(r.Allow) == 0 {
		return r.usage("nobody is allowed: name the ids of initiators, or leave allow out")
	}
	return nil
}

func (r *servedRegion) usage(format string, args ...any) error {
	return flags.Usagef("region %q: %s", r.Name, fmt.Sprintf(format, args...))
}
