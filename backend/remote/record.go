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

// A record is a file beside the windows. It says to which region a name at an address led in
// one boot of this host. An address spelled in another way has a record of its own.
type record struct {
	boot, region uuid.UUID
}

// recordName is the name of the file that holds the record of the name that d opens.
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

// checkName reads to which region the name led before, decides what a change of it means, and
// notes the region that it leads to now.
func (d *Device) checkName(s *situation) error {
	windows, err := openDirectory(d.cfg.WindowDir)
	if err != nil {
		return fmt.Errorf("the directory of window files: %w", err)
	}
	defer windows.Close() //nolint:errcheck // nothing is written to it
	name := d.recordName()
	was, err := d.previousName(windows, name, s)
	if err != nil {
		return err
	}
	n := decideName(s, was, filepath.Join(windows.path, name), d.cfg.Addr)
	if n.err != nil {
		return n.err
	}
	if n.lost != nil {
		d.accept(n.lost)
	}
	if n.drop {
		if err := d.dropWindow(windows, was.is.region); err != nil {
			return err
		}
	}
	if !n.write {
		return nil
	}
	d.noted = true
	return windows.Write(name, []byte(record{s.boot, s.refused.UUID}.String()), false)
}

// previousName reads the record of the name, and what the window of its region holds if that
// is another region in this boot.
func (d *Device) previousName(windows *directory, name string, s *situation) (*previousName, error) {
	var was previousName
	b, err := windows.Read(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &was, nil
	case err != nil:
		return nil, fmt.Errorf("read which region this was: %w", err)
	}
	was.known = true
	if was.is, err = parseRecord(b); err != nil {
		was.unreadable = true
		return &was, nil
	}
	if was.is.boot != s.boot || was.is.region == s.refused.UUID {
		return &was, nil
	}
	file := fileOf(d.cfg.ID, was.is.region, "window")
	was.window.path = filepath.Join(windows.path, file)
	w, err := loadWindowFile(windows, file, unix.O_RDWR)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &was, nil
	case errors.Is(err, errLocked):
		was.window.inUse = err
		return &was, nil
	case err != nil:
		return nil, err
	}
	was.window.header = w.header()
	return &was, w.Close()
}

// A previousName is what a start knows of the region that its name led to before.
type previousName struct {
	known      bool      // there is a record
	unreadable bool      // the record cannot be read
	is         record    // otherwise: what it says
	window     oldWindow // of the region in is, if that is another region in this boot
}

// An oldWindow is the window file of a region that the name led to before.
type oldWindow struct {
	path   string
	header header // State 0: there is no file, or nothing is in it
	inUse  error  // another process has locked it
}

// A naming is what a start does with the record of its region's name.
type naming struct {
	err   error      // end with it
	lost  *LossError // accept it
	drop  bool       // remove the old region's window
	write bool       // then make the record name the region that the target named
}

// decideName compares the region to which a name led before with the one that the target
// names now. A start finds a window by the region's UUID. Under another UUID it would never look at
// the old window again, and clients that are still attached would find other contents.
func decideName(s *situation, was *previousName, recordPath, addr string) (n naming) {
	now := record{s.boot, s.refused.UUID}
	switch {
	case !was.known:
		return naming{write: true}
	case was.unreadable:
		n.lost = &LossError{fmt.Sprintf("%s cannot be read, so pmnbd does not know which region %s at %s was before", recordPath, s.region, addr)}
	case was.is == now:
		return naming{}
	case was.is.boot != s.boot:
		return naming{write: true}
	default:
		changed := fmt.Sprintf("region %s at %s has UUID %v now, and had UUID %v when this initiator opened it last: somebody created the region again, or another target answers there",
			s.region, addr, now.region, was.is.region)
		if s.mirror != "" {
			changed = fmt.Sprintf("%s has UUID %v now, and had UUID %v when this initiator opened it last: somebody created the mirror again, or other targets answer there",
				s.mirror, now.region, was.is.region)
		}
		n.lost = was.window.lost(changed, s.boot)
	}
	switch {
	case n.lost != nil && !s.acceptLoss:
		return naming{err: n.lost}
	case n.lost != nil && s.refused.Code == wire.CodeBusy:
		return naming{err: s.busy().err}
	}
	n.write, n.drop = true, !was.unreadable
	return n
}

// lost is the loss if no start looks at w again, nil if nothing can be in w.
func (w *oldWindow) lost(changed string, boot uuid.UUID) *LossError {
	is, h := "", &w.header
	switch {
	case w.inUse != nil:
		return &LossError{fmt.Sprintf("%s, and a pmnbd still runs for the old one: %v", changed, w.inUse)}
	case h.State == windowDamaged:
		is = "is damaged"
	case h.State == windowForeign:
		is = "is of another release: " + h.failure()
	case h.State == 0, h.Boot != boot, h.unused():
		return nil
	case h.State == windowLive && h.Opened != 0:
		is = "is live: it has the only copy of acknowledged writes that no FLUSH covered"
	case h.State == windowFailed:
		is = "is failed: " + h.failure()
	default:
		is = "is of a clean end, and clients that are still attached would find other contents"
	}
	return &LossError{fmt.Sprintf("%s. The old window %s %s", changed, w.path, is)}
}

// dropWindow removes the window of region old, and its lock, unless a process has them.
func (d *Device) dropWindow(windows *directory, old uuid.UUID) error {
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

// unused tells whether no write was ever acknowledged in a window, and no previous run left
// anything to compare the region with.
func (h *header) unused() bool {
	return h.State == windowLive && h.Opened == 0 && h.ContentsID == [16]byte{}
}

// startFailed reports whether the device never served, and whether an OPEN may have been granted, of this start or
// of one before it that served nobody either.
func (d *Device) startFailed() (failed, asked bool) {
	if len(d.legs) == 0 {
		return false, false
	}
	if len(d.cfg.Members) == 0 {
		return d.legs[0].granted.Epoch == 0, d.behind || d.legs[0].opening.asked
	}
	failed = d.core == nil || d.core.copies == nil || !d.core.copies.view.Serves()
	return failed, d.behind || d.legacy != nil && d.legacy.opens
}

// undoStart removes what a start made that did not open the region, so that a target cannot
// fill this host with files. If an OPEN may have been granted (maybe), the window's header
// stays, and tells the next start whom to ask for.
func (d *Device) undoStart(maybe bool) (err error) {
	if d.file != nil {
		switch h := d.file.header(); {
		case h.State == 0, h.unused() && !maybe:
			err = d.file.remove()
			if d.noted {
				err = errors.Join(err, d.file.dir.Remove(d.recordName()))
			}
		case h.State == windowLive && h.Opened == 0, h.State == windowLive && len(d.cfg.Members) > 0 && !h.Mirror.Serves():
			err = d.file.shrink() // nothing is in it
		}
	}
	for _, c := range d.claims {
		err = errors.Join(err, c.state.Remove(filepath.Base(c.f.Name())))
	}
	return err
}

// noteLast keeps where this initiator has its window of region, and in which boot of the host.
func (d *Device) noteLast(region [16]byte, boot uuid.UUID) error {
	return d.claims[0].state.Write(fileOf(d.cfg.ID, region, "last"), fmt.Appendf(nil, "%s\n%v\n", d.file.dir.path, boot), false)
}

// last is the directory where this initiator's last window of region lies, and the boot in
// which it had the region. dir is empty if that is the directory of d.file, if the window is
// gone, or if nothing tells.
func (d *Device) last(region [16]byte) (dir string, boot uuid.UUID) {
	b, _ := d.claims[0].state.Read(fileOf(d.cfg.ID, region, "last")) // an unreadable record counts as none
	dir, rest, _ := strings.Cut(string(b), "\n")
	boot, _ = uuid.Parse(strings.TrimSpace(rest))
	if dir == d.file.dir.path {
		return "", boot
	}
	if _, err := os.Stat(filepath.Join(dir, fileOf(d.cfg.ID, region, "window"))); err != nil {
		return "", boot // a start with that directory would not find it either
	}
	return dir, boot
}
