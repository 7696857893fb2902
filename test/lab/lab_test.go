package lab_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"pmnbd/test/lab"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestSetup checks that a guest has what its Guest asks for.
func TestSetup(t *testing.T) {
	const domain = "/sys/bus/nd/devices/region0/persistence_domain"
	for _, tt := range []struct {
		name  string
		guest lab.Guest
		has   map[string]string // files, and a part of what they contain
	}{
		{"devices", lab.Guest{Setup: []string{"rxe", "siw", "devdax", "nbd"}, NVDIMM: lab.Memory(t, 64<<20)}, map[string]string{
			"/sys/class/infiniband/rxe0/ports/1/state": "ACTIVE",
			"/sys/class/infiniband/siw0/ports/1/state": "ACTIVE",
			"/sys/block/nbd0/size":                     "0",
			domain:                                     "memory_controller",
		}},
		{"eADR, two nodes", lab.Guest{Setup: []string{"devdax"}, NVDIMM: lab.Memory(t, 64<<20), EADR: true, Nodes: 2}, map[string]string{
			domain: "cpu_cache",
			"/sys/bus/dax/devices/dax0.0/target_node": "1",
		}},
		{"fsdax", lab.Guest{Setup: []string{"fsdax"}, NVDIMM: lab.Memory(t, 640<<20)}, map[string]string{
			"/proc/mounts": "/mnt/pmem ext4 rw,relatime,dax",
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			lab.Run(t, tt.guest, func(t *testing.T) {
				for file, has := range tt.has {
					b, err := os.ReadFile(file)
					require.NoError(t, err)
					require.Contains(t, string(b), has, file)
				}
				if os.Getenv("PMNBD_LAB_GUEST") == "tcg" {
					b, err := os.ReadFile("/proc/cpuinfo")
					require.NoError(t, err)
					require.NotContains(t, string(b), "cx16", "the kernel panics with it now and then: docs/lab.md")
				}
			})
		})
	}
}

// TestHungGuest checks that a guest that takes too long says what its kernel was doing.
func TestHungGuest(t *testing.T) {
	lab.Need(t)
	if lab.Inside() {
		t.Skip("boots guests")
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	m, err := lab.Boot(ctx, lab.Guest{Command: []string{"sleep", "1000"}})
	require.NoError(t, err)
	defer m.Close()
	cancel()
	_, err = m.Wait()
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorContains(t, err, "Kernel panic")
	require.ErrorContains(t, err, "Call Trace")
}

// TestGuestThatDoesNotComeUp checks that Boot tells of a guest that hangs on its way up, and does not
// wait for ever.
func TestGuestThatDoesNotComeUp(t *testing.T) {
	lab.Need(t)
	if lab.Inside() {
		t.Skip("boots guests")
	}
	hang := filepath.Join(t.TempDir(), "hang")
	require.NoError(t, os.WriteFile(hang, []byte("#!/bin/sh\nexec sleep 1000\n"), 0o755))
	_, err := lab.BootWithin(t.Context(), lab.Guest{Setup: []string{hang}, Command: []string{"true"}}, 20*time.Second)
	require.ErrorIs(t, err, lab.ErrNotUp)
	require.ErrorContains(t, err, "its console")
}
