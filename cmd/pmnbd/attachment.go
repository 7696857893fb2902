package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"

	"pmnbd/backend/remote"
	"pmnbd/nbd/kernel"
	"pmnbd/nbd/wire"
)

// A host is where devices are attached.
type host struct {
	// root is where /dev and /sys are.
	root string
	// run is where attachments are kept. It must not outlive the boot, as devices do not,
	// and it is root's: /run/pmnbd belongs to the service's user, who could put links there.
	run string
	// client connects to the kernel.
	client func() (*kernel.Client, error)
}

var thisHost = host{root: "/", run: "/run/pmnbd-attach", client: kernel.Open}

// An attachment is what is remembered of a device, from before it is attached until it
// is released. It is ours if the kernel knows it by the same Backend.
type attachment struct {
	Backend string `json:"backend"`
	// Export, Region and Lineage are what is on the device.
	Export  string    `json:"export"`
	Region  uuid.UUID `json:"region_uuid"`
	Lineage uuid.UUID `json:"lineage"`
	// Size and BlockSize, in bytes, and Flags are what the kernel was told. It takes no
	// other flags later, and who uses the device does not expect another size.
	Size      uint64                 `json:"size_bytes"`
	BlockSize uint64                 `json:"block_size_bytes"`
	Flags     wire.TransmissionFlags `json:"flags"`

	Connections int `json:"connections"`
	// Detached: it is being detached, and gets no new connections.
	Detached bool `json:"detached"`
}

var (
	// errForeign: the device is not ours.
	errForeign = errors.New("it is somebody else's and is left alone")
	// errNotFollowing: a client that sends again what was not answered would lose,
	// without a word, what was answered and not flushed (design §6).
	errNotFollowing = errors.New("not the server that the device was attached to, nor one that goes on where it ended")
	// errBusy: the device's lock is not to be had in time.
	errBusy = errors.New("another pmnbd attach or detach of it is not done")
)

// follows tells whether requests of the device may go to a server whose session is s.
func (a *attachment) follows(s *remote.Snapshot) error {
	switch {
	case s.RegionUUID != a.Region:
		return fmt.Errorf("%w: region %v became region %v", errNotFollowing, a.Region, s.RegionUUID)
	case s.Lineage == uuid.Nil || s.Lineage != a.Lineage:
		return fmt.Errorf("%w: something that was acknowledged may have been lost, or somebody else have had the region (lineage %v became %v)", errNotFollowing, a.Lineage, s.Lineage)
	}
	return nil
}

// fits tells whether a server that offers e and sizes can stand for what the kernel was
// told, where it sends requests of up to largest bytes. Those that wait to be sent again
// are not cut anew: the limit of the device cannot be lowered now.
func (a *attachment) fits(e wire.Export, sizes wire.BlockSizes, largest uint64) error {
	readOnly := func(f wire.TransmissionFlags) bool { return f&wire.FlagReadOnly != 0 }
	switch {
	case e.Size != a.Size:
		return fmt.Errorf("the server has %d bytes, the device %d", e.Size, a.Size)
	case readOnly(e.Flags) != readOnly(a.Flags):
		return fmt.Errorf("the server was made read-only: %v, the device: %v", readOnly(e.Flags), readOnly(a.Flags))
	case a.Flags&^e.Flags != 0:
		return fmt.Errorf("the server does not offer all that the device was told: flags %#x are missing", uint16(a.Flags&^e.Flags))
	case uint64(sizes.Min) > a.BlockSize:
		return fmt.Errorf("the server takes blocks of %d bytes, the device has %d", sizes.Min, a.BlockSize)
	case uint64(sizes.MaxPayload) < largest:
		return fmt.Errorf("the server takes requests of %d bytes, the device sends up to %d: serve with a larger --window", sizes.MaxPayload, largest)
	}
	return nil
}

// pollLock is how often lock asks: a lock that is waited for in the kernel could not be
// given up.
const pollLock = 50 * time.Millisecond

// lock keeps others from changing the device's attachment until unlock. It is errBusy
// when ctx ends before that. Its file stays: one that is removed keeps nobody out.
func (h *host) lock(ctx context.Context, d kernel.Device) (unlock func(), err error) {
	err = os.MkdirAll(h.run, 0o700)
	var f *os.File
	if err == nil {
		f, err = os.OpenFile(h.path(d, ".lock"), os.O_RDWR|os.O_CREATE, 0o600)
	}
	if errors.Is(err, fs.ErrPermission) {
		return nil, fmt.Errorf("%v: attaching and detaching block devices needs root: use sudo (%w)", d, err)
	}
	if err != nil {
		return nil, fmt.Errorf("lock %v: %w", d, err)
	}
	tick := time.NewTicker(pollLock)
	defer tick.Stop()
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return nil, errors.Join(fmt.Errorf("lock %v: %w", d, err), f.Close())
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("nothing was done with %v: %w", d, errBusy), f.Close())
		}
	}
}

// path is a file of the device.
func (h *host) path(d kernel.Device, suffix string) string {
	return filepath.Join(h.run, filepath.Base(d.String())+suffix)
}

// load reads the device's attachment. It is nil if nothing is attached, and an error if
// what is attached is not ours. The caller has the lock.
func (h *host) load(d kernel.Device) (*attachment, error) {
	state, err := d.State()
	if err != nil || !state.Attached {
		return nil, err
	}
	a, err := h.remembered(d)
	if err != nil {
		return nil, err
	}
	if a != nil && state.Backend == a.Backend {
		return a, nil
	}
	whose := fmt.Sprintf("attached by pid %d", state.PID)
	if state.Backend != "" {
		whose += fmt.Sprintf(" as %q", state.Backend)
	}
	return nil, fmt.Errorf("%v, %s: %w", d, whose, errForeign)
}

// remembered is what is remembered of the device, attached or not, and nil if nothing is.
func (h *host) remembered(d kernel.Device) (*attachment, error) {
	b, err := os.ReadFile(h.path(d, ".json"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var a attachment
	if err == nil {
		err = json.Unmarshal(b, &a)
	}
	if err != nil {
		return nil, fmt.Errorf("what is remembered of %v: %w", d, err)
	}
	return &a, nil
}

// save remembers a, whole or not at all. The caller has the lock.
func (h *host) save(d kernel.Device, a *attachment) error {
	b, err := json.Marshal(a)
	if err == nil {
		err = os.WriteFile(h.path(d, ".new"), b, 0o600)
	}
	if err == nil {
		err = os.Rename(h.path(d, ".new"), h.path(d, ".json"))
	}
	if err != nil {
		return fmt.Errorf("remember %v: %w", d, err)
	}
	return nil
}

// forget removes what is remembered if it is of that backend, and not of who attached
// the device since. The caller has the lock.
func (h *host) forget(d kernel.Device, backend string) error {
	a, err := h.remembered(d)
	if err != nil || a == nil || a.Backend != backend {
		return err
	}
	if err := os.Remove(h.path(d, ".json")); err != nil {
		return fmt.Errorf("forget %v: %w", d, err)
	}
	return nil
}
