package region

import (
	"errors"

	"golang.org/x/sys/unix"

	"pmnbd/persist/region/internal/image"
)

// lockMemory locks the region's memory. mlock(2) reads all of it and fails at a place that the memory has lost with
// ENOMEM, its error at the limit. That keeps no region from being served: lockMemory makes such places bad
// ones. MLOCK_ONFAULT tells the two apart, because it reads nothing.
func (r *Region) lockMemory() error {
	err := unix.Mlock(r.mem)
	if !errors.Is(err, unix.ENOMEM) {
		return err
	}
	if _, _, errno := unix.Syscall(unix.SYS_MLOCK2, address(r.mem), uintptr(len(r.mem)), unix.MLOCK_ONFAULT); errno != 0 {
		return errno
	}
	return r.touch()
}

// touch reads all of the region's memory, which locks it. Of what it cannot read it makes bad places. If these are
// no single blocks, the region has failed, and says why.
func (r *Region) touch() error {
	for off := uint64(0); off < uint64(len(r.mem)); {
		end := min(off-off%image.BlockSize+image.BlockSize, uint64(len(r.mem)))
		_, err := r.sum(r.mem[off:end])
		var fault *faultError
		if errors.As(err, &fault) {
			lost, failed := r.Lose(address(r.mem) + fault.off)
			if failed != nil {
				return nil
			}
			end, err = DataOffset+lost.End(), nil
		}
		if err != nil {
			return err
		}
		off = end
	}
	return nil
}
