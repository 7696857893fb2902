package attach

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest"
	"golang.org/x/sys/unix"
)

// A kept device is one whose keeper runs in the test.
type kept struct {
	stop  context.CancelFunc
	lines chan string // what it logs
	ended chan error
}

// atMost is how long a test waits for what is to come.
const atMost = 20 * time.Second

func keep(t *testing.T, k *Keeper) *kept {
	require.NoError(t, k.supply(t.Context()))
	ctx, cancel := context.WithCancel(t.Context())
	c := &kept{stop: cancel, lines: make(chan string, 64), ended: make(chan error, 1)}
	log := zaptest.NewLogger(t).WithOptions(zap.Hooks(func(e zapcore.Entry) error { c.lines <- e.Message; return nil }))
	go func() {
		err := k.Keep(ctx, log)
		k.Close()
		c.ended <- err
	}()
	t.Cleanup(cancel)
	return c
}

// line is the next one.
func (c *kept) line(t *testing.T) string {
	t.Helper()
	select {
	case line := <-c.lines:
		return line
	case <-time.After(atMost):
		require.Fail(t, "it says no more")
		return ""
	}
}

// end is what the keeper returns.
func (c *kept) end(t *testing.T) error {
	t.Helper()
	select {
	case err := <-c.ended:
		return err
	case <-time.After(atMost):
		require.Fail(t, "it does not end")
		return nil
	}
}

// until waits for a line.
func (c *kept) until(t *testing.T, line string) {
	t.Helper()
	for c.line(t) != line {
	}
}

// lives waits until the device has n connections. The keeper's line "connections replaced"
// is no sign of that: where several connections end at once, the keeper may have noticed,
// and replaced, only some of them.
func (b *bench) lives(t *testing.T, n int) {
	t.Helper()
	require.Eventually(t, func() bool { return b.live() == n }, atMost, time.Millisecond)
}

func TestKeeper(t *testing.T) {
	b := newBench(t)
	s := b.serve(t)
	c := keep(t, b.keeper(3))
	require.Equal(t, 3, b.live())

	// One alone, as when a request takes too long.
	b.mu.Lock()
	require.NoError(t, unix.Shutdown(b.socks[1], unix.SHUT_RDWR))
	b.mu.Unlock()
	require.Equal(t, "connections replaced", c.line(t))
	require.Equal(t, 3, b.live())

	b.mu.Lock()
	b.unseen = 1
	b.mu.Unlock()
	s.stop(t)
	require.Equal(t, "connections are missing", c.line(t))
	s = b.serve(t)
	b.lives(t, 3)

	was, err := b.detach(t, false)
	require.NoError(t, err)
	require.True(t, was)
	require.NoError(t, c.end(t), "it ends with the device")
	s.stop(t)
}

func TestKeeperStops(t *testing.T) {
	b := newBench(t)
	s := b.serve(t)
	c := keep(t, b.keeper(2))
	c.stop()
	require.NoError(t, c.end(t))
	require.FileExists(t, b.sysfs("pid"), "it stays attached")

	more := b.keeper(3)
	_, err := more.Attach(t.Context())
	more.Close()
	require.ErrorContains(t, err, "use --connections 2")
	c = keep(t, b.keeper(2)) // takes over
	s.stop(t)
	require.Equal(t, "connections are missing", c.line(t))
	lost := session()
	lost.Lineage = uuid.New()
	s = startServing(t, b.dir, &b.place, offer{session: lost})
	require.ErrorIs(t, c.end(t), errNotFollowing)
	s.stop(t)
}

// A keeper whose device was detached while its server was away ends, whoever has the
// device now, and whether or not a server comes.
func TestKeeperEnds(t *testing.T) {
	for _, next := range []string{"nobody", "us", "another command", "somebody else"} {
		t.Run(next, func(t *testing.T) {
			b := newBench(t)
			s := b.serve(t)
			c := keep(t, b.keeper(2))
			s.stop(t)
			require.Equal(t, "connections are missing", c.line(t))
			l, err := b.host().lock(t.Context(), b.dev) // the keeper does not look
			require.NoError(t, err)
			b.mu.Lock()
			b.hangUp(2)
			b.mu.Unlock()
			b.release()
			switch next {
			case "us":
				b.opened = true
				a, err := l.remembered()
				require.NoError(t, err)
				b.fakeKernel.attach(a.Backend)
				a.Detached = true
				require.NoError(t, l.save(a))
			case "another command":
				b.fakeKernel.attach("pmnbd:next")
				require.NoError(t, l.save(&Attachment{Backend: "pmnbd:next", Region: regionID, Lineage: lineage, Connections: 2}))
			case "somebody else":
				b.fakeKernel.attach("them")
			}
			l.unlock()
			require.NoError(t, c.end(t))
			require.Equal(t, "ending", c.line(t))
		})
	}
}

// The device goes on with the connections that there are.
func TestKeeperWithSome(t *testing.T) {
	b := newBench(t)
	s := startServing(t, b.dir, &b.place, offer{session: session(), connections: 3})
	k := b.keeper(4)
	require.Error(t, k.supply(t.Context()), "the kernel takes no more later")
	require.NoFileExists(t, b.sysfs("pid"))
	k.Close()
	s.stop(t)

	s = b.serve(t)
	c := keep(t, b.keeper(4))
	s.stop(t)
	require.Equal(t, "connections are missing", c.line(t))
	s = startServing(t, b.dir, &b.place, offer{session: session(), connections: 3})
	c.until(t, "connections are missing") // for another reason
	b.lives(t, 3)
	s.stop(t)
	s = b.serve(t)
	b.lives(t, 4)
	c.stop()
	require.NoError(t, c.end(t))
	s.stop(t)
}

// What the kernel took before it refused is not offered again.
func TestKeeperRefused(t *testing.T) {
	b := newBench(t)
	s := b.serve(t)
	defer s.stop(t)
	c := keep(t, b.keeper(3))
	b.mu.Lock()
	for _, fd := range b.socks {
		require.NoError(t, unix.Shutdown(fd, unix.SHUT_RDWR))
	}
	b.refuse = true
	b.mu.Unlock()
	c.until(t, "connections replaced")
	b.lives(t, 3)
	c.stop()
	require.NoError(t, c.end(t))
}

// A device that cannot be looked at was not detached.
func TestKeeperUnreadable(t *testing.T) {
	b := newBench(t)
	s := b.serve(t)
	c := keep(t, b.keeper(2))
	unseen := func(do func()) {
		l, err := b.host().lock(t.Context(), b.dev)
		require.NoError(t, err)
		do()
		l.unlock()
	}
	pid := b.sysfs("pid")
	unseen(func() {
		require.NoError(t, os.Rename(pid, pid+".was"))
		require.NoError(t, os.Mkdir(pid, 0o755))
	})
	s.stop(t)
	require.Equal(t, "connections are missing", c.line(t))
	unseen(func() {
		require.NoError(t, os.Remove(pid))
		require.NoError(t, os.Rename(pid+".was", pid))
	})
	s = b.serve(t)
	c.until(t, "connections replaced")
	c.stop()
	require.NoError(t, c.end(t))
	s.stop(t)
}
