package e2e

import (
	"bytes"
	"cmp"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"pmnbd/test/crash"
)

// A rig is a target, a proxy in front of it, a pmnbd with two lanes, and verified loads. The
// loads must go on and be right whatever happens to the rest.
type rig struct {
	host
	path  string   // of the region
	parts []string // the further ones, of a region of several
	uri   string   // of the target
	proxy *crash.Proxy

	target, pmnbd *process
	nbd           string // the URI for clients
	loads         []*verifiedLoad
}

// newRig makes a rig with that many loads, at most three, so that other clients find room. more
// are flags of pmnbd.
func newRig(t *testing.T, loads int, more ...string) *rig {
	t.Helper()
	return newRigOn(t, "", loads, more...)
}

// newRigOn makes a rig whose region is in the directory disk, unless that is "".
func newRigOn(t *testing.T, disk string, loads int, more ...string) *rig {
	t.Helper()
	r := &rig{host: newHost(t)}
	r.disk = cmp.Or(disk, r.disk)
	r.path = r.region(t, "rig", "64M")
	r.begin(t, loads, more...)
	return r
}

// begin starts everything of a rig that has a region.
func (r *rig) begin(t *testing.T, loads int, more ...string) {
	t.Helper()
	r.target, r.uri = r.host.target(t, r.served())
	r.proxy = newProxy(t, r.uri)
	r.pmnbd, r.nbd, _ = r.initiator(t, "iwarp://"+r.proxy.Addr(), "rig", append([]string{"--lanes", "2"}, more...)...)
	for i := range uint64(loads) {
		r.loads = append(r.loads, newLoad(t, r.nbd, i*loadSize, 1))
	}
}

// served is the region as a flag of serve.
func (r *rig) served() string {
	return strings.Join(append([]string{"rig=" + r.path}, r.parts...), ",part=")
}

// newProxy puts a proxy in front of the target at uri.
func newProxy(t *testing.T, uri string) *crash.Proxy {
	t.Helper()
	p, err := crash.New(strings.TrimPrefix(uri, "iwarp://"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	return p
}

// during runs attack while every load runs. All loads must succeed, also after the attack.
func (r *rig) during(t *testing.T, attack func()) {
	t.Helper()
	for _, l := range r.loads {
		inner := attack
		attack = func() { l.during(t, inner) }
	}
	attack()
}

// serve starts the target again, behind the proxy.
func (r *rig) serve(t *testing.T) {
	t.Helper()
	r.target, r.uri = r.host.target(t, r.served())
	r.proxy.Serve(strings.TrimPrefix(r.uri, "iwarp://"))
}

// roundTrip does a WRITE and a FLUSH on a new connection. When it returns, the target has
// acknowledged a barrier since the call.
func (r *rig) roundTrip(t *testing.T) {
	t.Helper()
	c := dialNBD(t, r.nbd)
	require.NoError(t, c.write(uint64(len(r.loads))*loadSize, []byte("x")))
	require.NoError(t, c.flush())
	c.close()
}

// verify reads everything over a connection that wrote none of it, flushes, and looks into the
// region.
func (r *rig) verify(t *testing.T) {
	t.Helper()
	c := dialNBD(t, r.nbd)
	got := make([]byte, slotSize)
	for i, l := range r.loads {
		for at := 0; at < loadSize; at += slotSize {
			require.NoError(t, c.read(l.base+uint64(at), got))
			require.True(t, bytes.Equal(l.want[at:at+slotSize], got), "what is read of part %d at %d", i, at)
		}
	}
	require.NoError(t, c.flush())
	c.close()
	r.verifyRegion(t)
}

// verifyRegion compares the region after everything has been flushed.
func (r *rig) verifyRegion(t *testing.T) {
	t.Helper()
	for i, l := range r.loads {
		got := r.readParts(t, int64(l.base), loadSize)
		require.True(t, bytes.Equal(l.want, got), "what the region has of part %d", i)
	}
}

// stop ends everything cleanly; nobody may still wait for anything.
func (r *rig) stop(t *testing.T) {
	t.Helper()
	for _, l := range r.loads {
		l.n.close()
	}
	r.pmnbd.stop(t)
	r.target.stop(t)
	s := r.inspect(t, r.path)
	require.True(t, s.Clean)
	require.False(t, s.Doubt)
	r.verifyRegion(t)
}

// patience returns a context for what may take as long as outer.
func patience(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), outer)
	t.Cleanup(cancel)
	return ctx
}

// A pulse is a client that writes and flushes until the test ends, and notes when each reply
// came.
type pulse struct {
	beats chan time.Time // of the newest reply
	stop  chan struct{}
	done  chan struct{} // closed when it has ended, with err
	err   error
}

func (r *rig) pulse(t *testing.T) *pulse {
	t.Helper()
	p := &pulse{beats: make(chan time.Time, 1), stop: make(chan struct{}), done: make(chan struct{})}
	c := dialNBD(t, r.nbd)
	c.endless = true
	require.NoError(t, c.c.Socket().SetDeadline(time.Time{}))
	go func() {
		defer close(p.done)
		for {
			err := c.write(uint64(len(r.loads))*loadSize, []byte("beat"))
			if err == nil {
				err = c.flush()
			}
			if err != nil {
				p.err = err
				return
			}
			select {
			case <-p.beats: // nobody has looked at the previous one
			default:
			}
			select {
			case p.beats <- time.Now():
			case <-p.stop:
				return
			}
		}
	}()
	t.Cleanup(func() {
		close(p.stop)
		_ = c.c.Socket().SetDeadline(time.Unix(1, 0)) // wakes it if it still waits
		<-p.done
	})
	return p
}

// after waits for the first reply after then, and returns how long it took.
func (p *pulse) after(t *testing.T, then time.Time) time.Duration {
	t.Helper()
	giveUp := time.After(outer)
	for {
		select {
		case replied := <-p.beats:
			if replied.After(then) {
				return replied.Sub(then)
			}
		case <-p.done:
			require.NoError(t, p.err, "the pulse")
		case <-giveUp:
			require.FailNow(t, "no reply")
		}
	}
}
