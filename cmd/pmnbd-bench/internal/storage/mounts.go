package storage

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// A mount is a line of /proc/self/mountinfo.
type mount struct {
	number  string // "major:minor"
	point   string
	kind    string // of the filesystem
	source  string
	options []string // of the mount and of the filesystem
}

// unescape undoes what the kernel does to characters that separate fields.
var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

func (s System) mounts() (all []mount, err error) {
	b, err := os.ReadFile(s.path("/proc/self/mountinfo"))
	if err != nil {
		return nil, err
	}
	for line := range bytes.Lines(b) {
		fields := strings.Fields(string(line))
		// proc_pid_mountinfo(5): optional fields end with a hyphen.
		end := slices.Index(fields, "-")
		if end < 6 || len(fields) < end+4 {
			continue
		}
		all = append(all, mount{
			number: fields[2], point: unescape.Replace(fields[4]), kind: fields[end+1], source: unescape.Replace(fields[end+2]),
			options: append(strings.Split(fields[5], ","), strings.Split(unescape.Replace(fields[end+3]), ",")...),
		})
	}
	return all, nil
}

// holding returns the mount that holds a path. Of two on the same directory the later one does.
func holding(mounts []mount, path string) (found mount, ok bool) {
	for _, m := range mounts {
		rel, err := filepath.Rel(m.point, path)
		if err != nil || rel == ".." || strings.HasPrefix(rel, "../") {
			continue
		}
		if !ok || len(m.point) >= len(found.point) {
			found, ok = m, true
		}
	}
	return found, ok
}

// option returns the value of an option.
func (m mount) option(name string) (string, bool) {
	for _, o := range m.options {
		if v, ok := strings.CutPrefix(o, name+"="); ok {
			return v, true
		}
	}
	return "", false
}

// noSync says which option of the mount takes the sense out of an fsync, or "".
func (m mount) noSync() string {
	for _, o := range []string{"nobarrier", "barrier=0", "volatile"} {
		if slices.Contains(m.options, o) {
			return "it is mounted with the option " + o
		}
	}
	return ""
}
