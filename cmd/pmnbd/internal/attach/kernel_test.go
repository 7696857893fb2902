package attach

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/mdlayher/genetlink"
	"github.com/mdlayher/genetlink/genltest"
	"github.com/mdlayher/netlink"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pmnbd/cmd/pmnbd/internal/kernel"
)

// A fakeKernel is the kernel's nbd client with one device, as far as it can be seen
// from outside: messages, sysfs, and what happens to sockets.
type fakeKernel struct {
	t    *testing.T
	root string

	mu      sync.Mutex // held while a message is served
	backend string
	timeout uint64
	socks   []int
	// unseen is how many RECONFIGUREs come before the kernel sees that sockets ended.
	unseen int
	// refuse makes the next RECONFIGURE fail after the first socket.
	refuse bool
	// taken are the cookies of all sockets that it ever took. One that is offered again
	// would be in two places.
	taken map[uint64]bool
	// disconnecting, if any, is called in the middle of a DISCONNECT.
	disconnecting func()
	// denied makes it refuse DISCONNECT.
	denied bool
	// opened: somebody else has the device open, which stays after a disconnect.
	opened bool
}

// The numbers of include/uapi/linux/nbd-netlink.h.
const (
	nbdConnect, nbdDisconnect, nbdReconfigure    = 1, 2, 3
	nbdIndex, nbdTimeout, nbdSockets, nbdBackend = 1, 4, 7, 10
)

func newKernel(t *testing.T) *fakeKernel {
	k := &fakeKernel{t: t, root: t.TempDir(), taken: make(map[uint64]bool)}
	for path, content := range map[string]string{"dev/nbd0": "", "sys/block/nbd0/queue/max_sectors_kb": "1280\n"} {
		path = filepath.Join(k.root, path)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(content), 0o644))
	}
	t.Cleanup(func() { k.hangUp(len(k.socks)) })
	return k
}

func (k *fakeKernel) host() *host {
	return &host{run: filepath.Join(k.root, "run"), client: func() (*kernel.Client, error) {
		family := genetlink.Family{ID: 0x23, Version: 1, Name: "nbd"}
		return kernel.New(genltest.Dial(genltest.ServeFamily(family, k.serve)))
	}}
}

func (k *fakeKernel) sysfs(name string) string { return filepath.Join(k.root, "sys/block/nbd0", name) }

// read is a sysfs attribute.
func (k *fakeKernel) read(name string) string {
	b, err := os.ReadFile(k.sysfs(name))
	require.NoError(k.t, err)
	return string(b)
}

// live is how many connections the device has.
func (k *fakeKernel) live() (n int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, fd := range k.socks {
		if !dead(fd) {
			n++
		}
	}
	return n
}

// attach shows a device that belongs to backend.
func (k *fakeKernel) attach(backend string) {
	k.backend = backend
	require.NoError(k.t, os.WriteFile(k.sysfs("pid"), []byte("77\n"), 0o644))
	require.NoError(k.t, os.WriteFile(k.sysfs("backend"), []byte(backend+"\n"), 0o644))
}

func (k *fakeKernel) release() {
	require.NoError(k.t, os.Remove(k.sysfs("pid")))
	require.NoError(k.t, os.Remove(k.sysfs("backend")))
}

// hangUp ends n sockets, as when requests take too long.
func (k *fakeKernel) hangUp(n int) {
	for _, fd := range k.socks[:n] {
		_ = unix.Shutdown(fd, unix.SHUT_RDWR) // or the server was faster
		require.NoError(k.t, unix.Close(fd))
	}
	k.socks = k.socks[n:]
}

// dead tells whether the other end of fd is gone.
func dead(fd int) bool {
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
	n, err := unix.Poll(p, 0)
	return err != nil || n > 0
}

func (k *fakeKernel) serve(m genetlink.Message, _ netlink.Message) ([]genetlink.Message, error) {
	d, err := netlink.NewAttributeDecoder(m.Data)
	require.NoError(k.t, err)
	var backend string
	var timeout uint64
	var fds []int
	for d.Next() {
		switch d.Type() {
		case nbdIndex:
			require.Zero(k.t, d.Uint32())
		case nbdTimeout:
			timeout = d.Uint64()
		case nbdBackend:
			backend = d.String()
		case nbdSockets:
			d.Nested(func(d *netlink.AttributeDecoder) error {
				for d.Next() {
					d.Nested(func(d *netlink.AttributeDecoder) error {
						for d.Next() {
							fds = append(fds, int(d.Uint32()))
						}
						return nil
					})
				}
				return nil
			})
		}
	}
	require.NoError(k.t, d.Err())
	k.mu.Lock()
	defer k.mu.Unlock()
	_, err = os.Stat(k.sysfs("pid"))
	attached := err == nil
	switch {
	case m.Header.Command == nbdConnect && attached:
		return nil, genltest.Error(int(unix.EBUSY))
	case m.Header.Command == nbdConnect:
		k.timeout = timeout
		for _, fd := range fds {
			k.socks = append(k.socks, k.own(fd))
		}
		k.attach(backend)
	case m.Header.Command == nbdReconfigure:
		if !attached || k.backend != backend {
			return nil, genltest.Error(int(unix.EINVAL))
		}
		for _, fd := range fds {
			if k.taken[k.cookie(fd)] {
				k.t.Errorf("a socket is offered that was taken")
			}
		}
		if k.unseen > 0 {
			k.unseen--
			break
		}
		if k.refuse {
			k.refuse = false
			k.replace(fds[:1])
			return nil, genltest.Error(int(unix.EINVAL))
		}
		k.replace(fds)
	case m.Header.Command == nbdDisconnect && k.denied:
		return nil, genltest.Error(int(unix.EPERM))
	case m.Header.Command == nbdDisconnect:
		if k.disconnecting != nil {
			k.disconnecting()
		}
		k.hangUp(len(k.socks))
		if !k.opened {
			k.release()
		}
	default:
		return nil, fmt.Errorf("command %d", m.Header.Command)
	}
	return []genetlink.Message{{}}, nil
}

// cookie is a socket's identity.
func (k *fakeKernel) cookie(fd int) uint64 {
	c, err := unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_COOKIE)
	require.NoError(k.t, err)
	return c
}

// own is a socket of the kernel's own.
func (k *fakeKernel) own(fd int) int {
	k.taken[k.cookie(fd)] = true
	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	require.NoError(k.t, err)
	tv := unix.NsecToTimeval(int64(k.timeout) * 1e9)
	require.NoError(k.t, unix.SetsockoptTimeval(own, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &tv))
	return own
}

// replace puts fds into the places of sockets that are gone, as far as there are any.
func (k *fakeKernel) replace(fds []int) {
	for i, fd := range k.socks {
		if len(fds) > 0 && dead(fd) {
			require.NoError(k.t, unix.Close(fd))
			k.socks[i], fds = k.own(fds[0]), fds[1:]
		}
	}
}
