package region

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"pmnbd/persist"
	"pmnbd/persist/region/internal/image"
	"pmnbd/persist/region/internal/medium"
)

// noteworthy is how many bytes a save has at least whose speed is worth remembering.
const noteworthy = 256 << 20

// measureAgain is how long SaveTrouble believes a speed that is too low. A disk may have been busy when
// it was measured, at the boot for example.
const measureAgain = time.Minute

// underWay are the saves of this process. Their regions may share a disk, so what it does for one of
// several at a time is not its speed.
var underWay saves

type saves struct{ now, ever atomic.Int64 }

// begin notes that a save begins. The first call of alone ends it, and says whether there was no other
// one in that time.
func (s *saves) begin() (alone func() bool) {
	turn, first := s.ever.Add(1), s.now.Add(1) == 1
	ended := false
	return func() bool {
		if !ended {
			ended = true
			s.now.Add(-1)
		}
		return first && s.ever.Load() == turn
	}
}

// takes returns how long a save of n bytes takes. Where nobody knows, it is what it may take.
func (p *Protection) takes(n uint64) time.Duration {
	if p.Speed == 0 {
		return p.SaveWithin
	}
	return time.Duration(min(float64(n)/float64(p.Speed), math.MaxInt32) * float64(time.Second))
}

// SaveTrouble returns why a save would fail now, or take longer than it may: the disk is
// read-only, gone or too slow, or, if nothing else is wrong, the memory has lost something (ErrBadPlace). It writes
// one page to the disk, and the scratch extent once a minute while the disk is too slow, or if nobody could measure it. It fills holes of the image, and if
// somebody has written over the image, or put a copy in its place, it makes that live. It waits as long as the disk does, but it
// holds nobody else up. Regions of other classes have no trouble. One goroutine at a time may call it.
func (r *Region) SaveTrouble() error {
	s := r.saving
	if s == nil {
		return nil
	}
	err := r.guardImage() // first: nothing below may keep it from being done
	if r.Nameless() {
		return fmt.Errorf("region %q: somebody has removed its memory, %s, which ends with this process: run `pmnbd-target save`, then restart pmnbd-target", r.name, r.path)
	}
	if err == nil {
		err = s.probe(s.head.Load().Bytes, r.medium)
	}
	if err != nil {
		return fmt.Errorf("region %q cannot be saved: %w", r.name, err)
	}
	// While a session lives, everything is dirty: what one needs to begin is time for all.
	if p, _ := r.Protection(); p.Longest > p.SaveWithin {
		return fmt.Errorf("region %q cannot be saved in time: its %d bytes take %v at the %d bytes/s of %s, and may take %v: use a faster disk, or create it with a longer --save-within",
			r.name, p.Size, p.Longest.Round(time.Second/10), p.Speed, p.Image, p.SaveWithin)
	}
	// Last: a server lets the owner come back in spite of it, and of nothing else.
	if g, lost := r.Lost([]persist.Range{{Len: r.size}}); lost {
		return fmt.Errorf("region %q cannot be saved: %w: its memory has lost %d bytes at %d, and a save cannot read them: %s",
			r.name, ErrBadPlace, g.Len, g.Off, lostMemory)
	}
	return nil
}

// probe writes a page of the image's scratch extent, and measures the disk if nobody knows its speed, or
// it has been too slow for a while. It does so through a descriptor of its own: a disk that hangs must
// keep nothing but the probe.
func (s *saving) probe(bytes uint64, on medium.Medium) error {
	f, err := openNode(s.path, os.O_RDWR|unix.O_DIRECT)
	if errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%w: the disk is gone, or somebody removed the image", err)
	}
	if err != nil {
		return err
	}
	err = s.fill(f)
	file := fileOf(f, on)
	if err == nil {
		err = image.Probe(file, bytes)
	}
	h := s.head.Load()
	p := Protection{Speed: s.im.Speed(), SaveWithin: h.Within}
	if slow := p.Speed != 0 && p.takes(h.Bytes) > p.SaveWithin; err == nil && (p.Speed == 0 || slow && time.Since(s.measured) > measureAgain) {
		var speed uint64
		if speed, err = image.Measure(context.Background(), file, bytes); err != nil {
			err = fmt.Errorf("nobody knows how long that takes: %w", err)
		}
		s.im.SetSpeed(speed)
		s.measured = time.Now()
	}
	return errors.Join(err, f.Close())
}
