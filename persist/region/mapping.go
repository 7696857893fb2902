package region

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"runtime/debug"

	"golang.org/x/sys/unix"

	"pmnbd/persist/flush"
)

// mmap maps the first n bytes of f. A device is mapped as a whole: its parts would
// have to keep its alignment, which is up to 1 GiB.
func (m *memory) mmap(f *os.File, n uint64, prot int) ([]byte, error) {
	if m.device != 0 {
		n = m.device
	}
	mem, err := unix.Mmap(int(f.Fd()), 0, int(n), prot, m.flags)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes: %w", n, err)
	}
	return mem, nil
}

// readHeader reads both copies of the superblock into b, of their size.
func (m *memory) readHeader(f *os.File, b []byte) error {
	if m.device == 0 {
		return readHeader(f, b)
	}
	if m.device < uint64(len(b)) {
		return explain(ErrNoSuperblock)
	}
	mem, err := m.mmap(f, 0, unix.PROT_READ)
	if err != nil {
		return err
	}
	return errors.Join(loadHeader(mem, b), unix.Munmap(mem))
}

func loadHeader(mem, b []byte) (err error) {
	defer caught(mem, debug.SetPanicOnFault(true), &err)
	copy(b, mem)
	return nil
}

// durable makes durable what was stored into mem, a mapping of f.
func (m *memory) durable(f *os.File, mem []byte) (err error) {
	if m.device == 0 {
		return f.Sync()
	}
	defer caught(mem, debug.SetPanicOnFault(true), &err)
	flush.Lines(mem)
	return nil
}

// clearDevice discards what a device holds, or refuses if it holds anything.
func (m *memory) clearDevice(f *os.File, force bool) error {
	mem, err := m.mmap(f, 0, unix.PROT_READ|unix.PROT_WRITE)
	if err != nil {
		return err
	}
	return errors.Join(zeroed(mem, force), unix.Munmap(mem))
}

func zeroed(mem []byte, force bool) (err error) {
	defer caught(mem, debug.SetPanicOnFault(true), &err)
	if force {
		clear(mem)
		flush.Lines(mem)
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

// readable reads all of mem, so that what the medium has lost shows.
func readable(mem []byte) (err error) {
	defer caught(mem, debug.SetPanicOnFault(true), &err)
	_ = crc32.Checksum(mem, castagnoli)
	return nil
}
