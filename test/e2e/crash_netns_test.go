package e2e

import (
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A cable connects this network namespace with another one, in which the target runs.
type cable struct {
	ns   string
	addr string // of the far end
}

// newCable makes a namespace and a cable to it. n differs for each cable of a run.
func newCable(t *testing.T, n int) *cable {
	t.Helper()
	need(t, peer{"ip", "iproute2"})
	// 198.18.0.0/15 is reserved for tests of networks (RFC 2544).
	here, there := fmt.Sprintf("198.18.%d.1", n), fmt.Sprintf("198.18.%d.2", n)
	c := &cable{ns: fmt.Sprintf("pmnbd-%d-%d", syscall.Getpid(), n), addr: there}
	near := fmt.Sprintf("pm%d-%d", syscall.Getpid(), n) // at most 15 characters
	if out, err := exec.Command("ip", "netns", "add", c.ns).CombinedOutput(); err != nil {
		t.Skipf("ip netns add: %v: %s (needs root)", err, out)
	}
	t.Cleanup(func() { c.ip(t, "netns", "del", c.ns) }) // the cable goes with it
	c.ip(t, "link", "add", near, "type", "veth", "peer", "name", "far", "netns", c.ns)
	c.ip(t, "addr", "add", here+"/30", "dev", near)
	c.ip(t, "link", "set", near, "up")
	c.ip(t, "-n", c.ns, "addr", "add", there+"/30", "dev", "far")
	c.plug(t)
	return c
}

func (c *cable) ip(t *testing.T, args ...string) {
	t.Helper()
	out, err := exec.Command("ip", args...).CombinedOutput()
	require.NoError(t, err, "ip %s: %s", strings.Join(args, " "), out)
}

// cut drops every packet and tells nobody.
func (c *cable) cut(t *testing.T) { t.Helper(); c.ip(t, "-n", c.ns, "link", "set", "far", "down") }

// plug connects the cable, also again.
func (c *cable) plug(t *testing.T) { t.Helper(); c.ip(t, "-n", c.ns, "link", "set", "far", "up") }

// newRigOver makes a rig without a proxy, whose target is at the far end of c.
func newRigOver(t *testing.T, c *cable, loads int) *rig {
	t.Helper()
	r := &rig{host: newHost(t)}
	r.path = r.region(t, "rig", "64M")
	target := command(t, r.home, "pmnbd-target", "serve", "--listen", "iwarp://"+c.addr+":0", "--insecure-no-auth", "--region", "rig="+r.path)
	r.target = startCommand(t, c.inside(t, target))
	r.uri = r.target.waitReady(t)[0]
	r.pmnbd, r.nbd, _ = r.initiator(t, r.uri, "rig", "--lanes", "2")
	for i := range uint64(loads) {
		r.loads = append(r.loads, newLoad(t, r.nbd, i*loadSize, 1))
	}
	return r
}

// inside makes cmd run at the far end.
func (c *cable) inside(t *testing.T, cmd *exec.Cmd) *exec.Cmd {
	t.Helper()
	path, err := exec.LookPath("ip")
	require.NoError(t, err)
	cmd.Path, cmd.Args = path, append([]string{"ip", "netns", "exec", c.ns, cmd.Path}, cmd.Args[1:]...)
	return cmd
}

// TestNetworkIsCut cuts the cable for a while, and until the initiator gives its connections
// up. The client waits, and notices nothing else.
func TestNetworkIsCut(t *testing.T) {
	t.Parallel()
	for i, c := range []struct {
		name string
		wait func(t *testing.T, r *rig)
	}{
		{"for a second", func(*testing.T, *rig) { <-time.After(time.Second) }}, // how long the fault lasts
		{"beyond the lease", func(t *testing.T, r *rig) { r.pmnbd.waitLog(t, "the session is interrupted") }},
		{"beyond an attempt to come back", func(t *testing.T, r *rig) { r.pmnbd.waitLog(t, "does not come back yet") }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel() // it mostly waits
			cable := newCable(t, i)
			r := newRigOver(t, cable, 1)
			p := r.pulse(t)
			r.during(t, func() {
				p.after(t, time.Now())
				cable.cut(t)
				c.wait(t, r)
				cable.plug(t)
				t.Logf("the client waited %v after the network was back", p.after(t, time.Now()))
			})
			r.verify(t)
			r.stop(t)
		})
	}
}
