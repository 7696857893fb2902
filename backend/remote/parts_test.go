package remote

import (
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"pmnbd/backend"
	"pmnbd/backend/backendtest"
	"pmnbd/internal/testhost"
	"pmnbd/persist"
	"pmnbd/persist/region"
	"pmnbd/persist/region/regiontest"
	"pmnbd/persist/target"
	"pmnbd/rdma/iwarp"
	"pmnbd/rdma/rdmafake"
)

// fourParts makes a region of four parts, as large as the others, on the medium.
func fourParts(t testing.TB, m regiontest.Medium) (path string, further []string) {
	t.Helper()
	dir := testhost.Disk(t)
	for i := range 3 {
		further = append(further, filepath.Join(dir, "part"+strconv.Itoa(i+1)))
	}
	path = filepath.Join(dir, "part0")
	_, err := region.Create(path, region.CreateOptions{Name: "log", Size: regionSize / 4, Parts: further, Wrap: m.Wrap})
	require.NoError(t, err)
	return path, further
}

// A region of four parts is one device, on each kind of memory.
func TestConformanceOfParts(t *testing.T) {
	for name, c := range map[string]struct {
		medium regiontest.Medium
		lanes  int
		tcp    bool
	}{
		"the class of this directory": {lanes: 3},
		"over TCP":                    {lanes: 2, tcp: true},
		"ADR":                         {medium: regiontest.ADR, lanes: 1},
		"eADR":                        {medium: regiontest.EADR, lanes: 2},
	} {
		t.Run(name, func(t *testing.T) {
			backendtest.Run(t, func(t *testing.T) backend.Device {
				path, further := fourParts(t, c.medium)
				cfg, o := target.Config{Heartbeat: time.Hour, Lease: 2 * time.Hour}, region.OpenOptions{Parts: further}
				if c.tcp {
					return newPairOf(t, iwarp.New(iwarp.Config{}), "127.0.0.1:0", path, o, cfg, c.medium).dialLanes(t, c.lanes)
				}
				return newPairOf(t, rdmafake.New(rdmafake.Config{}), "", path, o, cfg, c.medium).dialLanes(t, c.lanes)
			})
		})
	}
}

// A FLUSH through the whole way syncs the files that its writes touched, and no others.
func TestFlushSyncsTouchedParts(t *testing.T) {
	path, further := fourParts(t, regiontest.Medium{})
	p := newPairOf(t, rdmafake.New(rdmafake.Config{}), "", path, region.OpenOptions{Parts: further},
		target.Config{Heartbeat: time.Hour, Lease: 2 * time.Hour}, regiontest.Medium{})
	if p.region.Class() != persist.ClassFile {
		t.Skipf("%s is on no disk", path)
	}
	d := p.dialLanes(t, 2)
	c := backendtest.NewClient(t, d)
	const part = regionSize / 4
	for _, touched := range [][]uint64{{2}, {0, 3}, {1, 2, 3}} {
		before := p.region.Syncs()
		for _, i := range touched {
			require.NoError(t, c.Do(c.Write(i*part, backendtest.Pattern(block, uint32(i)), 0)))
		}
		require.NoError(t, c.Do(c.Flush()))
		require.LessOrEqual(t, p.region.Syncs()-before, 2*uint64(len(touched)), "a lane's barrier may come after the other's sync")
		require.GreaterOrEqual(t, p.region.Syncs()-before, uint64(len(touched)))
	}
	require.NoError(t, d.Close())
}

// The target of a region of four parts may go and come again, and so may the initiator. What
// was acknowledged is there, in every part.
func TestTargetOfPartsRestarts(t *testing.T) {
	for name, m := range map[string]regiontest.Medium{"the class of this directory": {}, "ADR": regiontest.ADR, "eADR": regiontest.EADR} {
		t.Run(name, func(t *testing.T) {
			path, further := fourParts(t, m)
			open := func() *region.Region {
				r, err := region.Open(path, region.OpenOptions{Name: "log", Parts: further, AllowVolatile: true, Wrap: m.Wrap})
				require.NoError(t, err)
				return r
			}
			f := &farm{t: t, name: targetName, provider: rdmafake.New(rdmafake.Config{}), path: path}
			f.serve(open())
			t.Cleanup(func() { f.stop() })
			d := f.dial(0)
			c := backendtest.NewClient(t, d)
			const part = regionSize / 4
			for i := range uint32(4) {
				at := uint64(i+1)%4*part - min(uint64(i+1)%4, 1)*block // across the end of a part
				require.NoError(t, c.Do(c.Write(at, backendtest.Pattern(2*block, i), 0), c.Flush()))
				require.NoError(t, c.Do(c.Write(at+block, backendtest.Pattern(block, i+100), 0)))
				f.stop()
				flush, read := c.Flush(), c.Read(at, 2*block, 0)
				c.Submit(flush, read)
				require.Eventually(t, func() bool { return d.Snapshot().State == StateWaiting }, patience, tick)
				f.serve(open())
				require.NoError(t, c.Wait(flush, read))
				require.Equal(t, backendtest.Pattern(block, i+100), read.Got[block:])
				require.Equal(t, read.Got, f.region.Data()[at:at+2*block])
			}
			require.NoError(t, d.Close())
			require.True(t, f.region.Superblock().Clean)
		})
	}
}
