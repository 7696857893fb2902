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

// upperOf identifies the filesystem on which an overlay keeps written files.
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

// mountID returns the id of the mount through which f was opened (proc(5), fdinfo).
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
	lines.Buffer(nil, 1<<20) // an overlay with many layers has long options
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
			return "", fmt.Errorf("mount %d is not an overlay in /proc/self/mountinfo", id)
		}
		return fields[2], nil
	}
	if err := lines.Err(); err != nil {
		return "", err
	}
	return "", fmt.Errorf("mount %d is not in /proc/self/mountinfo", id)
}

// parseOverlay extracts the upper directory from an overlay's options, and whether the
// overlay ignores syncs. Inside a value, mountinfo writes blanks, commas and backslashes
// in octal ("\054"). A comma may still have the backslash that mount(2) needed.
func parseOverlay(options string) (dir string, unsynced bool) {
	for option := range strings.SplitSeq(options, ",") {
		if option == "volatile" || option == "fsync=volatile" {
			unsynced = true
		}
		if v, ok := strings.CutPrefix(option, "upperdir="); ok {
			dir = strings.ReplaceAll(unescape(v), `\,`, ",")
		}
	}
	return dir, unsynced
}

// unescape undoes "\ooo" with three octal digits.
func unescape(s string) string {
	b := make([]byte, 0, len(s))
	for len(s) > 0 {
		if s[0] == '\\' && len(s) >= 4 {
			if v, err := strconv.ParseUint(s[1:4], 8, 8); err == nil {
				b, s = append(b, byte(v)), s[4:]
				continue
			}
		}
		b, s = append(b, s[0]), s[1:]
	}
	return string(b)
}
