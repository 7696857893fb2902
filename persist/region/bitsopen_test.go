package region

import (
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/persist"
	"pmnbd/test/pmemsim"
)

// A target that is killed leaves bits that are in the caches and not in memory. The next one
// shows them to initiators, so it makes them durable first.
func TestOpeningMakesBitsDurable(t *testing.T) {
	h := hostOf(persist.ClassPMem, bootA)
	path := createdMember(t, h)
	mem, err := pmemsim.Open(path, false)
	require.NoError(t, err)
	defer func() { require.NoError(t, mem.Close()) }()
	h.back = func(_ []byte, off, n uint64) { mem.Lines(off, n) }
	r := opened(t, path, OpenOptions{}, h)
	require.NoError(t, r.SetRecord(recordOf(r, 0, 1, 7), 0))
	require.NoError(t, r.SetRecord(recordOf(r, 0, 2, 1), 0))
	require.NoError(t, r.SetBits(6, []persist.Range{{Off: 3 * chunk, Len: 1}}))
	for _, crash := range []func(){mem.Kill, func() { mem.PowerOff(pmemsim.Seeded(0, 0)) }} {
		crash()
		require.NoError(t, r.Close())
		mem.Restart()
		r = opened(t, path, OpenOptions{}, h)
		require.Equal(t, []int{3}, chunksOf(t, r, 1))
		require.Equal(t, []int{3}, chunksOf(t, r, 2))
	}
}

// A target that is killed may have cleared the bits of a member of F in the caches, and not in memory. When
// the member has left F, a power failure must not bring them back.
func TestOpeningMakesClearedBitsDurable(t *testing.T) {
	for name, records := range map[string][2]persist.Members{"of F": {7, 1}, "of no member": {0, 1}} {
		t.Run(name, func(t *testing.T) {
			h := hostOf(persist.ClassPMem, bootA)
			path := createdMember(t, h)
			mem, err := pmemsim.Open(path, false)
			require.NoError(t, err)
			defer func() { require.NoError(t, mem.Close()) }()
			late := false // nothing of the bitmaps gets out of the caches
			h.back = func(_ []byte, off, n uint64) {
				if !late || off < bitsOffset {
					mem.Lines(off, n)
				}
			}
			r := opened(t, path, OpenOptions{}, h)
			count := uint64(0)
			keep := func(f persist.Members) {
				count++
				rec := persist.Record{}
				if f != 0 {
					rec = recordOf(r, 0, count, f)
				}
				require.NoError(t, r.SetRecord(rec, 0))
			}
			keep(7)
			keep(1)
			require.NoError(t, r.SetBits(2, []persist.Range{{Len: 1}}))
			require.NoError(t, r.FlushBits(2, []persist.Range{{Len: 1}}))
			late = true
			keep(records[0])
			mem.Kill()
			late = false
			require.NoError(t, r.Close())
			mem.Restart()
			r = opened(t, path, OpenOptions{}, h)
			keep(7)
			keep(records[1])
			mem.PowerOff(pmemsim.Seeded(0, 0))
			require.NoError(t, r.Close())
			mem.Restart()
			r = opened(t, path, OpenOptions{}, h)
			require.Zero(t, r.BitsSet(1))
			require.NoError(t, r.Close())
		})
	}
}
