package lab_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/backend/backendtest"
	"pmnbd/backend/remote"
	"pmnbd/internal/logtest"
	"pmnbd/persist/region"
	"pmnbd/persist/target"
	"pmnbd/rdma"
	"pmnbd/rdma/iwarp"
	"pmnbd/rdma/rdmatest"
	"pmnbd/rdma/verbs"
	"pmnbd/test/lab"
)

// A pair listens with one provider and dials with another.
type pair struct{ listener, dialer rdma.Provider }

func (p pair) Listen(ctx context.Context, addr string) (rdma.Listener, error) {
	return p.listener.Listen(ctx, addr)
}

func (p pair) OpenDomain(ctx context.Context, addr string) (rdma.Domain, error) {
	return p.dialer.OpenDomain(ctx, addr)
}

// TestIwarpAndSiw runs the provider in Go against the kernel's siw, either way round, and an
// initiator and a target on top of them. siw asks for MPA revision 2 without CRC, and accepts
// what its peer asks for.
func TestIwarpAndSiw(t *testing.T) {
	needVerbs(t)
	for _, tt := range []struct {
		name string
		cfg  iwarp.Config
		dial bool
	}{
		{"to siw, revision 1", iwarp.Config{Revision: 1}, true},
		{"to siw, revision 1, no CRC", iwarp.Config{Revision: 1, NoCRC: true}, true},
		{"to siw, revision 2", iwarp.Config{}, true},
		{"to siw, revision 2, no CRC", iwarp.Config{NoCRC: true}, true},
		{"from siw", iwarp.Config{}, false},
		{"from siw, no CRC", iwarp.Config{NoCRC: true}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			lab.Run(t, lab.Guest{Setup: []string{"siw"}}, func(t *testing.T) {
				const at = "10.0.1.1:0"
				kernel, err := verbs.New(verbs.Config{})
				require.NoError(t, err)
				p, lacks := pair{kernel, iwarp.New(tt.cfg)}, []rdmatest.Lack{rdmatest.Causes, rdmatest.ReadRights}
				if !tt.dial {
					p, lacks = pair{iwarp.New(tt.cfg), kernel}, lacks[:1]
				}
				rdmatest.Run(t, p, at, lacks...)
				t.Run("Session", func(t *testing.T) { sessionOn(t, p, at) })
			})
		})
	}
}

// sessionOn runs a target and a device in this process, over p at the address at. It compares
// the region with what the device wrote. A lost connection fails the device.
func sessionOn(t *testing.T, p rdma.Provider, at string) {
	const size = 8 << 20
	r, err := region.Open(region.PathMemfd, region.OpenOptions{Name: "disk", CreateSize: size, AllowVolatile: true})
	require.NoError(t, err)
	s := target.New(target.Config{Log: slog.New(slog.DiscardHandler)}, []*region.Region{r})
	l, err := p.Listen(t.Context(), at)
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	defer func() {
		require.NoError(t, s.Close())
		require.NoError(t, <-served)
		require.NoError(t, r.Close())
	}()
	cfg := remote.Config{
		Provider: p, Addr: l.Addr(), Region: "disk", ID: [16]byte{1}, StateDir: t.TempDir(),
		Window: 16 << 20, Connections: 8, AllowVolatile: true, LossTimeout: 1, Log: logtest.New(t),
	}
	d, err := remote.Dial(t.Context(), cfg)
	for try := 0; try < 5 && errors.Is(err, rdma.ErrLost); try++ {
		// siw missed the first message (see rdma/verbs), and the target hung up.
		d, err = remote.Dial(t.Context(), cfg)
	}
	require.NoError(t, err)

	c := backendtest.NewClient(t, d)
	want := make([]byte, size)
	for round := range 24 {
		off, n := round*round*7919, 512+round*30011
		data := backendtest.Pattern(n, uint32(round))
		over := backendtest.Pattern(n/2, uint32(100+round))
		copy(want[off:], data)
		copy(want[off+n/4:], over)
		clear(want[off+n-300:][:4096])
		write, overlapping, zero, flush := c.Write(uint64(off), data, 5), c.Write(uint64(off+n/4), over, 0), c.Zero(uint64(off+n-300), 4096), c.Flush()
		overlapping.FUA = round%2 == 0
		read := c.Read(uint64(off), n, 0)
		require.NoError(t, c.Do(write, overlapping, zero, flush, read))
		require.True(t, bytes.Equal(want[off:off+n], read.Got), "what was read in round %d", round)
	}
	require.NoError(t, d.Close())
	require.True(t, bytes.Equal(want, r.Data()), "the region has other bytes")
}
