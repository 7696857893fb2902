package region

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"runtime/debug"

	"golang.org/x/sys/unix"

	"pmnbd/internal/vmem"
	"pmnbd/persist/region/internal/medium"
)

// readHeader reads both copies of the superblock into b, of 2×CopySize bytes.
func readHeader(f *os.File, m *medium.Memory, b []byte) error {
	if m.Device == 0 {
		_, err := f.ReadAt(b, 0)
		if errors.Is(err, io.EOF) {
			return explain(ErrNoSuperblock)
		}
		return lostHeader(err)
	}
	if m.Device < uint64(len(b)) {
		return explain(ErrNoSuperblock)
	}
	mem, err := m.Map(f, 0, unix.PROT_READ)
	if err != nil {
		return err
	}
	return errors.Join(lostHeader(loadHeader(mem, b)), unix.Munmap(mem))
}

// lostHeader says what to do where the medium has lost a part of a header. To write there would take a copy of the
// superblock that may come back: some disks only pause.
func lostHeader(err error) error {
	if !errors.Is(err, unix.EIO) && !errors.Is(err, ErrFault) {
		return err
	}
	return fmt.Errorf("%w: its medium cannot read the first 2 MiB, which have the superblock: if that stays so, repair the block with `ndctl clear-errors`; the other copy of the superblock then repairs this one", err)
}

func loadHeader(mem, b []byte) (err error) {
	defer caught(mem, debug.SetPanicOnFault(true), &err)
	copy(b, mem)
	return nil
}

// makeDurable makes the stores to mem, the start of a mapping of f, durable.
func makeDurable(f *os.File, m *medium.Memory, mem []byte, on medium.Medium) (err error) {
	if m.Device == 0 {
		return f.Sync()
	}
	defer caught(mem, debug.SetPanicOnFault(true), &err)
	on.WriteBack(mem, 0, uint64(len(mem)))
	return nil
}

// clearDevice checks that a device holds only zeroes. With force it clears the device.
func clearDevice(f *os.File, m *medium.Memory, force bool, on medium.Medium) error {
	mem, err := m.Map(f, 0, unix.PROT_READ|unix.PROT_WRITE)
	if err != nil {
		return err
	}
	return errors.Join(zeroed(mem, force, on), unix.Munmap(mem))
}

func zeroed(mem []byte, force bool, on medium.Medium) (err error) {
	defer caught(mem, debug.SetPanicOnFault(true), &err)
	if force {
		clear(mem)
		on.WriteBack(mem, 0, uint64(len(mem)))
		return nil
	}
	zeroes := make([]byte, readPiece)
	for off := 0; off < len(mem); off += readPiece {
		b := mem[off:min(off+readPiece, len(mem))]
		if !bytes.Equal(b, zeroes[:len(b)]) {
			return notEmpty()
		}
	}
	return nil
}

// readable reads all of mem, which fails if the medium has lost part of it.
func readable(mem []byte) (err error) {
	defer caught(mem, debug.SetPanicOnFault(true), &err)
	_ = crc32.Checksum(mem, castagnoli)
	return nil
}

// mapRegion maps a region of size bytes. space is nil unless it has several parts.
func mapRegion(f *os.File, m *medium.Memory, parts []part, size uint64) (mem []byte, space *vmem.Range, err error) {
	for i := range parts {
		if err := ensureAllocated(parts[i].file, &parts[i].mem, parts[i].data+parts[i].size); err != nil {
			return nil, nil, fmt.Errorf("part %d, %s: %w", i, parts[i].path, err)
		}
	}
	if parts != nil {
		if space, err = mapParts(parts); err != nil {
			return nil, nil, err
		}
		return space.Bytes(), space, nil
	}
	total := DataOffset + size
	if err := ensureAllocated(f, m, total); err != nil {
		return nil, nil, err
	}
	mem, err = m.Map(f, total, unix.PROT_READ|unix.PROT_WRITE)
	return mem, nil, err
}

// unmap unmaps the region. Nothing may use its memory any more.
func (r *Region) unmap() error {
	mem := r.mem
	r.mem = nil
	if r.space != nil {
		return r.space.Close()
	}
	return unix.Munmap(mem)
}
