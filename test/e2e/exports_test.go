package e2e

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// twoExports starts a pmnbd that serves a region of each of two targets on a unix socket, as
// exports "one" and "two".
func (h host) twoExports(t *testing.T, more ...string) (p *process, targets [2]*process, uris []string) {
	t.Helper()
	args := []string{"serve", "--listen", "unix:" + filepath.Join(h.home, "s")}
	for i, export := range []string{"one", "two"} {
		region := fmt.Sprintf("r%d", i)
		target, uri := h.target(t, region+"="+h.region(t, region, "16M"))
		targets[i] = target
		args = append(args, "--target", uri+"/"+region, "--export", export)
	}
	p = start(t, h.home, "pmnbd", append(args, more...)...)
	return p, targets, p.waitReady(t)
}

func TestSeveralExports(t *testing.T) {
	t.Parallel()
	need(t, nbdinfo)
	h := newHost(t)
	pmnbd, _, uris := h.twoExports(t, "--listen", "tcp:127.0.0.1:0")
	require.Len(t, uris, 4)
	socket := filepath.Join(h.home, "s")
	require.Equal(t, "nbd+unix:///one?socket="+socket, uris[0])
	require.Regexp(t, `^nbd://127\.0\.0\.1:[1-9][0-9]*/one$`, uris[1])
	require.Equal(t, "nbd+unix:///two?socket="+socket, uris[2])
	require.Equal(t, strings.TrimSuffix(uris[1], "one")+"two", uris[3])
	list := nbdinfo.run(t, "--list", "nbd+unix:///?socket="+socket)
	require.Contains(t, list, `export="one"`)
	require.Contains(t, list, `export="two"`)

	// Each export holds what was written to it, on every listener. The first one is the
	// default.
	data := [2][]byte{noise(t, 64<<10), noise(t, 64<<10)}
	require.NoError(t, dialNBD(t, uris[1]).write(0, data[0]))
	require.NoError(t, dialNBD(t, uris[2]).write(0, data[1]))
	for uri, want := range map[string][]byte{uris[0]: data[0], uris[3]: data[1], "nbd+unix:///?socket=" + socket: data[0]} {
		got := make([]byte, len(want))
		require.NoError(t, dialNBD(t, uri).read(0, got))
		require.True(t, bytes.Equal(want, got), uri)
	}

	p := statusOf[pmnbdStatus](t, h, "pmnbd", "status", "two")
	require.Len(t, p, 1)
	require.Len(t, p[0].Exports, 2, "a process reports all its exports")
	for i, name := range []string{"one", "two"} {
		e := p[0].Exports[i]
		require.Equal(t, name, e.Name)
		require.Equal(t, uris[2*i:2*i+2], e.Listen)
		require.EqualValues(t, 1, e.Commands["WRITE"].Requests)
		require.EqualValues(t, len(data[i]), e.Device.Window.Unflushed)
	}
	text := h.run(t, "pmnbd", "status", "two")
	require.Contains(t, text, "export two: open")
	require.NotContains(t, text, "export one")
	require.FileExists(t, filepath.Join(h.home, "run", fmt.Sprintf("one-%d.sock", pmnbd.cmd.Process.Pid)))

	pmnbd.stop(t)
	for _, region := range []string{"r0", "r1"} {
		require.True(t, h.inspect(t, filepath.Join(h.disk, region)).Clean, "%s was flushed and given back", region)
	}
}

// TestOneExportFails lets one export fail. The other one must not notice, at the end neither.
func TestOneExportFails(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	pmnbd, targets, uris := h.twoExports(t, "--loss-timeout", lossTimeout)
	one, two := dialNBD(t, uris[0]), dialNBD(t, uris[1])
	data := noise(t, 4096)
	require.NoError(t, one.write(0, data))
	require.NoError(t, two.write(0, data))
	targets[0].kill(t)
	require.ErrorIs(t, one.flush(), syscall.EIO)
	require.NoError(t, two.flush())
	exports := h.exports(t)
	require.Equal(t, "failed open", exports[0].Device.State+" "+exports[1].Device.State)
	require.NoError(t, two.write(8192, data))

	pmnbd.signal(t, syscall.SIGTERM)
	require.Equal(t, 1, pmnbd.wait(t))
	require.Contains(t, pmnbd.stderr.String(), `export "one": 4096 bytes were not flushed`)
	require.True(t, h.inspect(t, filepath.Join(h.disk, "r1")).Clean)
}

func TestAllExportsOrNone(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	path := h.region(t, "r", "16M")
	_, uri := h.target(t, "r="+path)
	before := h.inspect(t, path).Epoch
	code, stdout, stderr := h.result(t, "pmnbd", "serve", "--target", uri+"/r", "--target", uri+"/nowhere", "--listen", "unix:"+filepath.Join(h.home, "s"))
	require.Equal(t, 1, code)
	require.Empty(t, stdout)
	require.Contains(t, stderr, `pmnbd serve: export "nowhere": `)
	s := h.inspect(t, path)
	require.Equal(t, before+1, s.Epoch, "the region was not opened once")
	require.True(t, s.Clean, "the region was not closed")
	require.NoFileExists(t, filepath.Join(h.home, "s"))
	left, err := os.ReadDir(filepath.Join(h.home, "run"))
	require.NoError(t, err)
	require.Len(t, left, 1, "the target's control socket")
}

// TestMaxConnections connects more clients than the default allows, each with memory to receive
// into.
func TestMaxConnections(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	_, uri := h.target(t, "r="+h.region(t, "r", "16M"))
	const clients = 100
	pmnbd, unix, _ := h.initiator(t, uri, "r", fmt.Sprintf("--max-connections=%d", clients))
	data := noise(t, 4096)
	for range clients {
		require.NoError(t, dialNBD(t, unix).write(0, data))
	}
	c, err := net.Dial("unix", filepath.Join(h.home, "r.sock"))
	require.NoError(t, err)
	require.NoError(t, c.SetDeadline(time.Now().Add(outer)))
	n, err := c.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF, "%d", n)
	require.NoError(t, c.Close())
	pmnbd.waitLog(t, "too many connections")
	require.Len(t, h.exports(t), 1, "clients must not use up the control socket")
}

func TestHandshakeTimeout(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	_, uri := h.target(t, "r="+h.region(t, "r", "16M"))
	h.initiator(t, uri, "r", "--handshake-timeout=50ms")
	c, err := net.Dial("unix", filepath.Join(h.home, "r.sock"))
	require.NoError(t, err)
	require.NoError(t, c.SetDeadline(time.Now().Add(outer)))
	greeting, err := io.ReadAll(c)
	require.NoError(t, err, "the server did not end the connection")
	require.Len(t, greeting, 18)
	require.NoError(t, c.Close())
}

// TestOpenListenerIsLogged expects one log line about each listener that other hosts can reach
// and whose clients need no certificate, and none about loopback.
func TestOpenListenerIsLogged(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	_, uri := h.target(t, "r="+h.region(t, "r", "16M"))
	certificates := "--tls-certificates=" + selfSigned(t)
	for name, c := range map[string]struct {
		flags []string
		lines int
	}{
		"no TLS":            {nil, 1},
		"TLS as they like":  {[]string{"--tls=on", "--tls-verify-peer", certificates}, 1},
		"TLS, not verified": {[]string{"--tls=require", certificates}, 1},
		"TLS, verified":     {[]string{"--tls=require", "--tls-verify-peer", certificates}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			args := []string{"serve", "--target", uri + "/r", "--listen", "tcp:0.0.0.0:0", "--listen", "tcp:127.0.0.1:0", "--insecure-no-auth"}
			p := start(t, h.home, "pmnbd", append(args, c.flags...)...)
			p.waitReady(t)
			p.stop(t)
			require.Equal(t, c.lines, strings.Count(p.stderr.String(), "clients of this address do not authenticate"))
		})
	}
}

func TestReadOnly(t *testing.T) {
	t.Parallel()
	need(t, nbdinfo)
	h := newHost(t)
	_, uri := h.target(t, "r="+h.region(t, "r", "16M"))
	pmnbd, unix, _ := h.initiator(t, uri, "r")
	data := noise(t, 4096)
	require.NoError(t, dialNBD(t, unix).write(0, data))
	pmnbd.stop(t)
	pmnbd, unix, _ = h.initiator(t, uri, "r", "--read-only")
	c, got := dialNBD(t, unix), make([]byte, 4096)
	require.ErrorIs(t, c.write(0, got), syscall.EPERM)
	require.NoError(t, c.flush())
	require.NoError(t, c.read(0, got))
	require.True(t, bytes.Equal(data, got))
	require.Contains(t, nbdinfo.run(t, unix), "is_read_only: true")
	require.True(t, h.exports(t)[0].ReadOnly)
	require.Contains(t, h.run(t, "pmnbd", "status"), "export r: read-only, open")
	pmnbd.stop(t)
}

// TestTLSURIs checks that clients can use the URIs of the ready line as they are, with TLS and
// without.
func TestTLSURIs(t *testing.T) {
	t.Parallel()
	need(t, nbdinfo)
	h := newHost(t)
	_, uri := h.target(t, "r="+h.region(t, "r", "16M"))
	certificates := selfSigned(t)
	for mode, schemes := range map[string][]string{"on": {"nbds", "nbd"}, "require": {"nbds"}} {
		t.Run(mode, func(t *testing.T) {
			p := start(t, h.home, "pmnbd", "serve", "--target", uri+"/r", "--tls", mode, "--tls-certificates", certificates,
				"--insecure-no-auth", "--listen", "tcp:0.0.0.0:0", "--listen", "unix:"+filepath.Join(h.home, "s"))
			uris := p.waitReady(t)
			require.Len(t, uris, 2*len(schemes))
			for i, scheme := range schemes {
				require.True(t, strings.HasPrefix(uris[i], scheme+"://0.0.0.0:"), uris[i])
				require.Equal(t, scheme+"+unix:///r?socket="+filepath.Join(h.home, "s"), uris[i+len(schemes)])
			}
			for _, uri := range uris {
				// The certificate is for localhost.
				uri = strings.Replace(uri, "0.0.0.0", "localhost", 1)
				if strings.HasPrefix(uri, "nbds") {
					separator := "?"
					if strings.Contains(uri, "?") {
						separator = "&"
					}
					uri += separator + "tls-certificates=" + certificates
				}
				require.Contains(t, nbdinfo.run(t, "--size", uri), "16777216", uri)
			}
			p.stop(t)
		})
	}
}

// selfSigned returns a directory for --tls-certificates of servers and clients: a CA that is
// also localhost's own certificate.
func selfSigned(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "localhost"}, DNSNames: []string{"localhost"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	dir := t.TempDir()
	for name, block := range map[string]*pem.Block{
		"ca-cert.pem":     {Type: "CERTIFICATE", Bytes: certificate},
		"server-cert.pem": {Type: "CERTIFICATE", Bytes: certificate},
		"server-key.pem":  {Type: "PRIVATE KEY", Bytes: secret},
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600))
	}
	return dir
}
