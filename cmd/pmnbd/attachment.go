package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"

	"pmnbd/backend/remote"
	"pmnbd/nbd/kernel"
)

// A host is where devices are attached.
type host struct {
	// root is where /dev and /sys are.
	root string
	// run is where attachments are kept. It must not outlive the boot, as devices do not.
	run string
	// client connects to the kernel.
	client func() (*kernel.Client, error)
}

var thisHost = host{root: "/", run: "/run/pmnbd", client: kernel.Open}

// An attachment is what is remembered of a device, from before it is attached until it
// is released. It is ours if the kernel knows it by the same Backend.
type attachment struct {
	Backend string `json:"backend"`
	// Export and Region are what is on the device, Epoch is the session of the
	// server that its connections went to last.
	Export      string    `json:"export"`
	Region      uuid.UUID `json:"region_uuid"`
	Epoch       uint64    `json:"epoch"`
	Connections int       `json:"connections"`
	// Detached: it is being detached, and gets no new connections.
	Detached bool `json:"detached"`
}

// errForeign: the device is not ours.
var errForeign = errors.New("it is somebody else's and is left alone")

// errNotFollowing: a client that sends again what was not answered would lose, without
// a word, what was answered and not flushed (design §6).
var errNotFollowing = errors.New("not the server that the device was attached to, nor a clean restart of it")

// follows tells whether requests of the device may go to a server whose session is s.
func (a *attachment) follows(s *remote.Snapshot) error {
	why := ""
	switch {
	case s.RegionUUID != a.Region:
		why = fmt.Sprintf("region %v became region %v", a.Region, s.RegionUUID)
	case s.Epoch == a.Epoch, s.Epoch == a.Epoch+1 && !s.Unclean:
		return nil
	case s.Epoch == a.Epoch+1:
		why = "pmnbd ended without giving its session back, and what it had acknowledged and not flushed is lost"
	default:
		why = fmt.Sprintf("epoch %d became epoch %d, so that others may have written meanwhile", a.Epoch, s.Epoch)
	}
	return fmt.Errorf("%w: %s", errNotFollowing, why)
}

// lock keeps others from changing attachments until unlock.
func (h *host) lock() (unlock func(), err error) {
	err = os.MkdirAll(h.run, 0o700)
	var dir *os.File
	if err == nil {
		dir, err = os.Open(h.run)
	}
	if err == nil {
		for {
			if err = unix.Flock(int(dir.Fd()), unix.LOCK_EX); !errors.Is(err, unix.EINTR) {
				break
			}
		}
	}
	if err != nil {
		return nil, fmt.Errorf("lock the attachments of this host: %w", err)
	}
	return func() { _ = dir.Close() }, nil
}

func (h *host) path(d kernel.Device) string {
	return filepath.Join(h.run, filepath.Base(d.String())+".json")
}

// load reads the device's attachment. It is nil if nothing is attached, and an error if
// what is attached is not ours.
func (h *host) load(d kernel.Device) (*attachment, error) {
	state, err := d.State()
	if err != nil || !state.Attached {
		return nil, err
	}
	var a attachment
	b, err := os.ReadFile(h.path(d))
	if err == nil {
		err = json.Unmarshal(b, &a)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("what is remembered of %v: %w", d, err)
	}
	if err == nil && state.Backend == a.Backend {
		return &a, nil
	}
	whose := fmt.Sprintf("attached by pid %d", state.PID)
	if state.Backend != "" {
		whose += fmt.Sprintf(" as %q", state.Backend)
	}
	return nil, fmt.Errorf("%v, %s: %w", d, whose, errForeign)
}

// save remembers a, whole or not at all.
func (h *host) save(d kernel.Device, a *attachment) error {
	b, err := json.Marshal(a)
	if err == nil {
		err = os.WriteFile(h.path(d)+".new", b, 0o600)
	}
	if err == nil {
		err = os.Rename(h.path(d)+".new", h.path(d))
	}
	if err != nil {
		return fmt.Errorf("remember %v: %w", d, err)
	}
	return nil
}

// forget removes what is remembered, if it is.
func (h *host) forget(d kernel.Device) error {
	if err := os.Remove(h.path(d)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("forget %v: %w", d, err)
	}
	return nil
}
