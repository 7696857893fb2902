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
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// address is where a device of this machine can listen, with port 0. Without one
// the test is skipped.
func address(t testing.TB) (addr string, dev *device) {
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
		if err == nil {
			dev, err = openDevice(e)
		}
		if err == nil {
			t.Cleanup(dev.release)
			return at.String(), dev
		}
		why = err.Error()
	}
	t.Skip("no RDMA device: " + why)
	return "", nil
}

func testProvider(t testing.TB, cfg Config) rdma.Provider {
	p, err := New(cfg)
	require.NoError(t, err)
	return p
}

func TestConformance(t *testing.T) {
	addr, dev := address(t)
	t.Log("on ", dev.name)
	lacks := []rdmatest.Lack{rdmatest.Invalidation}
	if dev.caps.iwarp != 0 {
		lacks = append(lacks, rdmatest.Causes)
	}
	if strings.HasPrefix(dev.name, "siw") {
		lacks = append(lacks, rdmatest.ReadRights)
	}
	rdmatest.Run(t, testProvider(t, Config{}), addr, lacks...)
}
