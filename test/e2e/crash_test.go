package e2e

import (
	"encoding/json"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// lossTimeout is for an initiator whose target does not come back.
const lossTimeout = "200ms"

// newNoise returns an endless stream of bytes, the same each time.
func newNoise() io.Reader { return rand.NewChaCha8([32]byte{'p', 'm', 'n', 'b', 'd'}) }

func noise(t *testing.T, n int) []byte {
	t.Helper()
	b := make([]byte, n)
	_, err := io.ReadFull(newNoise(), b)
	require.NoError(t, err)
	return b
}

// superblock is what `region inspect --json` says about a region's health.
type superblock struct {
	Epoch  uint64 `json:"epoch"`
	Clean  bool   `json:"clean"`
	Doubt  bool   `json:"doubt"`
	Failed bool   `json:"failed"`
}

func (h host) inspect(t *testing.T, path string) superblock {
	t.Helper()
	var s superblock
	require.NoError(t, json.Unmarshal([]byte(h.run(t, "pmnbd-target", "region", "inspect", path, "--json")), &s))
	return s
}

func TestFlushedDataSurvivesKill(t *testing.T) {
	t.Parallel()
	const size = 1 << 20
	h := newHost(t)
	path := h.region(t, "kill", "16M")
	data := noise(t, size)

	target, uri := h.target(t, "kill="+path)
	pmnbd, unix, _ := h.initiator(t, uri, "kill")
	c := dialNBD(t, unix)
	require.NoError(t, c.write(4096, data))
	require.NoError(t, c.flush())
	require.NoError(t, c.write(8<<20, data)) // no FLUSH covers it
	target.kill(t)
	pmnbd.kill(t)
	require.False(t, h.inspect(t, path).Clean)

	_, uri = h.target(t, "kill="+path)
	pmnbd, unix, _ = h.initiator(t, uri, "kill")
	c = dialNBD(t, unix)
	got := make([]byte, size)
	require.NoError(t, c.read(4096, got))
	require.Equal(t, data, got)
	// The previous owner did not close, so somebody may have read bytes before they were
	// durable. A FLUSH waits until they are.
	require.NoError(t, c.flush())
	c.close()
	pmnbd.stop(t)
	require.True(t, h.inspect(t, path).Clean)
}

func TestTermDrains(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	path := h.region(t, "drain", "16M")
	data := noise(t, 3<<20)

	target, uri := h.target(t, "drain="+path)
	pmnbd, unix, _ := h.initiator(t, uri, "drain")
	c := dialNBD(t, unix)
	require.NoError(t, c.write(0, data)) // and no FLUSH after it
	pmnbd.stop(t)
	socket := filepath.Join(h.home, "drain.sock")
	require.NoFileExists(t, socket)
	target.stop(t)

	s := h.inspect(t, path)
	require.True(t, s.Clean)
	require.False(t, s.Failed)
	f, err := os.Open(path)
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	got := make([]byte, len(data))
	_, err = f.ReadAt(got, dataOffset)
	require.NoError(t, err)
	require.Equal(t, data, got)
}

// TestTargetKilledInABarrier kills a target in the middle of a barrier and does not start it
// again. It stops the target first, so the FLUSH cannot have completed.
func TestTargetKilledInABarrier(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	path := h.region(t, "mid", "16M")
	target, uri := h.target(t, "mid="+path)
	_, unix, _ := h.initiator(t, uri, "mid", "--loss-timeout", lossTimeout)
	c := dialNBD(t, unix)
	data := noise(t, 64<<10)
	require.NoError(t, c.write(0, data))
	require.NoError(t, c.flush())

	target.signal(t, syscall.SIGSTOP)
	require.NoError(t, c.write(0, data), "a WRITE needs only the window")
	c.c.Flush(0)
	require.NoError(t, c.c.Send())
	target.kill(t)
	require.ErrorIs(t, c.reply(), syscall.EIO, "the FLUSH")
	require.ErrorIs(t, c.flush(), syscall.EIO, "a FLUSH afterwards")
	require.ErrorIs(t, c.write(0, data), syscall.EIO, "a WRITE afterwards")
}
