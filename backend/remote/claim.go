package remote

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"
)

// A claim is the lock that keeps two processes of this host from being one owner:
// the target lets an initiator's id take its own region over at once (design §5).
type claim struct {
	f      *os.File
	region [16]byte
}

// claimRegion takes the lock of an id and a region's UUID in dir. The lock ends
// with the process, however that ends; the file stays.
func claimRegion(dir string, id, region [16]byte) (*claim, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the state directory: %w", err)
	}
	path := filepath.Join(dir, fmt.Sprintf("%s-%s.lock", uuid.UUID(id), uuid.UUID(region)))
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the lock of the region: %w", err)
	}
	if err := lock(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &claim{f, region}, nil
}

// lock keeps other processes from f, a file of an id and region, until it is closed.
func lock(f *os.File) error {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	switch {
	case errors.Is(err, unix.EWOULDBLOCK):
		return fmt.Errorf("another pmnbd of this host and id serves this region (%s is locked): stop it, or give this one an --id of its own", f.Name())
	case err != nil:
		return fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	return nil
}

// Close gives the lock up.
func (c *claim) Close() error { return c.f.Close() }
