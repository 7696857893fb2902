package remote

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"

	"pmnbd/persist/wire"
)

// A record is a file beside the windows: to which region a name at an address led in this
// boot. Windows are found by the UUID that the target tells. Where that is another one than
// before, the window of the old region would lie unread beside that of the new one, and
// clients that stayed would meet other contents.
//
// An address spelled in another way has a record of its own.
type record struct {
	boot, region uuid.UUID
}

// recordName is the file of the name that d opens.
func (d *Device) recordName() string {
	sum := sha256.Sum256([]byte(d.cfg.Addr + "\x00" + d.cfg.Region))
	return fmt.Sprintf("%s-%x.region", uuid.UUID(d.cfg.ID), sum[:8])
}

func (r record) String() string { return fmt.Sprintf("%v %v\n", r.boot, r.region) }

func parseRecord(b []byte) (r record, err error) {
	boot, region, _ := strings.Cut(strings.TrimSpace(string(b)), " ")
	if r.boot, err = uuid.Parse(boot); err == nil {
		r.region, err = uuid.Parse(region)
	}
	return r, err
}

// leads compares the region that refused names with the one that the name led to before,
// and notes it. A window of the old one in which something may be is a LossError; if that
// is accepted the window is removed. So is one in which nothing can be: a target that names
// another region at each start leaves one file at a time.
func (d *Device) leads(refused *wire.Refused, boot uuid.UUID) error {
	windows, err := OpenDirectory(d.cfg.WindowDir)
	if err != nil {
		return fmt.Errorf("the directory of window files: %w", err)
	}
	defer windows.Close() //nolint:errcheck // nothing is written to it
	name, now := d.recordName(), record{boot, refused.UUID}
	b, err := windows.Read(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read which region this was: %w", err)
	}
	if err == nil {
		was, err := parseRecord(b)
		switch {
		case err != nil:
			err = loss("%s cannot be read, so nobody knows which region %s at %s was before", filepath.Join(windows.path, name), d.cfg.Region, d.cfg.Addr)
		case was == now:
			return nil
		case was.boot == boot:
			err = d.unread(windows, was.region, boot, refused)
		}
		var lost *LossError
		switch {
		case errors.As(err, &lost) && d.cfg.AcceptLoss && refused.Code == wire.CodeBusy:
			return &RefusedError{Region: d.cfg.Region, Refused: *refused} // what was left stays as it is
		case errors.As(err, &lost) && d.cfg.AcceptLoss:
			d.accept(lost)
		case err != nil:
			return err
		}
		if was.boot == boot {
			if err := d.drop(windows, was.region); err != nil {
				return err
			}
		}
	}
	d.noted = true
	return windows.Write(name, []byte(now.String()), false)
}

// unread is a LossError if the window of region old has something in it, or a process.
func (d *Device) unread(windows *Directory, old, boot uuid.UUID, refused *wire.Refused) error {
	name := fileOf(d.cfg.ID, old, "window")
	path := filepath.Join(windows.path, name)
	changed := fmt.Sprintf("region %s at %s has UUID %v now, and had UUID %v when this initiator opened it last: somebody created the region again, or another target answers there",
		d.cfg.Region, d.cfg.Addr, uuid.UUID(refused.UUID), old)
	w, err := loadWindowFile(windows, name, unix.O_RDWR)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.Is(err, errLocked):
		return loss("%s, and a pmnbd still runs for the old one: %v", changed, err)
	case err != nil:
		return err
	}
	h := w.header()
	if err := w.Close(); err != nil {
		return err
	}
	is := ""
	switch {
	case h.State == windowDamaged:
		is = "damaged"
	case h.State == 0, h.Boot != boot, h.unused():
		return nil
	case h.State == windowLive && h.Opened != 0:
		is = "live: acknowledged writes that no FLUSH covered are in it, and nowhere else"
	case h.State == windowFailed:
		is = "failed: " + h.failure()
	default:
		is = "of a clean end, and clients that stayed would meet other contents"
	}
	return loss("%s. The old window %s is %s", changed, path, is)
}

// drop removes the window of region old, unless a process has it.
func (d *Device) drop(windows *Directory, old uuid.UUID) error {
	w, err := loadWindowFile(windows, fileOf(d.cfg.ID, old, "window"), unix.O_RDWR)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, errLocked):
		return nil
	case err != nil:
		return err
	}
	err = errors.Join(w.remove(), w.Close())
	if c, locked := claimRegion(d.cfg.StateDir, d.cfg.ID, old); locked == nil {
		err = errors.Join(err, c.state.Remove(filepath.Base(c.f.Name())), c.Close())
	}
	return err
}

// unused tells whether nothing was ever acknowledged in a window, nor left by the run before.
func (h *header) unused() bool {
	return h.State == windowLive && h.Opened == 0 && h.ContentsID == [16]byte{}
}

// forget removes what a start that did not open the region has made, so that a target
// cannot fill this host with files. granted: an OPEN may have been granted, and the window's
// header has to tell the next start.
func (d *Device) forget(granted bool) (err error) {
	if d.file != nil {
		switch h := d.file.header(); {
		case h.State == 0, h.unused() && !granted:
			err = d.file.remove()
			if d.noted {
				err = errors.Join(err, d.file.dir.Remove(d.recordName()))
			}
		case h.State == windowLive && h.Opened == 0:
			err = d.file.shrink() // nothing is in it
		}
	}
	if d.claim != nil {
		err = errors.Join(err, d.claim.state.Remove(filepath.Base(d.claim.f.Name())))
	}
	return err
}

// lastDir is where the window of a region was when this initiator opened it last; empty if
// nothing tells.
func (d *Device) lastDir(region [16]byte) string {
	b, _ := d.claim.state.Read(fileOf(d.cfg.ID, region, "last")) // what cannot be read shows nothing
	return strings.TrimSuffix(string(b), "\n")
}

// elsewhereLeft says that the last window was in another directory; empty if it was not.
func (d *Device) elsewhereLeft(region [16]byte) string {
	here, err := filepath.Abs(d.cfg.WindowDir)
	last := d.lastDir(region)
	if err != nil || last == "" || last == here {
		return ""
	}
	if _, err := os.Stat(filepath.Join(last, fileOf(d.cfg.ID, region, "window"))); err != nil {
		return "" // it would not help
	}
	return fmt.Sprintf("this initiator had region %s last with --window-dir %s, and this start has %s: start it with %s again, where its window is",
		d.cfg.Region, last, here, last)
}
