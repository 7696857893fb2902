package target

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pmnbd/internal/flush"
	"pmnbd/internal/logtest"
	"pmnbd/internal/testhost"
	"pmnbd/persist"
	"pmnbd/persist/region"
	"pmnbd/persist/wire"
	"pmnbd/rdma"
	"pmnbd/rdma/iwarp"
)

// A region whose memory disappears while it is served fails, over iWARP, whichever
// request notices. The next OPEN says so, also after a restart. Another region of the
// same process continues. In between, the target acknowledges nothing.
func TestMemoryGoesAway(t *testing.T) {
	for _, memory := range []string{"file", "tmpfs"} {
		for _, c := range []struct {
			name string
			// ask sends a request that touches the memory, and a barrier behind it.
			ask func(*peer, wire.Opened)
			// told: BARRIER_FAIL answers the barrier.
			told bool
		}{
			{name: "Write", ask: func(p *peer, o wire.Opened) {
				p.post(rdma.WorkRequest{Op: rdma.OpWrite, Local: rdma.SGE{Region: p.mr, Len: 4096}, Remote: rdma.Remote{Key: o.Key, Addr: o.Base}})
			}},
			{name: "Read", ask: func(p *peer, o wire.Opened) {
				p.post(rdma.WorkRequest{Op: rdma.OpRead, Local: rdma.SGE{Region: p.mr, Off: (peerBuffers - 1) * wire.MaxMessage, Len: 4096}, Remote: rdma.Remote{Key: o.Key, Addr: o.Base}})
				_, err := p.receive()
				require.Error(t, err)
			}},
			{name: "Zero", ask: func(p *peer, o wire.Opened) {
				p.send((&wire.Zero{Seq: 1, Len: 4096}).Append(nil))
			}},
			{name: "Barrier", ask: func(*peer, wire.Opened) {}, told: true},
		} {
			if memory == "file" && c.told {
				continue // a sync of class file touches no memory
			}
			t.Run(memory+"/"+c.name, func(t *testing.T) {
				dir := testhost.Disk(t)
				if memory == "tmpfs" {
					if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=16m"); err != nil {
						t.Skipf("mount a tmpfs: %v (needs root)", err)
					}
					t.Cleanup(func() { require.NoError(t, unix.Unmount(dir, unix.MNT_DETACH)) })
				}
				if c.told && flush.Instruction() == flush.None {
					t.Skip("this build writes no cache lines back, so it touches no memory")
				}
				path := filepath.Join(dir, "region")
				s := newFaultSite(t, path, filepath.Join(dir, "other"))
				p, other := s.connect(t), s.connect(t)
				o := p.openNamed(alice, "log")
				oo := other.openNamed(bob, "other")
				require.NoError(t, p.write(o, 1, 0, []byte("whole")))

				require.NoError(t, os.Truncate(path, region.DataOffset))
				c.ask(p, o)
				p.send((&wire.Barrier{Seq: 2, Last: true, Ranges: []persist.Range{{Len: 4096}}}).Append(nil))
				msg, err := p.receive()
				if c.told {
					require.NoError(t, err)
					var fail wire.BarrierFail
					require.NoError(t, fail.Decode(msg))
					require.Equal(t, wire.CodeFailed, fail.Code)
					require.Contains(t, fail.Text, "memory fault")
				} else {
					require.Error(t, err)
				}

				next := s.connect(t)
				var r wire.Refused
				next.ask(&wire.Open{Methods: everyMethod, Owner: alice, Epoch: o.Epoch, Region: "log", Flags: wire.OpenAllowVolatile}, &r)
				require.Equal(t, wire.CodeFailed, r.Code, r.Text)
				require.Contains(t, r.Text, "fault")
				require.ErrorIs(t, s.region.Failed(), region.ErrFailed)
				require.NoError(t, other.write(oo, 1, 0, []byte("unharmed")))
				s.stop()
				info, err := region.Inspect(path)
				require.NoError(t, err)
				require.True(t, info.Superblock.Failed)
			})
		}
	}
}

// A faultSite serves two regions over iWARP.
type faultSite struct {
	site
	iwarp rdma.Provider
}

func newFaultSite(t *testing.T, path, other string) *faultSite {
	s := &faultSite{iwarp: iwarp.New(iwarp.Config{})}
	var regions []*region.Region
	for name, path := range map[string]string{"log": path, "other": other} {
		r, err := region.Open(path, region.OpenOptions{Name: name, CreateSize: size, AllowVolatile: true})
		require.NoError(t, err)
		regions = append(regions, r)
		if name == "log" {
			s.region = r
		}
	}
	s.server = New(Config{Log: logtest.New(t)}, regions)
	l, err := s.iwarp.Listen(context.Background(), "127.0.0.1:0")
	require.NoError(t, err)
	s.addr = l.Addr()
	served := make(chan error, 1)
	go func() { served <- s.server.Serve(l) }()
	stopped := false
	s.stop = func() {
		if stopped {
			return
		}
		stopped = true
		require.NoError(t, s.server.Close())
		require.NoError(t, <-served)
		for _, r := range regions {
			require.NoError(t, r.Close())
		}
	}
	t.Cleanup(s.stop)
	return s
}

func (s *faultSite) connect(t *testing.T) *peer { return dial(t, s.iwarp, s.addr) }
