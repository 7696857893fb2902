package region

import (
	"context"
	"errors"
	"time"
)

// ErrSave means that a region cannot be saved, or its image cannot be used. Class protected
// is the one that has an image.
var ErrSave = errors.New("save")

// DefaultSaveWithin is how long a save may take if nobody says it.
const DefaultSaveWithin = 2 * time.Minute

// Saved says what a Save did.
type Saved struct {
	// Bytes is how many it wrote: the blocks that differed from the image.
	Bytes uint64
	Took  time.Duration
}

// Protection says how far a region of class protected is from its image.
type Protection struct {
	// Image is the path of the image.
	Image string
	// Whole: the image has everything that the memory has. Otherwise a power failure now
	// loses the region.
	Whole bool
	// SavedAt is the time of the last save, zero if there was none.
	SavedAt time.Time
	// Dirty is how many bytes a save would write now, of Size in all.
	Dirty, Size uint64
	// Speed is what the disk was measured to take, in bytes a second: at creation, at each
	// open and at each save of some length.
	Speed uint64
	// Expected is how long a save would take now, and SaveWithin how long it may take.
	Expected, SaveWithin time.Duration
	// Losses counts how often the contents were lost, LostAt says when that was last, and
	// LostWhy why, since this process opened the region.
	Losses  uint32
	LostAt  time.Time
	LostWhy string
	// Loaded: this open of the region read its contents from the image.
	Loaded bool
	// LoadTook is how long that took.
	LoadTook time.Duration
}

// Save writes what differs from the image to it, and returns when the image is whole and
// durable. Nobody may change the memory meanwhile: sessions have ended, and their memory keys
// are destroyed. If ctx ends, or a write fails, the image is not whole, and the region goes on
// as before: another Save may succeed.
func (r *Region) Save(_ context.Context) (Saved, error) { return Saved{}, r.errUnprotected() }

// Protection says how the image is. ok is false for any other class than protected.
func (r *Region) Protection() (p Protection, ok bool) { return Protection{}, false }

// SaveTrouble returns why a save would fail now, or take longer than it may: the disk is
// read-only, gone or too slow. It writes one page to the disk, and waits as long as the disk
// does. Regions of other classes have no trouble.
func (r *Region) SaveTrouble() error { return nil }

// Unknown notes that nobody knows what will be stored in the region from now on. Everything
// is dirty until Known or a Save. An Update that raises the epoch does the same. If the
// former epoch did not end with Known, everything stays dirty until a Save.
func (r *Region) Unknown() {}

// Known notes that the session of the present epoch has ended with CLOSE, and that all that
// it stored lies in ranges that Flush or Zero had. Only those, and what was dirty before, are
// dirty.
func (r *Region) Known() {}

func (r *Region) errUnprotected() error {
	return errors.New("region " + r.name + ": it is not of class protected, and has no image")
}
