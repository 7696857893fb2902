package nbd

import (
	"crypto/tls"
	"net"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"pmnbd/nbd/wire"
)

// TestNotTakenOver: the server cannot take over the connection of a client that has negotiated by TLS, because it has
// run out of descriptors or, as here, because the connection is no socket. A client that reads nothing does not keep
// it: the deadline of the negotiation ends the close_notify, too.
func TestNotTakenOver(t *testing.T) {
	dev := newMem(t, 1<<20)
	defer func() { require.NoError(t, dev.Close()) }()
	srv, err := New(Config{TLS: serverTLS(tls.NoClientCert)}, Export{Name: "disk", Device: dev}) // by the real clock
	require.NoError(t, err)
	synctest.Test(t, func(t *testing.T) {
		nc, served := net.Pipe()
		srv.start(served)
		greet(t, nc, wire.ClientFixedNewstyle)
		c := startTLS(t, nc, &tls.Config{InsecureSkipVerify: true})
		require.Equal(t, wire.RepAck, last(t, c, wire.OptGo, wire.AppendInfoRequest(nil, "disk")))
		srv.wg.Wait() // synctest sees if it never ends
		require.NoError(t, nc.Close())
	})
}
