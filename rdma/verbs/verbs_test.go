//go:build verbs && cgo

package verbs

import (
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"pmnbd/rdma"
	"pmnbd/rdma/rdmatest"
	"pmnbd/test/lab"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A bench is a device of this machine and an address where it can listen.
type bench struct {
	p    rdma.Provider
	addr string
	dev  *device
}

// find returns the first device that has an address. Without one it skips the test.
func find(t testing.TB) bench {
	t.Helper()
	all, err := net.InterfaceAddrs()
	require.NoError(t, err)
	why := "only loopback has an address"
	for _, a := range all {
		ip, ok := netip.AddrFromSlice(a.(*net.IPNet).IP)
		if !ok || !ip.IsGlobalUnicast() {
			continue
		}
		at := netip.AddrPortFrom(ip.Unmap(), 0)
		e, err := bound(at)
		var dev *device
		if err == nil {
			dev, err = openDevice(e)
		}
		if err != nil {
			why = err.Error()
			continue
		}
		dev.release() // the machine could not remove an open device
		p, err := New(Config{})
		require.NoError(t, err)
		return bench{p, at.String(), dev}
	}
	t.Skip("no RDMA device: " + why)
	return bench{}
}

// run runs the tests that suit any device.
func (b bench) run(t *testing.T) {
	t.Logf("device %s", b.dev.name)
	t.Run("Conformance", func(t *testing.T) {
		var lacks []rdmatest.Lack
		if b.dev.caps.iwarp != 0 {
			lacks = append(lacks, rdmatest.Causes)
		}
		if strings.HasPrefix(b.dev.name, "siw") {
			lacks = append(lacks, rdmatest.ReadRights)
		}
		rdmatest.Run(t, b.p, b.addr, lacks...)
	})
	t.Run("Caps", b.caps)
	t.Run("Lanes", b.lanes)
	t.Run("Registration", b.registration)
	t.Run("FileWithDAX", b.fileWithDAX)
	t.Run("LockedMemory", b.lockedMemory)
	t.Run("Allocations", b.allocations)
	t.Run("Spin", b.spin)
	t.Run("Flush", b.flush)
	t.Run("PartialPost", b.partialPost)
	t.Run("CompletionQueueError", b.completionQueueError)
}

// TestDevice tests a device of this machine, if there is one.
func TestDevice(t *testing.T) { find(t).run(t) }

// The same tests in the lab, where devices can be removed as well.
func TestSmokeRxe(t *testing.T) { inLab(t, "rxe", "rxe0", "devdax") }
func TestSiw(t *testing.T)      { inLab(t, "siw", "siw0", "fsdax") }

func inLab(t *testing.T, kind, link, nvdimm string) {
	lab.Run(t, lab.Guest{Setup: []string{"rdma-core", kind, nvdimm}, NVDIMM: lab.Memory(t, 256<<20)}, func(t *testing.T) {
		b := find(t)
		b.run(t)
		t.Run("AnyPort", b.anyPort)
		t.Run("Removal", func(t *testing.T) { b.removal(t, kind, link) })
	})
}
