package main

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

	"pmnbd/nbd/kernel"
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
	// opened: somebody else has the device open, which stays after a disconnect.
	opened bool
}

// The numbers of include/uapi/linux/nbd-netlink.h.
const (
	nbdConnect, nbdDisconnect, nbdReconfigure    = 1, 2, 3
	nbdIndex, nbdTimeout, nbdSockets, nbdBackend = 1, 4, 7, 10
)

func newKernel(t *testing.T) *fakeKernel {
	k := &fakeKernel{t: t, root: t.TempDir()}
	for path, content := range map[string]string{"dev/nbd0": "", "sys/block/nbd0/queue/max_sectors_kb": "1280\n"} {
		path = filepath.Join(k.root, path)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(content), 0o644))
	}
	t.Cleanup(func() { k.hangUp(len(k.socks)) })
	return k
}

func (k *fakeKernel) host() *host {
	return &host{root: k.root, run: filepath.Join(k.root, "run"), client: func() (*kernel.Client, error) {
		family := genetlink.Family{ID: 0x23, Version: 1, Name: "nbd"}
		return kernel.New(genltest.Dial(genltest.ServeFamily(family, k.serve)))
	}}
}

func (k *fakeKernel) sysfs(name string) string { return filepath.Join(k.root, "sys/block/nbd0", name) }

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
		k.take(fds, len(fds))
		k.attach(backend)
	case m.Header.Command == nbdReconfigure:
		if !attached || k.backend != backend {
			return nil, genltest.Error(int(unix.EINVAL))
		}
		if k.unseen > 0 {
			k.unseen--
			break
		}
		gone := 0
		for _, fd := range k.socks {
			if dead(fd) {
				gone++
			}
		}
		k.take(fds, gone)
	case m.Header.Command == nbdDisconnect:
		k.hangUp(len(k.socks))
		if !k.opened {
			k.release()
		}
	default:
		return nil, fmt.Errorf("command %d", m.Header.Command)
	}
	return []genetlink.Message{{}}, nil
}

// take puts at most n of fds into the places of sockets that are gone.
func (k *fakeKernel) take(fds []int, n int) {
	var live []int
	for _, fd := range k.socks {
		if !dead(fd) {
			live = append(live, fd)
			continue
		}
		require.NoError(k.t, unix.Close(fd))
	}
	for _, fd := range fds[:min(n, len(fds))] {
		own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		require.NoError(k.t, err)
		tv := unix.NsecToTimeval(int64(k.timeout) * 1e9)
		require.NoError(k.t, unix.SetsockoptTimeval(own, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &tv))
		live = append(live, own)
	}
	k.socks = live
}
