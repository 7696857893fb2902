package iwarp

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/rdma"
	"pmnbd/rdma/rdmatest"
)

// Wireshark sees TLS 1.3 in an encrypted session, with the hybrid key exchange, and nothing of MPA.
func TestTsharkSeesTLS(t *testing.T) {
	tshark, err := exec.LookPath("tshark")
	if err != nil {
		t.Skip("tshark is missing: install Debian's package tshark")
	}
	p := New(Config{Encrypt: true})
	l := listen(t, Config{Encrypt: true})
	c := newCapture()
	through, done := c.proxy(t, l)
	a, b := rdmatest.ConnectTo(t, p, through, rdmatest.Config{ConnConfig: rdma.ConnConfig{PrivateData: []byte("session")}})
	b.Recv(t, 1, 0, 64)
	a.Post(t,
		rdma.WorkRequest{Op: rdma.OpWrite, Local: a.Local(0, 100_000), Remote: b.At(4096)},
		rdma.WorkRequest{Op: rdma.OpSend, Inline: bytes.Repeat([]byte("message "), 8)},
		rdma.WorkRequest{ID: 7, Op: rdma.OpRead, Local: a.Local(0, 100_000), Remote: b.At(4096)})
	require.EqualValues(t, 7, a.Next(t).ID)
	a.Close(t)
	b.Close(t)
	done.Wait()

	file := filepath.Join(t.TempDir(), "session.pcap")
	require.NoError(t, os.WriteFile(file, c.pcap, 0o600))
	field := func(name string) string {
		cmd := exec.Command(tshark, "-r", file, "-d", "tcp.port==7204,tls", "-T", "fields", "-e", name)
		cmd.Stderr = io.Discard // it warns of running as root
		out, err := cmd.Output()
		require.NoError(t, err)
		return strings.Join(strings.Fields(strings.ReplaceAll(string(out), ",", " ")), " ")
	}
	require.Equal(t, "0x0304 0x0304", field("tls.handshake.extensions.supported_version"), "one version offered, and chosen")
	require.Equal(t, "4588 4588", field("tls.handshake.extensions_key_share_group"), "X25519MLKEM768 alone")
	require.Empty(t, field("tls.handshake.extensions_server_name"))
	require.Empty(t, field("iwarp_mpa.key.req")+field("iwarp_mpa.ulpdulength")+field("iwarp_rdma.opcode"))
	require.NotContains(t, string(c.pcap), "message message")
	require.Contains(t, field("tls.record.opaque_type"), "23", "application data")
	require.NotContains(t, field("_ws.expert.message"), "Malformed")
}
