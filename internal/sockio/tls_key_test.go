package sockio

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"encoding/pem"
	"io"
	"net"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The reader handles KeyUpdates while another goroutine flushes.
func TestTLSKeyUpdates(t *testing.T) {
	s, f := forge(t)
	const rounds = 12 // crypto/tls accepts 16 in a row
	data := make([]byte, 2<<20)
	_, _ = rand.Read(data)
	var wg sync.WaitGroup
	wg.Go(func() {
		p := make([]byte, 1)
		for range rounds {
			if s.WaitReadable() != nil {
				return
			}
			if n, err := s.TryRead(p); n != 1 || err != nil {
				return
			}
		}
	})
	var q Queue
	wg.Go(func() {
		q.Data(data)
		for !q.Empty() {
			if s.Flush(&q) != nil || s.WaitWritable() != nil {
				return
			}
		}
	})
	wg.Go(func() {
		for range rounds {
			_, _ = f.nc.Write(append(f.keyUpdate(), f.record(typeData, []byte("x"))...))
		}
	})
	got := make([]byte, len(data))
	_, err := io.ReadFull(f.reader, got)
	require.NoError(t, err)
	require.True(t, bytes.Equal(data, got))
	wg.Wait()
	require.EqualValues(t, 0, f.seq-1, "all was sent")

	// Answers with no data behind them leave with the next data.
	f.send(f.keyUpdate(), f.record(typeData, []byte("y")))
	require.NoError(t, s.WaitReadable())
	copy(q.Header(4), "more")
	require.NoError(t, s.Flush(&q))
	_, err = io.ReadFull(f.reader, got[:4])
	require.NoError(t, err)
	require.Equal(t, "more", string(got[:4]))
}

// A peer that asks for KeyUpdates and reads nothing neither blocks the reader nor
// fills memory.
func TestTLSKeyUpdateFlood(t *testing.T) {
	for name, full := range map[string]bool{"nothing to flush": false, "behind a full socket": true} {
		t.Run(name, func(t *testing.T) {
			s, f := forge(t)
			var q Queue
			if full {
				stuff(t, s, &q)
			}
			p := make([]byte, 16)
			var err error
			rounds := 0
			for ; err == nil && rounds < maxUnsent; rounds++ {
				f.send(f.keyUpdate(), f.record(typeData, []byte("x")))
				_, err = s.Read(p)
			}
			require.ErrorIs(t, err, errUnsent)
			require.Greater(t, rounds, 100)
			require.Equal(t, maxUnsent, cap(s.carrier.buf))
			_, err = s.TryRead(p)
			require.ErrorIs(t, err, errUnsent)
		})
	}
}

// OpenSSL's client updates its keys (TLS 1.3) and wants to renegotiate (TLS 1.2).
func TestTLSWithOpenSSL(t *testing.T) {
	openssl, err := exec.LookPath("openssl")
	if err != nil {
		t.Skip("openssl is not installed")
	}
	server, _ := identity()
	ca := t.TempDir() + "/ca.pem"
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificates[0].Certificate[0]})
	require.NoError(t, os.WriteFile(ca, block, 0o600))
	for _, c := range []struct {
		version, command, said string
		ok                     bool
	}{
		{"-tls1_3", "K\n", "KEYUPDATE\n", true},
		{"-tls1_3", "k\n", "KEYUPDATE\n", true},
		{"-tls1_2", "R\n", "RENEGOTIATING\n", false},
	} {
		t.Run(c.version+c.command[:1], func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			defer func() { _ = l.Close() }()
			cmd := exec.Command(openssl, "s_client", "-connect", l.Addr().String(), c.version, "-CAfile", ca, "-verify_return_error")
			in, err := cmd.StdinPipe()
			require.NoError(t, err)
			out, err := cmd.StdoutPipe()
			require.NoError(t, err)
			said, err := cmd.StderrPipe()
			require.NoError(t, err)
			require.NoError(t, cmd.Start())
			defer func() { _ = cmd.Wait() }()
			defer func() { _ = cmd.Process.Kill() }()
			nc, err := l.Accept()
			require.NoError(t, err)
			defer func() { _ = nc.Close() }()
			require.NoError(t, nc.SetDeadline(time.Now().Add(30*time.Second)))
			s, err := ServeTLS(nc, server)
			require.NoError(t, err)
			defer func() { require.NoError(t, s.Close()) }()

			_, err = io.WriteString(in, c.command)
			require.NoError(t, err)
			for r := bufio.NewReader(said); ; {
				line, err := r.ReadString('\n')
				require.NoError(t, err)
				if line == c.said {
					break
				}
			}
			if !c.ok {
				_, err = s.Read(make([]byte, 1))
				require.Error(t, err)
				return
			}
			_, err = io.WriteString(in, "hello\n")
			require.NoError(t, err)
			buf := make([]byte, 64)
			require.NoError(t, s.WaitReadable())
			n, err := s.TryRead(buf)
			require.NoError(t, err)
			require.Equal(t, "hello\n", string(buf[:n]))
			var q Queue
			copy(q.Header(8), "welcome\n")
			require.NoError(t, s.Flush(&q))
			require.NoError(t, s.Close())
			all, err := io.ReadAll(out)
			require.NoError(t, err)
			require.Contains(t, string(all), "welcome\n")
		})
	}
}
