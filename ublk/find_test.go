package ublk

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pmnbd/internal/devicetest"
)

func (k *fakeKernel) numbers() (all []int, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for id := range k.devices {
		all = append(all, int(id))
	}
	return all, nil
}

// A refusing kernel has one more device, about which it answers with an error.
type refusing struct {
	*fakeKernel
	id  uint32
	err error
}

func (k refusing) numbers() ([]int, error) {
	all, err := k.fakeKernel.numbers()
	return append(all, int(k.id)), err
}

func (k refusing) command(op uint32, id uint32, data uint64, buf []byte) error {
	if id == k.id {
		return k.err
	}
	return k.fakeKernel.command(op, id, data, buf)
}

// TestFind: Find names all block devices with an identity of which the kernel may hold requests, with a server or
// without. It fails if the kernel does not tell the identity of one that may be such a device.
func TestFind(t *testing.T) {
	k, dev := newKernel(), devicetest.NewMem(t, 1<<20)
	found := func() []int {
		t.Helper()
		found, err := find(k, identity)
		require.NoError(t, err)
		return found
	}
	require.Empty(t, found())
	numbered := func(n int) func(*Config) { return func(cfg *Config) { cfg.Number = n } }
	left := serveOn(t, k, dev, numbered(3))
	shutDown(t, left) // quiesced: the kernel keeps its requests for the next server
	served := serveOn(t, k, dev, numbered(1))
	other := serveOn(t, k, dev, numbered(0), func(cfg *Config) { cfg.Identity++ })
	require.Equal(t, []int{1, 3}, found())

	for id, err := range map[uint32]error{2: unix.ENODEV, 4: unix.EINVAL, 5: unix.EPERM} {
		found, failed := find(refusing{k, id, err}, identity)
		if id == 5 {
			require.ErrorIs(t, failed, err, "it may be one of them")
			continue
		}
		require.NoError(t, failed)
		require.Equal(t, []int{1, 3}, found)
	}

	require.NoError(t, orderOf(k, cmdStop, "stop", 3, identity))
	require.Equal(t, []int{1}, found(), "a stopped device has no requests")
	shutDown(t, served)
	shutDown(t, other)
}

// TestNumbersInClass: the numbers are those of the driver's class. A class that cannot be read does not count as one
// without devices.
func TestNumbersInClass(t *testing.T) {
	class := t.TempDir()
	numbers, err := numbersIn(class)
	require.NoError(t, err)
	require.Empty(t, numbers)
	for _, name := range []string{"ublkc0", "ublkc12"} {
		require.NoError(t, os.Mkdir(filepath.Join(class, name), 0o700))
	}
	numbers, err = numbersIn(class)
	require.NoError(t, err)
	require.Equal(t, []int{0, 12}, numbers)
	require.NoError(t, os.Mkdir(filepath.Join(class, "ublkcx"), 0o700))
	_, err = numbersIn(class)
	require.ErrorContains(t, err, "ublkcx is no ublk device")
	_, err = numbersIn(filepath.Join(class, "none"))
	require.ErrorIs(t, err, os.ErrNotExist)
	require.ErrorContains(t, err, "mount it")
}
