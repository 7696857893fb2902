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

// TestGoNBDClient attaches an export with go-nbd's client, after a relay has corrected the
// length of its GO. The client passes none of the export's flags to the kernel. So an fsync
// never becomes a FLUSH, and this test shows all that the client is good for.
func TestGoNBDClient(t *testing.T) {
	const role = "PMNBD_TEST_GONBD"
	if os.Getenv(role) != "" {
		beGoNBD(t)
		return
	}
	carried(t, 128<<20, func(t *testing.T, _ string) {
		// It runs in a process of its own: a signal, SIGCHLD for example, would interrupt the
		// ioctl in which the client stays, and the device would go away.
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

// beGoNBD attaches /dev/nbd0 with go-nbd's client, prints a line, and detaches it at the end of
// its standard input.
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

// relayGoNBD copies bytes between from, which is go-nbd's client, and to, until either end
// closes. The client's GO (v0.3.2) says that its data have length 0; the relay writes the true
// length.
func relayGoNBD(from, to net.Conn) {
	const (
		flags = 4                     // the client's
		data  = 4 + len("disk") + 2   // of GO: the export's name and an empty list of infos
		size  = wire.OptionHeaderSize // a GO header ends with the length of its data
	)
	var both sync.WaitGroup
	both.Go(func() {
		_, _ = io.Copy(from, to) // an error shows at the device
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
