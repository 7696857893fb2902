package image

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// testBytes is a memory of two blocks, of which the last has two pages.
const testBytes = BlockSize + 2*pageSize

func sum(b []byte) (uint32, error) { return crc32.Checksum(b, castagnoli), nil }

// A life uses an image as a region does: it changes the memory only when the image is
// Changeable, and saves it.
type life struct {
	im      *Image
	mem     []byte
	dirty   [2]bool
	granted uint64 // the highest epoch that anybody was told
	rng     *rand.Rand
}

func (l *life) set(epoch uint64) func(*Header) {
	return func(h *Header) {
		h.Epoch = max(h.Epoch, epoch)
		h.Contents[0] = byte(epoch)
	}
}

// again calls f until it succeeds, or the power is off.
func again(f func() error) error {
	for {
		if err := f(); err == nil || errors.Is(err, errCut) {
			return err
		}
	}
}

// save tries until it succeeds. After a failure somebody may go on instead, without a new epoch.
func (l *life) save() error {
	return again(func() error {
		err := l.im.Save(context.Background(), l.mem, func(i int) bool { return l.dirty[i] }, sum, l.set(0), new(Progress))
		if err == nil {
			l.dirty = [2]bool{}
		} else if l.im.Changeable() {
			l.change()
		}
		return err
	})
}

func (l *life) grant() error {
	epoch := l.granted + 1
	if err := again(func() error { return l.im.MakeLive(l.set(epoch)) }); err != nil {
		return err
	}
	l.granted = epoch
	return nil
}

func (l *life) change() {
	for i := range l.dirty {
		if !l.im.Changeable() {
			panic("the memory changes")
		}
		if l.rng.IntN(3) > 0 {
			l.mem[uint64(i)*BlockSize+uint64(l.rng.IntN(pageSize))]++
			l.dirty[i] = true
		}
	}
}

// run lives until the power is off, or everything has been done.
func (l *life) run(d *disk) (err error) {
	l.im, err = Create(d, Header{Name: "r", UUID: [16]byte{1}, Bytes: testBytes})
	if err != nil {
		return err
	}
	l.dirty = [2]bool{true, true}
	for range 3 {
		if err := l.save(); err != nil {
			return err
		}
		for range 1 + l.rng.IntN(2) {
			if err := l.grant(); err != nil {
				return err
			}
			l.change()
		}
	}
	return l.save()
}

func newLife(t testing.TB, seed uint64) *life {
	mem, err := buffer(testBytes)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, unix.Munmap(mem)) })
	return &life{mem: mem, rng: rand.New(rand.NewPCG(seed, 1))}
}

// holds checks what the next start finds: the memory as it was, or that it is lost, and an epoch
// that goes on. sound says that nothing rotted.
func (l *life) holds(t testing.TB, d *disk, sound bool) {
	t.Helper()
	im, err := Open(d, Size(testBytes))
	if !sound && (errors.Is(err, ErrDamaged) || errors.Is(err, ErrNone) || errors.Is(err, errUnread)) {
		return
	}
	require.NoError(t, err)
	defer func() { require.NoError(t, im.Close()) }()
	h := im.Header()
	if sound {
		require.GreaterOrEqual(t, h.Epoch, l.granted)
	}
	require.Greater(t, h.Epoch+2, l.granted, "what a loss gives the region next")
	if h.State == Live {
		return
	}
	got := make([]byte, testBytes)
	err = im.Load(context.Background(), got, plenty, sum)
	require.NoError(t, err)
	require.True(t, bytes.Equal(l.mem, got), "old contents")
}

func plenty(off, n uint64) error { return nil }

// TestCutAnywhere: wherever the power goes off, the next start finds what the memory was, or
// that it is lost. So it does if a copy of the header has rotted meanwhile.
func TestCutAnywhere(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			whole := newDisk(seed)
			require.NoError(t, newLife(t, seed).run(whole))
			for cut := range whole.ops {
				d, l := newDisk(seed), newLife(t, seed)
				d.cutAt = cut
				require.ErrorIs(t, l.run(d), errCut)
				if l.im == nil {
					continue // nobody was told of it
				}
				for other := range uint64(4) {
					after := d.after(other)
					l.holds(t, after, true)
					l.holds(t, after.rot(0), false)
					l.holds(t, after.rot(1), false)
				}
				l.holds(t, d.after(4).unreadable(0), false)
				l.holds(t, d.after(4).unreadable(1), false)
				require.NoError(t, l.im.Close())
			}
		})
	}
}

// TestDiskThatFails: the same if writes and syncs fail and are tried again.
func TestDiskThatFails(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			d, l := newDisk(seed), newLife(t, seed)
			bad := rand.New(rand.NewPCG(seed, 2))
			d.broken = func(op int) bool { return op > 3 && bad.IntN(4) == 0 }
			d.cutAt = 8 + int(seed)
			if err := l.run(d); err != nil {
				require.ErrorIs(t, err, errCut)
			}
			require.NotNil(t, l.im)
			for other := range uint64(4) {
				after := d.after(other)
				l.holds(t, after, true)
				l.holds(t, after.rot(0), false)
				l.holds(t, after.rot(1), false)
			}
			require.NoError(t, l.im.Close())
		})
	}
}

// TestRotIsFound: no byte of what a load reads can change without being noticed.
func TestRotIsFound(t *testing.T) {
	d, l := newDisk(1), newLife(t, 1)
	require.NoError(t, l.run(d))
	require.NoError(t, l.im.Close())
	lay := layoutOf(testBytes)
	for name, off := range map[string]int64{
		"table": tableOffset, "end of the table": tableOffset + pageSize - 1,
		"first block": lay.blockOffset(0) + 5, "last block": lay.blockOffset(1) + 2*pageSize - 1,
	} {
		t.Run(name, func(t *testing.T) {
			rotten := d.after(0)
			page := *rotten.durable[off/pageSize]
			page[off%pageSize] ^= 1
			rotten.durable[off/pageSize] = &page
			im, err := Open(rotten, Size(testBytes))
			require.NoError(t, err)
			err = im.Load(context.Background(), make([]byte, testBytes), plenty, sum)
			require.ErrorIs(t, err, ErrTorn)
			require.NoError(t, im.Close())
		})
	}
}

// TestUnreadableCopy: the copy of the header that can be read counts. An image of which neither can be read, or the
// other one is damaged, is not called damaged: nobody should discard it for what the disk may read later.
func TestUnreadableCopy(t *testing.T) {
	d, l := newDisk(1), newLife(t, 1)
	require.NoError(t, l.run(d))
	head := l.im.Header()
	require.True(t, l.im.Intact())
	d.bad = 1 - l.im.at
	require.True(t, l.im.Intact(), "the newest copy is there")
	d.bad = l.im.at
	require.False(t, l.im.Intact())
	d.bad = -1
	require.NoError(t, l.im.Close())
	for at := range 2 {
		im, err := Open(d.unreadable(at), Size(testBytes))
		require.NoError(t, err)
		require.ErrorIs(t, im.Unread(), errUnread)
		require.False(t, im.Changeable())
		if at != l.im.at {
			require.Equal(t, head, im.Header())
		}
		require.NoError(t, im.MakeLive(func(*Header) {}))
		require.True(t, im.Changeable())
		require.NoError(t, im.Close())

		_, err = Open(d.rot(1-at).unreadable(at), Size(testBytes))
		require.ErrorIs(t, err, errUnread)
		require.NotErrorIs(t, err, ErrDamaged)
	}
	im, err := Open(d, Size(testBytes))
	require.NoError(t, err)
	require.NoError(t, im.Unread())
	require.NoError(t, im.Close())
}

// TestLoadWithoutRoom: a load ends with the error of the memory, and reads nothing to where none is.
func TestLoadWithoutRoom(t *testing.T) {
	d, l := newDisk(1), newLife(t, 1)
	require.NoError(t, l.run(d))
	got := make([]byte, testBytes)
	err := l.im.Load(context.Background(), got, func(off, _ uint64) error {
		if off > 0 {
			return unix.ENOSPC
		}
		return nil
	}, sum)
	require.ErrorIs(t, err, unix.ENOSPC)
	require.True(t, bytes.Equal(make([]byte, testBytes-BlockSize), got[BlockSize:]), "reads where no room is")
	require.NoError(t, l.im.Close())
}

// TestOpenRefuses: a header of another version is refused, and so is a file that is too short.
func TestOpenRefuses(t *testing.T) {
	d, l := newDisk(1), newLife(t, 1)
	require.NoError(t, l.run(d))
	require.NoError(t, l.im.Close())
	_, err := Open(d, Size(testBytes)-1)
	require.ErrorIs(t, err, ErrDamaged)
	_, err = Open(d, headerSize)
	require.ErrorIs(t, err, ErrNone)
	_, err = Open(newDisk(0), Size(testBytes))
	require.ErrorIs(t, err, ErrNone)

	_, err = Create(newDisk(0), Header{Bytes: testBytes})
	require.ErrorIs(t, err, ErrDamaged)
}

func TestMeasureAndProbe(t *testing.T) {
	d, l := newDisk(1), newLife(t, 1)
	require.NoError(t, l.run(d))
	require.NoError(t, l.im.Measure(context.Background()))
	require.NotZero(t, l.im.Speed())
	require.NoError(t, l.im.MakeLive(func(*Header) {}))
	require.Equal(t, l.im.Speed(), l.im.Header().Speed)
	require.NoError(t, l.save())
	require.NoError(t, Probe(d, testBytes))
	l.holds(t, d.after(1), true)
	d.broken = func(int) bool { return true }
	require.ErrorIs(t, Probe(d, testBytes), errBroken)
	require.ErrorIs(t, l.im.Measure(context.Background()), errBroken)
	require.Zero(t, l.im.Speed(), "nobody knows")
	require.NoError(t, l.im.Close())
}
