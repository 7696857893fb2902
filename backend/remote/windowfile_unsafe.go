package remote

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"pmnbd/backend"
)

// detach puts anonymous memory in the place of the arena. What clients receive from then on
// does not reach the file, where the next run finds what was not flushed. No connection to the
// target is left. Clients may be storing into the arena at this moment: their ops fail.
func (w *windowFile) detach() error {
	if w.mem == nil {
		return nil
	}
	h := w.header()
	return w.anonymize(w.mem[h.arenaOff():][:int(h.Chunks)*backend.ChunkSize])
}

// abandon leaves the mapping, without the file behind it, to the clients that still hold chunks:
// to unmap it would kill the process. The index is not used any more.
func (w *windowFile) abandon() error {
	mem := w.mem
	w.mem = nil
	if mem == nil {
		return nil
	}
	return w.anonymize(mem)
}

// anonymize puts anonymous memory in the place of b, which is a part of w.mem that begins and ends
// with a page. The addresses stay w's own: only what is behind them changes.
func (w *windowFile) anonymize(b []byte) error {
	_, err := unix.MmapPtr(-1, 0, unsafe.Pointer(&b[0]), uintptr(len(b)),
		unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_FIXED)
	if err != nil {
		return fmt.Errorf("%w %s: keep it from clients: %w", ErrWindow, w.f.Name(), err)
	}
	return nil
}
