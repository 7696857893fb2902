package region

import "fmt"

// Update changes the superblock. f gets the current one and changes it under the region's
// lock. When Update returns, the change is durable. If f returns an error, nothing
// changes and Update returns the error. f must not call the region and must not wait. It
// must not change the UUID, name, size, class or failure, nor the record except by
// ServeAlone and Forget, and never lowers the mark or the life. On a failed region Update returns the
// failure. An error of ErrSave means that the disk of a region of class protected could not
// note that the region changes: nothing has changed, and the region has not failed.
func (r *Region) Update(f func(*Superblock) error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.checkLocked(); err != nil {
		return err
	}
	old := r.Superblock()
	sb := old
	if err := f(&sb); err != nil {
		return err
	}
	sb.Cleared = text(sb.Cleared)
	if sb.Clean && r.platform.Counted {
		sb.UnsafeShutdowns = r.platform.UnsafeShutdowns // changes only while the power is off
	}
	if sb.UUID != old.UUID || sb.Name != old.Name || sb.Size != old.Size || sb.Class != old.Class || sb.Mark < old.Mark || sb.Failed || sb.Failure != "" ||
		sb.Parts != old.Parts || sb.Stamp != old.Stamp || sb.Stamping != old.Stamping || sb.StampNonces != old.StampNonces || sb.Memory != old.Memory || sb.Life < old.Life || sb.Record != old.Record && sb.Record != aloneRecord(old.Record) && sb.Record != forgottenRecord(old.Record) {
		return fmt.Errorf("region %q: superblock not written: an update changed a field that it must not change", r.name)
	}
	if err := r.liveLocked(&sb); err != nil {
		return err
	}
	if r.saving != nil && sb.Epoch != old.Epoch {
		r.saving.unknownFrom(sb.Epoch)
	}
	if err := r.renewLocked(sb); err != nil {
		return r.failLocked(err)
	}
	if sb.Record != old.Record || sb.Contents != old.Contents { // both copies have it, as in recordLocked
		if err := r.renewLocked(sb); err != nil {
			return r.failLocked(err)
		}
	}
	return nil
}

// text cuts s to MaxText bytes and replaces control characters, so that it fits one line.
func text(s string) string {
	b := make([]byte, 0, min(len(s), MaxText))
	for _, r := range s {
		if r < ' ' || r == 0x7f {
			r = ' '
		}
		if n := len(string(r)); len(b)+n > MaxText {
			break
		}
		b = append(b, string(r)...)
	}
	return string(b)
}
