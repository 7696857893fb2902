package region

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"pmnbd/persist"
	"pmnbd/persist/region/internal/medium"
)

const (
	// sector is the unit of sysfs's badblocks and of a partition's start.
	sector = 512
	// maxBadLines is how many lines of a badblocks file are read. The kernel keeps one page of 8 bytes each.
	maxBadLines = 4096
)

// Bad reads what the kernel knows of bad places beneath f (Documentation/ABI: sysfs-block,
// sysfs-bus-nd). The kernel learns of them from the platform's scrub and from machine checks.
//
//	a file:     the block device's badblocks, mapped to the file by its extents (FIEMAP)
//	device-dax: the nd_region's badblocks, less where the device begins in it
//
// Volumes (device mapper) have no badblocks. What lies beneath them is found by faults alone.
func (m machine) Bad(f *os.File, mem *medium.Memory) ([]persist.Range, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return nil, fmt.Errorf("stat: %w", err)
	}
	if mem.Device != 0 {
		dir, err := m.directory("char", st.Rdev)
		if err != nil {
			return nil, err
		}
		return badOfDevice(dir)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, nil
	}
	dir, err := m.directory("block", st.Dev)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // tmpfs, anonymous memory
	}
	if err != nil {
		return nil, err
	}
	bad, err := badOfBlockDevice(dir)
	if err != nil || len(bad) == 0 {
		return nil, err
	}
	return m.mapped(f, bad)
}

// badOfDevice returns the bad places of a device-dax device with directory dir, as bytes of it.
func badOfDevice(dir string) ([]persist.Range, error) {
	regions, err := ndRegions(dir, 0)
	if err != nil || len(regions) == 0 {
		return nil, err
	}
	bad, err := badblocks(regions[0])
	if err != nil || len(bad) == 0 {
		return nil, err
	}
	// Only root may read where memory lies.
	begin, err := resource(regions[0])
	if err != nil {
		return nil, fmt.Errorf("%d ranges of %s are bad, and which of them are the device's is not known: %w", len(bad), filepath.Base(regions[0]), err)
	}
	device, err := resource(dir)
	if err != nil {
		return nil, fmt.Errorf("%d ranges of %s are bad, and which of them are the device's is not known: %w", len(bad), filepath.Base(regions[0]), err)
	}
	if device < begin {
		return nil, fmt.Errorf("%s begins at %#x, in front of its region at %#x", dir, device, begin)
	}
	return behind(bad, device-begin), nil
}

// resource returns the address at which a device's memory begins.
func resource(dir string) (uint64, error) {
	text, err := attribute(dir, "resource")
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(text, 0, 64)
	if err != nil || n == 0 { // the kernel hides addresses from some
		return 0, fmt.Errorf("%s/resource says %q: only root can read it", dir, text)
	}
	return n, nil
}

// badOfBlockDevice returns the bad places of the block device with directory dir, as bytes of it. A partition
// has those of its disk.
func badOfBlockDevice(dir string) ([]persist.Range, error) {
	if text, err := attribute(dir, "partition"); err != nil || text == "" {
		bad, badErr := badblocks(dir)
		return bad, errors.Join(err, badErr)
	}
	bad, err := badblocks(filepath.Dir(dir))
	if err != nil || len(bad) == 0 {
		return nil, err
	}
	text, err := attribute(dir, "start")
	if err != nil {
		return nil, err
	}
	start, err := strconv.ParseUint(text, 10, 64)
	if err != nil || start > maxSize/sector {
		return nil, fmt.Errorf("%s/start says %q", dir, text)
	}
	return behind(bad, start*sector), nil
}

// behind returns what of ranges lies at start or behind, as seen from there.
func behind(ranges []persist.Range, start uint64) (rest []persist.Range) {
	for _, g := range ranges {
		if g.End() <= start {
			continue
		}
		if g.Off < start {
			g = persist.Range{Off: start, Len: g.End() - start}
		}
		rest = append(rest, persist.Range{Off: g.Off - start, Len: g.Len})
	}
	return rest
}

// badblocks reads the badblocks of the device with directory dir, as bytes of it. A line is "SECTOR COUNT".
func badblocks(dir string) (bad []persist.Range, err error) {
	text, err := attribute(dir, "badblocks")
	if err != nil || text == "" {
		return nil, err
	}
	lines := strings.Split(text, "\n")
	if len(lines) > maxBadLines {
		return nil, fmt.Errorf("%s/badblocks has %d lines", dir, len(lines))
	}
	for _, line := range lines {
		at, count, ok := strings.Cut(strings.TrimSpace(line), " ")
		off, errOff := strconv.ParseUint(at, 10, 64)
		n, errLen := strconv.ParseUint(strings.TrimSpace(count), 10, 64)
		if !ok || errOff != nil || errLen != nil || off > maxSize/sector || n > maxSize/sector {
			return nil, fmt.Errorf("%s/badblocks: %q is no range of sectors", dir, line)
		}
		bad = append(bad, persist.Range{Off: off * sector, Len: n * sector})
	}
	return bad, nil
}

// mapped returns which bytes of the file f lie in bad, bytes of its block device.
func (m machine) mapped(f *os.File, bad []persist.Range) (found []persist.Range, err error) {
	extents := m.extents
	if extents == nil {
		extents = fileExtents
	}
	err = extents(f, func(e extent) {
		for _, g := range bad {
			from, to := max(g.Off, e.physical), min(g.End(), e.physical+e.len)
			if from < to {
				found = append(found, persist.Range{Off: e.logical + from - e.physical, Len: to - from})
			}
		}
	})
	if err != nil {
		err = fmt.Errorf("%d ranges of its block device are bad, and which of them are the file's is not known: %w", len(bad), err)
	}
	return found, err
}

// An extent is a run of a file: len bytes at logical of the file lie at physical of its block device.
type extent struct{ logical, physical, len uint64 }
