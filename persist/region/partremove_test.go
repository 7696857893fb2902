package region

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pmnbd/persist"
)

// All parts are locked from the check to the end: nobody opens the region in between, and has it removed.
func TestRemoveHoldsAllParts(t *testing.T) {
	h := hostOf(persist.ClassPMem, bootA)
	paths := createdParts(t, h, 3)
	looked := 0
	h.header = func([]byte) { // a superblock is wiped
		for _, path := range paths {
			f, err := os.Open(path)
			if os.IsNotExist(err) {
				continue
			}
			require.NoError(t, err)
			require.ErrorIs(t, unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB), unix.EWOULDBLOCK, path)
			require.NoError(t, f.Close())
			looked++
		}
	}
	require.NoError(t, removeParts(paths[0], false, h, paths[1:]))
	require.Equal(t, 3, looked)
	for _, path := range paths {
		require.NoFileExists(t, path)
	}
}
