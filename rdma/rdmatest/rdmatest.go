package rdmatest

import (
	"testing"

	"pmnbd/rdma"
)

// A suite runs the tests on one provider.
type suite struct {
	p    rdma.Provider
	addr string
}

func (s *suite) connect(t *testing.T, cfg Config) (a, b *End) {
	return Connect(t, s.p, s.addr, cfg)
}

// Run runs the suite on p; listenAddr is where p can listen, with port 0.
func Run(t *testing.T, p rdma.Provider, listenAddr string) {
	s := &suite{p, listenAddr}
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
		{"SendInvalidate", s.sendInvalidate},
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
