package vmem

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const page = 64 << 10 // of any machine

// file makes a file of n pages, each full of the number of its page, from first on.
func file(t *testing.T, first byte, n int) *os.File {
	f, err := os.OpenFile(filepath.Join(t.TempDir(), "file"), os.O_RDWR|os.O_CREATE, 0o600)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.Close()) })
	for i := range n {
		_, err := f.Write(bytes.Repeat([]byte{first + byte(i)}, page))
		require.NoError(t, err)
	}
	return f
}

// Files lie behind each other, and a store reaches the file that is there.
func TestRange(t *testing.T) {
	for _, align := range []uint64{page, 2 << 20, 1 << 30} {
		a, b := file(t, 1, 2), file(t, 11, 3)
		r, err := Reserve(4*page, align)
		require.NoError(t, err)
		require.Len(t, r.Bytes(), 4*page)
		require.Zero(t, uint64(address(r.Bytes()))%align)
		const prot = unix.PROT_READ | unix.PROT_WRITE
		require.NoError(t, r.Map(0, a, 0, 2*page, prot, unix.MAP_SHARED))
		require.NoError(t, r.Map(2*page, b, page, 2*page, prot, unix.MAP_SHARED))
		for i, want := range []byte{1, 2, 12, 13} {
			require.Equal(t, bytes.Repeat([]byte{want}, page), r.Bytes()[i*page:(i+1)*page])
		}
		copy(r.Bytes()[2*page-1:], "xy")
		var got [1]byte
		_, err = a.ReadAt(got[:], 2*page-1)
		require.NoError(t, err)
		require.Equal(t, "x", string(got[:]))
		_, err = b.ReadAt(got[:], page)
		require.NoError(t, err)
		require.Equal(t, "y", string(got[:]))

		require.ErrorIs(t, r.Map(3*page, a, 0, 2*page, prot, unix.MAP_SHARED), ErrRange)
		require.ErrorIs(t, r.Map(5*page, a, 0, 0, prot, unix.MAP_SHARED), ErrRange)
		require.ErrorIs(t, r.Map(0, a, 1, page, prot, unix.MAP_SHARED), unix.EINVAL)
		require.Equal(t, byte(1), r.Bytes()[0], "what was mapped stays")
		require.NoError(t, r.Close())
		require.NoError(t, r.Close(), "again")
	}
}
