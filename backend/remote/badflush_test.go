package remote

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pmnbd/backend"
	"pmnbd/backend/backendtest"
	"pmnbd/persist"
	"pmnbd/persist/region"
	"pmnbd/persist/target"
	"pmnbd/rdma/rdmafake"
)

// What was written to a place, and lost with it before a FLUSH, is sent again if it is whole blocks. Otherwise the FLUSH
// fails, and the device with it. It never says durable of what is gone.
func TestFlushOfALostPlace(t *testing.T) {
	const off = 5 * block
	for name, n := range map[string]int{"a block": block, "a part": 512} {
		t.Run(name, func(t *testing.T) {
			p := newPair(t, rdmafake.New(rdmafake.Config{}), "", "", target.Config{})
			cfg := p.config(t)
			cfg.LossTimeout = 0
			d, err := Dial(t.Context(), cfg)
			require.NoError(t, err)
			c := backendtest.NewClient(t, d)
			wrote := backendtest.Pattern(n, 7)
			require.NoError(t, c.Do(c.Write(off, wrote, 0), c.Read(off, n, 0))) // it is there
			page := p.region.Data()[off:][:block]
			require.NoError(t, unix.Mprotect(page, unix.PROT_NONE))
			_, err = p.region.Digest(persist.Range{Off: off, Len: block})
			require.ErrorIs(t, err, region.ErrBadPlace)
			require.NoError(t, unix.Mprotect(page, unix.PROT_READ|unix.PROT_WRITE))
			clear(page) // the kernel has put another page there
			err = c.Do(c.Flush())
			if n < block {
				require.ErrorIs(t, err, backend.ErrFailed)
				require.ErrorIs(t, err, ErrBadPlace)
				backendtest.AllBack(t, d)
				require.Error(t, d.Close())
				return
			}
			require.NoError(t, err)
			require.Equal(t, wrote, page)
			require.Empty(t, p.region.Bad())
			require.EqualValues(t, 1, d.Snapshot().Recoveries)
			backendtest.AllBack(t, d)
			require.NoError(t, d.Close())
		})
	}
}
