package region

import (
	"bufio"
	"io"
	"os"
	"strings"
)

// MemoryMounts returns where filesystems are mounted that are memory of this boot. Beside an error it returns those that
// it has found.
func (machine) MemoryMounts() ([]string, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // only read
	return memoryMounts(f)
}

// memoryMounts finds filesystems in memory in a mountinfo file (proc(5): "id parent device root point options … - type
// source options").
func memoryMounts(mountinfo io.Reader) (points []string, err error) {
	lines := bufio.NewScanner(mountinfo)
	lines.Buffer(nil, 1<<20) // an overlay with many layers has long options
	for lines.Scan() {
		mount, super, _ := strings.Cut(lines.Text(), " - ")
		fields := strings.Fields(mount)
		if len(fields) < 6 {
			continue
		}
		switch kind, _, _ := strings.Cut(super, " "); kind {
		case "tmpfs", "devtmpfs", "ramfs", "hugetlbfs":
			points = append(points, unescape(fields[4]))
		}
	}
	return points, lines.Err()
}
