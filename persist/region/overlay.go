package region

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// upperOf finds the filesystem that an overlay keeps its written files on.
func upperOf(f *os.File) (upper, error) {
	id, err := mountID(f)
	if err != nil {
		return upper{}, err
	}
	mounts, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return upper{}, err
	}
	defer mounts.Close() //nolint:errcheck // only read
	options, err := overlayOptions(mounts, id)
	if err != nil {
		return upper{}, err
	}
	dir, unsynced := parseOverlay(options)
	if dir == "" || dir[0] != '/' {
		return upper{}, errors.New("no absolute upperdir in /proc/self/mountinfo")
	}
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return upper{}, fmt.Errorf("statfs %s: %w", dir, err)
	}
	return upper{magic: st.Type, unsynced: unsynced}, nil
}

// mountID is the id of the mount through which f was opened (proc(5), fdinfo).
func mountID(f *os.File) (int, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", f.Fd()))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, "mnt_id:"); ok {
			return strconv.Atoi(strings.TrimSpace(v))
		}
	}
	return 0, errors.New("no mnt_id in fdinfo")
}

// overlayOptions finds the overlay mounted with an id in a mountinfo file and
// returns its superblock options (proc(5): "id … - type source options").
func overlayOptions(mountinfo io.Reader, id int) (string, error) {
	want := strconv.Itoa(id)
	lines := bufio.NewScanner(mountinfo)
	lines.Buffer(nil, 1<<20) // an overlay of many layers has long options
	for lines.Scan() {
		mount, super, ok := strings.Cut(lines.Text(), " - ")
		if !ok {
			continue
		}
		if got, _, _ := strings.Cut(mount, " "); got != want {
			continue
		}
		fields := strings.Fields(super)
		if len(fields) < 3 || fields[0] != "overlay" {
			return "", fmt.Errorf("mount %d is no overlay in /proc/self/mountinfo", id)
		}
		return fields[2], nil
	}
	if err := lines.Err(); err != nil {
		return "", err
	}
	return "", fmt.Errorf("mount %d is not in /proc/self/mountinfo", id)
}

// parseOverlay takes the upper directory out of an overlay's options, and whether
// it syncs nothing. Blanks and the like are octal there ("\040"); a comma or
// colon inside a path has a backslash before it.
func parseOverlay(options string) (dir string, unsynced bool) {
	for len(options) > 0 {
		end := 0
		for end < len(options) && options[end] != ',' {
			if options[end] == '\\' {
				end++
			}
			end++
		}
		option := options[:min(end, len(options))]
		options = options[min(end+1, len(options)):]
		if option == "volatile" || option == "fsync=volatile" {
			unsynced = true
		}
		if v, ok := strings.CutPrefix(option, "upperdir="); ok {
			dir = unescape(v)
		}
	}
	return dir, unsynced
}

// unescape undoes "\ooo" (three octal digits) and "\c".
func unescape(s string) string {
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) {
			if i+3 < len(s) {
				if v, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
					b = append(b, byte(v))
					i += 3
					continue
				}
			}
			i++
		}
		b = append(b, s[i])
	}
	return string(b)
}
