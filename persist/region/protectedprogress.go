package region

import (
	"time"

	"pmnbd/persist/region/internal/image"
)

// Saving says how far a save is.
type Saving struct {
	// Written is how many bytes it has written, of Of.
	Written, Of uint64
	// Left is how long the rest takes at the speed of what is written, or at that of the disk while
	// that is next to nothing.
	Left time.Duration
}

// A progress is that of a save that began.
type progress struct {
	image.Progress
	began time.Time
}

// saving returns how far p is, of a region like that. p may be nil.
func (p *progress) saving(of *Protection) *Saving {
	if p == nil {
		return nil
	}
	s := &Saving{Written: p.Written.Load(), Of: p.Of.Load()}
	rest := *of
	if s.Written >= image.BlockSize*enoughBlocks {
		rest.Speed = image.SpeedOf(s.Written, time.Since(p.began))
	}
	if left := s.Of - s.Written; left > 0 {
		s.Left = rest.takes(left)
	}
	return s
}

// enoughBlocks is how many blocks tell the speed of a save.
const enoughBlocks = 16
