package e2e

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"pmnbd/nbd/client"
	"pmnbd/nbd/wire"
)

// dialRaw connects to a URI of a ready line and says nothing.
func dialRaw(t *testing.T, uri string) net.Conn {
	t.Helper()
	u, err := url.Parse(uri)
	require.NoError(t, err)
	network, address := "tcp", u.Host
	if u.Scheme == "nbd+unix" {
		network, address = "unix", u.Query().Get("socket")
	}
	nc, err := net.Dial(network, address)
	require.NoError(t, err)
	t.Cleanup(func() { _ = nc.Close() })
	require.NoError(t, nc.SetDeadline(time.Now().Add(outer)))
	return nc
}

// leave closes our half and waits until the server has closed the connection.
func leave(t *testing.T, nc net.Conn) {
	t.Helper()
	_ = nc.(interface{ CloseWrite() error }).CloseWrite() // it may be closed already
	_, err := io.Copy(io.Discard, nc)
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "still open")
	_ = nc.Close()
}

// everything returns all that a client of export r may say, with a WRITE beyond what the load
// uses.
func everything() []byte {
	b := wire.AppendClientFlags(nil, wire.ClientFixedNewstyle)
	b = wire.AppendOption(b, wire.OptStructuredReply, nil)
	b = wire.AppendOption(b, wire.OptSetMetaContext, wire.AppendMetaRequest(nil, "r", wire.ContextAllocation))
	b = wire.AppendOption(b, wire.OptGo, wire.AppendInfoRequest(nil, "r"))
	for _, cmd := range []wire.Command{wire.CmdRead, wire.CmdBlockStatus, wire.CmdFlush, wire.CmdWrite} {
		b = wire.AppendRequest(b, wire.Request{Command: cmd, Off: loadSize, Len: 512})
	}
	return append(b, make([]byte, 512)...)
}

// TestHostileClients does to pmnbd what hostile clients do. Only those clients may suffer.
// Afterwards pmnbd holds no more descriptors and memory than before, and it serves the load all
// along.
func TestHostileClients(t *testing.T) {
	t.Run("built as for all tests", func(t *testing.T) { hostileClients(t, newHost(t)) })
	t.Run("without the race detector", func(t *testing.T) {
		h := newHost(t)
		h.plain = plainBinaries(t)
		pmnbd, round := hostileClients(t, h)
		files, memory := pmnbd.openFiles(t), pmnbd.procStatus(t, "VmRSS")
		round()
		pmnbd.holdsAtMost(t, files, "the initiator")
		require.LessOrEqual(t, pmnbd.procStatus(t, "VmRSS"), memory+growth, "KiB")
	})
}

// hostileClients starts a pmnbd and attacks it once. round repeats the attacks.
func hostileClients(t *testing.T, h host) (pmnbd *process, round func()) {
	const most = 32
	_, uri := h.target(t, "r="+h.region(t, "r", "32M"))
	pmnbd, unix, tcp := h.initiator(t, uri, "r", fmt.Sprintf("--max-connections=%d", most))
	live := newLoad(t, unix, 0, 1)
	require.NoError(t, live.run(100))

	said := everything()
	random := rand.NewChaCha8([32]byte{3})
	attacks := []struct {
		name   string
		attack func(t *testing.T)
	}{
		{"a thousand that hang up", func(t *testing.T) {
			for i := range 1000 {
				nc := dialRaw(t, []string{unix, tcp}[i%2])
				_, _ = nc.Write(said[:i*7%len(said)]) // the server may refuse the connection
				if i%3 == 0 {
					_ = nc.Close()
					continue
				}
				leave(t, nc)
			}
		}},
		{"garbage", func(t *testing.T) {
			for i := range 200 {
				nc := dialRaw(t, []string{unix, tcp}[i%2])
				junk := make([]byte, 1<<(i%17))
				_, _ = random.Read(junk) // never fails
				// Before the flags, between two options, or after GO.
				at := []int{0, 4, strings.Index(string(said), "\x25\x60\x95\x13")}[i%3]
				_, _ = nc.Write(append(said[:at:at], junk...)) // the server may have closed
				leave(t, nc)
			}
		}},
		{"as many as allowed", func(t *testing.T) {
			// In transmission, because connections that are still negotiating make room for
			// others.
			var in []net.Conn
			enters := func(uri string) bool {
				c, err := client.New(dialRaw(t, uri), client.Config{Export: "r"})
				if err != nil || (&conn{c: c}).flush() != nil {
					return false
				}
				in = append(in, c.Socket())
				return true
			}
			for len(in) < most-1 { // the earlier ones may still be leaving
				enters(unix)
			}
			require.False(t, enters(unix))
			require.False(t, enters(tcp))
			require.NoError(t, in[0].Close())
			for !enters(tcp) { // until the server has noticed
			}
			for _, nc := range in[1:] {
				leave(t, nc)
			}
		}},
	}
	round = func() {
		for _, a := range attacks {
			t.Run(a.name, func(t *testing.T) { live.during(t, func() { a.attack(t) }) })
		}
		log, _ := pmnbd.stderr.next()
		require.NotContains(t, log, `"level":"error"`)
	}
	round()
	return pmnbd, round
}

// TestSilentReaders has clients ask for much and read nothing. They keep what they hold, and
// another client's small requests must go on meanwhile.
func TestSilentReaders(t *testing.T) {
	const silent, requests, size, reads = 20, 400, 4096, 200
	h := newHost(t)
	_, uri := h.target(t, "r="+h.region(t, "r", "32M"))
	pmnbd, unix, tcp := h.initiator(t, uri, "r")
	other := dialNBD(t, unix)
	data, back := noise(t, size), make([]byte, size)
	small := func() time.Duration {
		began := time.Now()
		for i := range uint64(requests / 2) {
			require.NoError(t, other.write(i*size, data))
			require.NoError(t, other.read(i*size, back))
			require.True(t, bytes.Equal(data, back))
		}
		return time.Since(began)
	}
	alone := small()
	for i := range silent {
		c, err := client.New(dialRaw(t, []string{unix, tcp}[i%2]), client.Config{Export: "r"})
		require.NoError(t, err)
		for i := range uint64(reads) {
			c.Request(wire.Request{Command: wire.CmdRead, Cookie: 1 + i, Len: 1 << 20})
		}
		require.NoError(t, c.Send())
		_, err = io.ReadFull(c.Socket(), make([]byte, wire.SimpleReplySize))
		require.NoError(t, err)
	}
	beside := small()
	t.Logf("%d requests: %v alone, %v beside %d silent readers: %.1f times", requests, alone, beside, silent, float64(beside)/float64(alone))
	log, _ := pmnbd.stderr.next()
	require.NotContains(t, log, "client left", "the silent readers were disconnected")
}
