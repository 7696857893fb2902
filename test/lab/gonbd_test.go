package lab_test

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"sync"
	"testing"

	"github.com/pojntfx/go-nbd/pkg/client"
	"github.com/stretchr/testify/require"

	"pmnbd/nbd/wire"
)

// go-nbd's client makes a block device of an export, when the length of its GO is put
// right on the way. It tells the kernel none of the export's flags, so that a sync never
// becomes a FLUSH: what it is good for ends there.
func TestGoNBDClient(t *testing.T) {
	const role = "PMNBD_TEST_GONBD"
	if os.Getenv(role) != "" {
		beGoNBD(t)
		return
	}
	carried(t, 128<<20, func(t *testing.T, _ string) {
		// A process of its own: a signal, as that of a child's end, would interrupt the
		// ioctl in which the client stays, and with it the device.
		attached := exec.Command(os.Args[0], "-test.run=^TestGoNBDClient$")
		attached.Env = append(os.Environ(), role+"=1", "GODEBUG=asyncpreemptoff=1")
		attached.Stderr = os.Stdout
		stop, err := attached.StdinPipe()
		require.NoError(t, err)
		said, err := attached.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, attached.Start())
		var line string
		_, err = fmt.Fscanln(said, &line)
		require.NoError(t, err)
		require.Equal(t, "attached", line)
		sh(t, `mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0 /dev/nbd0
			`+mount+extend+umount+mount+extended+umount+`
			fsck.ext4 -fn /dev/nbd0
			grep -qx 'write through' /sys/block/nbd0/queue/write_cache
			pmnbd status --json | jq -e '.[].exports[].commands | .WRITE.requests > 0 and .FLUSH.requests == 0'`)
		require.NoError(t, stop.Close())
		_, err = io.Copy(os.Stdout, said)
		require.NoError(t, err)
		require.NoError(t, attached.Wait())
		sh(t, attach+mount+extended+umount+"nbd-client -d /dev/nbd0")
	})
}

// beGoNBD attaches /dev/nbd0 by go-nbd's client, says so, and detaches it when its
// standard input ends.
func beGoNBD(t *testing.T) {
	f, err := os.OpenFile("/dev/nbd0", os.O_RDWR, 0)
	require.NoError(t, err)
	l, err := net.Listen("unix", "/run/gonbd.sock")
	require.NoError(t, err)
	conn, err := net.Dial("unix", "/run/gonbd.sock")
	require.NoError(t, err)
	from, err := l.Accept()
	require.NoError(t, err)
	require.NoError(t, l.Close())
	to, err := net.Dial("unix", socket)
	require.NoError(t, err)
	relayed := make(chan struct{})
	go func() {
		relayGoNBD(from, to)
		close(relayed)
	}()

	connected, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- client.Connect(conn, f, &client.Options{ExportName: "disk", OnConnected: func() { close(connected) }})
	}()
	select {
	case <-connected:
	case err := <-ended:
		require.FailNow(t, "not attached", "%v", err)
	}
	fmt.Println("attached")
	_, err = io.Copy(io.Discard, os.Stdin)
	require.NoError(t, err)
	require.NoError(t, client.Disconnect(f))
	require.NoError(t, <-ended)
	require.NoError(t, conn.Close())
	<-relayed
	require.NoError(t, f.Close())
}

// relayGoNBD passes on what from, go-nbd's client, and to say to each other, until either
// ends. Its GO (v0.3.2) has a length of 0 and its data behind it; here it gets theirs.
func relayGoNBD(from, to net.Conn) {
	const (
		flags = 4                     // the client's
		data  = 4 + len("disk") + 2   // of GO: the export's name, and no infos asked for
		size  = wire.OptionHeaderSize // GO's header ends with the length of its data
	)
	var both sync.WaitGroup
	both.Go(func() {
		_, _ = io.Copy(from, to) // how it ends shows at the device
		_ = from.Close()
	})
	both.Go(func() {
		var start [flags + size + data]byte
		if _, err := io.ReadFull(from, start[:]); err == nil {
			binary.BigEndian.PutUint32(start[flags+size-4:], uint32(data))
			if _, err := to.Write(start[:]); err == nil {
				_, _ = io.Copy(to, from)
			}
		}
		_ = to.Close()
	})
	both.Wait()
}
