package main

import (
	"strings"

	"pmnbd/cmd/internal/flags"
	"pmnbd/persist/region"
)

// A servedRegion is what one --region of serve says.
type servedRegion struct {
	name, path string
	size       flags.Size // 0: the path must exist
}

// parseRegion reads NAME=PATH[,size=SIZE]. Only a ",size=" that ends the flag is
// taken out of the path.
func parseRegion(s string) (servedRegion, error) {
	const form = "use NAME=PATH or NAME=PATH,size=SIZE"
	name, path, ok := strings.Cut(s, "=")
	if !ok || path == "" {
		return servedRegion{}, flags.Usagef("--region %q: %s", s, form)
	}
	if err := region.CheckName(name); err != nil {
		return servedRegion{}, flags.Usagef("--region %q: %v", s, err)
	}
	r := servedRegion{name: name, path: path}
	if i := strings.LastIndex(path, ",size="); i >= 0 {
		size, err := flags.ParseSize(path[i+len(",size="):])
		if err != nil {
			return servedRegion{}, flags.Usagef("--region %q: %v", s, err)
		}
		if err := region.CheckSize(uint64(size)); err != nil {
			return servedRegion{}, flags.Usagef("--region %q: %v", s, err)
		}
		r.path, r.size = path[:i], size
	}
	if r.path == "" {
		return servedRegion{}, flags.Usagef("--region %q: %s", s, form)
	}
	if r.path == region.PathMemfd && r.size == 0 {
		return servedRegion{}, flags.Usagef("--region %q: anonymous memory needs a size: use NAME=%s,size=SIZE", s, region.PathMemfd)
	}
	return r, nil
}
