package e2e

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"pmnbd/test/crash"
)

// mpaRequest is a valid MPA request of revision 1, with CRC and without private data (RFC 5044
// §7.1).
const mpaRequest = "MPA ID Req Frame\x40\x01\x00\x00"

// during runs attack while the load runs. The load must succeed, also after the attack.
func (l *verifiedLoad) during(t *testing.T, attack func()) {
	t.Helper()
	over, result := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			err := l.run(100)
			select {
			case <-over:
				if err == nil {
					err = l.run(100)
				}
				result <- err
				return
			default:
			}
			if err != nil {
				result <- err
				return
			}
		}
	}()
	defer func() { // also when attack ends the test
		close(over)
		require.NoError(t, <-result, "the load")
	}()
	attack()
}

// openFiles returns how many descriptors p has open.
func (p *process) openFiles(t *testing.T) int {
	t.Helper()
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.cmd.Process.Pid))
	require.NoError(t, err)
	return len(fds)
}

// holdsAtMost waits until p has at most n descriptors open: p may not yet have closed what its
// peers have closed.
func (p *process) holdsAtMost(t *testing.T, n int, of string) {
	t.Helper()
	require.Eventually(t, func() bool { return p.openFiles(t) <= n }, outer, 10*time.Millisecond, "more than %d descriptors of %s", n, of)
}

func dialTCP(t *testing.T, addr string) *net.TCPConn {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = nc.Close() })
	require.NoError(t, nc.SetDeadline(time.Now().Add(outer)))
	return nc.(*net.TCPConn)
}

// hangUp closes our half and waits until the other end has closed, which frees its descriptor.
func hangUp(nc *net.TCPConn) {
	_ = nc.CloseWrite()            // it may be reset already
	_, _ = io.Copy(io.Discard, nc) // the end of the stream and a reset count the same
	_ = nc.Close()
}

// TestHostilePeers does to a target's port what strangers do. Only the strangers may suffer.
func TestHostilePeers(t *testing.T) {
	h := newHost(t)
	busy, quiet := h.region(t, "busy", "16M"), h.region(t, "quiet", "16M")
	target, uri := h.target(t, "busy="+busy, "quiet="+quiet)
	addr := strings.TrimPrefix(uri, "iwarp://")
	_, nbd, _ := h.initiator(t, uri, "busy")
	live := newLoad(t, nbd, 0, 1)
	require.NoError(t, live.run(100))
	before, began := target.openFiles(t), time.Now()

	t.Run("a thousand idle ones", func(t *testing.T) {
		live.during(t, func() {
			var idle []*net.TCPConn
			for i := range 1000 {
				nc := dialTCP(t, addr)
				// Silent, in the middle of a request, or connected without a session.
				_, err := nc.Write([]byte(mpaRequest[:i%3*len(mpaRequest)/2]))
				require.NoError(t, err)
				idle = append(idle, nc)
			}
			require.NoError(t, dialNBD(t, nbd).flush(), "while the connections are open")
			for _, nc := range idle {
				hangUp(nc)
			}
		})
	})
	t.Run("random bytes", func(t *testing.T) {
		random := rand.NewChaCha8([32]byte{2})
		live.during(t, func() {
			for i := range 200 {
				nc := dialTCP(t, addr)
				junk := make([]byte, 1<<(i%17))
				_, _ = random.Read(junk) // never fails
				if i%2 == 0 {
					junk = append([]byte(mpaRequest), junk...)
				}
				_, _ = nc.Write(junk) // the target may have closed
				hangUp(nc)
			}
		})
	})
	t.Run("a recorded session", func(t *testing.T) {
		live.during(t, func() { playBack(t, h, addr, quiet) })
	})

	target.holdsAtMost(t, before+1, "the target, where one connection may be opening or closing")
	log, _ := target.stderr.next()
	for again := time.Now(); !strings.Contains(log, `"left_out":`); { // the first line after a pause says how many were left out
		require.Less(t, time.Since(again), outer)
		var crowd []*net.TCPConn
		for range 200 {
			crowd = append(crowd, dialTCP(t, addr))
		}
		for _, nc := range crowd {
			hangUp(nc)
		}
		log, _ = target.stderr.next()
	}
	warned := strings.Count(log, `"level":"warn"`)
	// The limiter of each of the two kinds lets one line pass at once, and one in five seconds.
	require.LessOrEqual(t, warned, 2*(1+int(time.Since(began)/(5*time.Second))), log)
	require.NotContains(t, log, `"level":"error"`)
}

// playBack records what an initiator sends, writes the region anew, and plays the recording
// back, while the region has an owner and while it has none.
func playBack(t *testing.T, h host, addr, path string) {
	const size = 16 << 20
	old, data := noise(t, 1<<20), bytes.Repeat([]byte("new "), 1<<18)
	p := newProxy(t, addr)
	p.Record()
	first, unix, _ := h.initiator(t, "iwarp://"+p.Addr(), "quiet")
	c := dialNBD(t, unix)
	require.NoError(t, c.write(0, old))
	require.NoError(t, c.flush())
	c.close()
	first.stop(t)
	k, err := p.Link(patience(t), p.Links()-1) // the first link only asks who has the region
	require.NoError(t, err)
	recorded := k.Recorded(crash.ToServer)
	require.True(t, bytes.Contains(recorded, old[:1024]), "the recording lacks the data")

	second, unix, _ := h.initiator(t, "iwarp://"+addr, "quiet")
	c = dialNBD(t, unix)
	require.NoError(t, c.write(0, data))
	require.NoError(t, c.flush())
	sum := sumRegion(t, path, size)
	again := func() {
		t.Helper()
		_, err := crash.Play(patience(t), addr, recorded)
		require.NoError(t, err)
		require.Equal(t, sum, sumRegion(t, path, size))
	}
	again()
	got := make([]byte, len(data))
	require.NoError(t, c.read(0, got))
	require.Equal(t, data, got)
	require.NoError(t, c.flush(), "the owner's session must go on")
	c.close()
	second.stop(t)
	again()

	third, unix, _ := h.initiator(t, "iwarp://"+addr, "quiet")
	c = dialNBD(t, unix)
	require.NoError(t, c.read(0, got))
	require.Equal(t, data, got)
	c.close()
	third.stop(t)
}
