package image

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

// A stuck is a disk that hangs while block is open, unless it is nil.
type stuck struct {
	*disk
	block chan struct{}
}

func (s *stuck) WriteAt(b []byte, off int64) (int, error) {
	s.wait()
	return s.disk.WriteAt(b, off)
}

func (s *stuck) Sync() error {
	s.wait()
	return s.disk.Sync()
}

func (s *stuck) wait() {
	if s.block != nil {
		<-s.block
	}
}

// A disk that hangs holds nobody up for longer than Patience, and nothing that it does late spoils what
// comes behind: until it has done that, it takes nothing more.
func TestDiskThatHangs(t *testing.T) {
	for name, tt := range map[string]struct {
		hangs func(l *life) error
	}{
		"while the image is made live": {func(l *life) error { return l.im.MakeLive(l.set(2)) }},
		"in a save": {func(l *life) error {
			return l.im.Save(context.Background(), l.mem, func(int) bool { return true }, sum, l.set(1), new(Progress))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, l := &stuck{disk: newDisk(1)}, newLife(t, 1)
				var err error
				l.im, err = Create(d, Header{Name: "r", UUID: [16]byte{1}, Bytes: testBytes})
				require.NoError(t, err)
				l.dirty = [2]bool{true, true}
				require.NoError(t, l.save())
				require.NoError(t, l.grant())
				l.change()
				mends := make(chan struct{})
				d.block = mends
				require.ErrorIs(t, tt.hangs(l), ErrHangs)
				require.True(t, l.im.Hangs())
				require.True(t, l.im.Intact(), "nobody knows better")
				require.ErrorContains(t, l.im.MakeLive(l.set(3)), "given before")
				err = l.im.Save(context.Background(), l.mem, func(int) bool { return true }, sum, l.set(1), new(Progress))
				require.ErrorContains(t, err, "given before")
				l.holds(t, d.after(1), true)
				close(mends)
				synctest.Wait()
				require.False(t, l.im.Hangs())
				l.holds(t, d.after(1), true)
				require.NoError(t, l.save())
				l.holds(t, d.after(1), true)
				require.NoError(t, l.im.Close())
			})
		})
	}
}
