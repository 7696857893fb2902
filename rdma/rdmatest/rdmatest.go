package rdmatest

import (
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/rdma"
)

// A Lack is something that the devices of a provider cannot do. The provider's
// documentation says so.
type Lack uint8

const (
	// Causes: the error is ErrLost or ErrRemoteOp, whatever the peer's reason to refuse.
	Causes Lack = iota + 1
	// ReadRights: the device answers Reads of registered memory without that right.
	ReadRights
)

// A suite runs the tests on one provider.
type suite struct {
	p     rdma.Provider
	addr  string
	lacks []Lack
	// memory is the Config.Memory of every pair.
	memory func(t testing.TB, n int) []byte
}

// refused checks that err is want, or as close to it as the provider can know.
func (s *suite) refused(t testing.TB, err, want error) {
	t.Helper()
	if slices.Contains(s.lacks, Causes) && (errors.Is(err, rdma.ErrLost) || errors.Is(err, rdma.ErrRemoteOp)) {
		return
	}
	require.ErrorIs(t, err, want)
}

func (s *suite) connect(t *testing.T, cfg Config) (a, b *End) {
	cfg.Memory = s.memory
	return Connect(t, s.p, s.addr, cfg)
}

// Run runs the suite on p, which can listen at listenAddr with port 0.
func Run(t *testing.T, p rdma.Provider, listenAddr string, lacks ...Lack) {
	RunOn(t, Memory, p, listenAddr, lacks...)
}

// RunOn is Run on memory of another kind. memory maps n bytes for the length of t.
func RunOn(t *testing.T, memory func(t testing.TB, n int) []byte, p rdma.Provider, listenAddr string, lacks ...Lack) {
	s := &suite{p, listenAddr, lacks, memory}
	for _, tt := range []struct {
		name string
		run  func(t *testing.T)
	}{
		{"PrivateData", s.privateData},
		{"Reject", s.reject},
		{"DialNobody", s.dialNobody},
		{"DialTimeout", s.dialTimeout},
		{"ListenerClose", s.listenerClose},
		{"Close", s.close},
		{"PeerGone", s.peerGone},
		{"ManyQueuePairs", s.manyQueuePairs},

		{"SendRecv", s.sendRecv},
		{"WriteThenSend", s.writeThenSend},
		{"OverlappingWrites", s.overlappingWrites},
		{"ReadAfterWrite", s.readAfterWrite},
		{"ZeroLength", s.zeroLength},
		{"CompletionOrder", s.completionOrder},
		{"SendQueueFull", s.sendQueueFull},
		{"RecvQueueFull", s.recvQueueFull},
		{"ReadBackPressure", s.readBackPressure},
		{"ReadsBothWays", s.readsBothWays},

		{"RemoteAccess", s.remoteAccess},
		{"OtherDomain", s.otherDomain},
		{"Deregistered", s.deregistered},
		{"DeregisterFences", s.deregisterFences},
		{"SendWithoutReceive", s.sendWithoutReceive},
		{"SendTooLong", s.sendTooLong},
		{"LocalAccess", s.localAccess},
	} {
		t.Run(tt.name, tt.run)
	}
}
