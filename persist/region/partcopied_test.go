package region

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// Somebody copies all parts, and both copies go on until their stamps are the same again. A part of one of them is
// refused among those of the other, the first part too, and also while a change of the stamp is under way.
func TestCopiedParts(t *testing.T) {
	mine := createdParts(t, fileHost, 3)
	others := partPaths(t.TempDir(), 3)
	for i, path := range mine {
		b, err := os.ReadFile(path)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(others[i], b, 0o600))
	}
	var all [2][3][2]headers // of each, the superblocks after each change, and with one under way
	for c, paths := range [][]string{mine, others} {
		for at := range all[c] {
			r := openedParts(t, paths, fileHost)
			update(t, r, at)
			require.NoError(t, r.Close())
			for i, path := range paths {
				all[c][at][0][i], all[c][at][1][i] = header(t, path), header(t, path)
			}
			found, err := readCopies(all[c][at][0][0][:])
			require.NoError(t, err)
			sb := found.best // step 1 of the change before step 3
			sb.Stamping = true
			sb.encode(all[c][at][1][0][found.at*CopySize:][:CopySize])
			clear(all[c][at][1][0][(1-found.at)*CopySize+offGeneration:][:8])
			if at > 0 {
				all[c][at][1][2] = all[c][at-1][0][2] // not stamped yet
			}
		}
	}
	opens := func(h headers) error {
		for i, path := range mine {
			setHeader(t, path, h[i])
		}
		r, err := open(mine[0], OpenOptions{Parts: mine[1:]}, fileHost)
		if err == nil {
			err = r.Close()
		}
		return err
	}
	for at := range all[0] {
		for way := range all[0][at] {
			require.NoError(t, opens(all[0][at][way]))
			require.NoError(t, opens(all[1][at][way]))
			for i := range mine {
				mixed := all[0][at][way]
				mixed[i] = all[1][at][way][i]
				err := opens(mixed)
				require.ErrorIs(t, err, ErrCopied, "change %d, way %d, part %d", at, way, i)
				require.ErrorContains(t, err, mine[max(i, 1)])
			}
		}
	}
}

// The first part loses the copy that had begun a stamp, and a further part has that stamp. The region opens, again and
// again, and gives the others the nonce that is there.
func TestLostStampKeepsItsNonce(t *testing.T) {
	paths := createdParts(t, fileHost, 3)
	r := openedParts(t, paths, fileHost)
	update(t, r, 0)
	require.NoError(t, r.Close())
	before := header(t, paths[2])
	r = openedParts(t, paths, fileHost)
	left := r.Superblock().Stamp
	update(t, r, 1)
	require.NoError(t, r.Close())
	setHeader(t, paths[2], before) // part 1 has the new stamp, part 2 has not
	h := header(t, paths[0])
	found, err := readCopies(h[:])
	require.NoError(t, err)
	sb := found.best
	sb.Stamp, sb.Stamping, sb.StampNonces = left, false, [2]uint64{sb.StampNonces[1], 0}
	sb.encode(h[found.at*CopySize:][:CopySize])
	h[(1-found.at)*CopySize+100] ^= 1
	setHeader(t, paths[0], h)
	for range 2 {
		r = openedParts(t, paths, fileHost)
		require.Equal(t, left+1, r.Superblock().Stamp)
		require.True(t, r.Superblock().Doubt)
		require.NoError(t, r.Close())
	}
}
