package region

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"pmnbd/persist"
)

// TestDiskThatCannotBeMeasured: the region opens, and says why nobody gets it.
func TestDiskThatCannotBeMeasured(t *testing.T) {
	p := protectedAt(t)
	on := saverIn(bootA)
	broken := errors.New("broken")
	*on.fail = func(op string) error {
		if op == "write" { // the open syncs
			return broken
		}
		return nil
	}
	r := p.open(t, on)
	now := protection(t, r)
	require.True(t, now.Whole)
	require.Zero(t, now.Speed)
	require.Equal(t, now.SaveWithin, now.Longest, "the longest that is allowed, where nobody knows")
	var n atomic.Int32 // blocks are written at the same time
	*on.fail = func(op string) error {
		if n.Add(1) > 2 { // behind the page that is always written, and synced
			return broken
		}
		return nil
	}
	require.ErrorIs(t, r.SaveTrouble(), broken)
	require.Zero(t, protection(t, r).Speed)
	*on.fail = nil
	require.NoError(t, r.SaveTrouble())
	require.NotZero(t, protection(t, r).Speed)
}

// TestSlowDiskIsMeasuredAgain: it may have been busy when it was measured.
func TestSlowDiskIsMeasuredAgain(t *testing.T) {
	r := protectedAt(t).open(t, saverIn(bootA))
	r.saving.im.SetSpeed(1)
	require.ErrorContains(t, r.SaveTrouble(), "cannot be saved in time")
	require.EqualValues(t, 1, protection(t, r).Speed, "it has just been measured")
	r.saving.measured = time.Time{}
	require.NoError(t, r.SaveTrouble())
	require.Greater(t, protection(t, r).Speed, uint64(1))
}

// TestSpeedOfSavesAtOnce: two regions that are saved at a time may share a disk. Neither takes its half
// for the speed of the disk, which would be too slow for it.
func TestSpeedOfSavesAtOnce(t *testing.T) {
	const speed = 12345
	on := saverIn(bootA)
	a, b := protectedAt(t).open(t, on), protectedAt(t).open(t, saverIn(bootA))
	for _, r := range []*Region{a, b} {
		grant(t, r)
		store(t, r, persist.Range{Len: 4096}, 1)
		r.saving.im.SetSpeed(speed)
		r.saving.noteworthy = 1
	}
	var once sync.Once
	*on.fail = func(string) error {
		once.Do(func() {
			if _, err := b.Save(context.Background()); err != nil {
				t.Error(err)
			}
		})
		return nil
	}
	_, err := a.Save(context.Background())
	require.NoError(t, err)
	require.True(t, protection(t, b).Whole)
	require.EqualValues(t, speed, protection(t, a).Speed)
	require.EqualValues(t, speed, protection(t, b).Speed)
	*on.fail = nil
	grant(t, a)
	_, err = a.Save(context.Background())
	require.NoError(t, err)
	require.NotEqualValues(t, speed, protection(t, a).Speed)
}

// TestTakes: a disk that is known to take next to nothing takes long, and no number overflows.
func TestTakes(t *testing.T) {
	p := Protection{Speed: 1, SaveWithin: time.Second}
	require.Greater(t, p.takes(1<<46), 24*time.Hour)
	p.Speed = 0
	require.Equal(t, time.Second, p.takes(1<<46))
}
