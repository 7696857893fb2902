package attach

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"pmnbd/cmd/pmnbd/internal/kernel"
)

// A host is a machine with block devices.
type host struct {
	// run is the directory of locks and attachments. It must not outlive the boot, because
	// devices do not, and it is root's: /run/pmnbd belongs to the service's user, who could
	// put links there.
	run string
	// client connects to the kernel.
	client func() (*kernel.Client, error)
}

var thisHost = host{run: "/run/pmnbd-attach", client: kernel.Open}

var (
	// errForeign is the error of a device that another program attached.
	errForeign = errors.New("it is somebody else's and is left alone")
	// errBusy is the error of a lock that another command did not give back in time.
	errBusy = errors.New("another pmnbd attach or detach of it is not done")
)

// A locked device is one that no other command attaches, detaches or renews until unlock.
type locked struct {
	kernel.Device
	host *host
	file *os.File
}

// pollLock is how often lock tries. It must not wait in the kernel, where ctx could not end
// the wait.
const pollLock = 50 * time.Millisecond

// lock locks the device d. The error is errBusy if ctx ends before that. The lock's file
// stays for good: removed, it would keep nobody out.
func (h *host) lock(ctx context.Context, d kernel.Device) (*locked, error) {
	l := &locked{Device: d, host: h}
	err := os.MkdirAll(h.run, 0o700)
	if err == nil {
		l.file, err = os.OpenFile(l.path(".lock"), os.O_RDWR|os.O_CREATE, 0o600)
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
		err := unix.Flock(int(l.file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return l, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return nil, errors.Join(fmt.Errorf("lock %v: %w", d, err), l.file.Close())
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("nothing was done with %v: %w", d, errBusy), l.file.Close())
		}
	}
}

func (l *locked) unlock() { _ = l.file.Close() }

// path is the path of one of the device's files.
func (l *locked) path(suffix string) string {
	return filepath.Join(l.host.run, filepath.Base(l.String())+suffix)
}

// attachment returns the device's attachment, or nil if the device is not attached. The
// error is errForeign if another program attached it.
func (l *locked) attachment() (*Attachment, error) {
	state, err := l.State()
	if err != nil || !state.Attached {
		return nil, err
	}
	a, err := l.remembered()
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
	return nil, fmt.Errorf("%v, %s: %w", l, whose, errForeign)
}

// remembered returns what was saved of the device, whether or not it is attached, or nil.
func (l *locked) remembered() (*Attachment, error) {
	b, err := os.ReadFile(l.path(".json"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var a Attachment
	if err == nil {
		err = json.Unmarshal(b, &a)
	}
	if err != nil {
		return nil, fmt.Errorf("what is remembered of %v: %w", l, err)
	}
	return &a, nil
}

// save remembers a, whole or not at all.
func (l *locked) save(a *Attachment) error {
	b, err := json.Marshal(a)
	if err == nil {
		err = os.WriteFile(l.path(".new"), b, 0o600)
	}
	if err == nil {
		err = os.Rename(l.path(".new"), l.path(".json"))
	}
	if err != nil {
		return fmt.Errorf("remember %v: %w", l, err)
	}
	return nil
}

// forget removes what is remembered of the attachment with that backend. It leaves alone
// what a later attach saved.
func (l *locked) forget(backend string) error {
	a, err := l.remembered()
	if err != nil || a == nil || a.Backend != backend {
		return err
	}
	if err := os.Remove(l.path(".json")); err != nil {
		return fmt.Errorf("forget %v: %w", l, err)
	}
	return nil
}
