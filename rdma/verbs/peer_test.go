//go:build verbs && cgo

package verbs

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/rdma"
	"pmnbd/test/lab"
)

// peerAddr is where the machine that loses its power listens.
const peerAddr = "10.0.0.1:7300"

// A peer that loses its power becomes an error after a few retries. With a retry count of 7
// it never would. With iWARP devices TCP decides how long that takes.
func TestDeadPeer(t *testing.T) {
	const role = "PMNBD_TEST_PEER"
	lab.Need(t)
	switch {
	case !lab.Inside():
		a, b := lab.Wire(t.TempDir(), 0)
		setup := []string{"wire", "rxe"}
		peer := lab.Start(t, lab.Guest{Setup: setup, Wires: []*lab.End{a}, Env: []string{role + "=1"}})
		require.NoError(t, peer.WaitFor(t.Context(), "listening\n"))
		m := lab.Start(t, lab.Guest{Setup: setup, Wires: []*lab.End{b}})
		require.NoError(t, m.WaitFor(t.Context(), "connected\n"))
		peer.Kill()
		lab.Finish(t, m)
	case os.Getenv(role) != "":
		beAlive(t)
	default:
		outlive(t)
	}
}

// beAlive answers one connection until the machine loses its power.
func beAlive(t *testing.T) {
	p, err := New(Config{})
	require.NoError(t, err)
	l, err := p.Listen(t.Context(), peerAddr)
	require.NoError(t, err)
	fmt.Println("listening")
	req, err := l.Accept()
	require.NoError(t, err)
	d, err := req.OpenDomain()
	require.NoError(t, err)
	c, err := req.Accept(d, rdma.ConnConfig{}, nil)
	require.NoError(t, err)
	require.Fail(t, "the power stayed", "%v", c.Wait())
}

// outlive writes until a write fails.
func outlive(t *testing.T) {
	p, err := New(Config{})
	require.NoError(t, err)
	d, err := p.OpenDomain(t.Context(), peerAddr)
	require.NoError(t, err)
	c, err := d.Dial(t.Context(), peerAddr, rdma.ConnConfig{}, nil)
	require.NoError(t, err)
	cs := make([]rdma.Completion, 1)
	for said := false; err == nil; {
		_, err = c.Post([]rdma.WorkRequest{{Op: rdma.OpWrite, Signaled: true}})
		for n := 0; n == 0 && err == nil; {
			if err = c.Wait(); err == nil {
				n, err = c.Poll(cs)
			}
		}
		if err == nil && !said {
			said = true
			fmt.Println("connected")
		}
	}
	require.ErrorIs(t, err, rdma.ErrLost)
	require.ErrorContains(t, err, "retry counter exceeded")
	require.NoError(t, c.Close())
	require.NoError(t, d.Close())
}
