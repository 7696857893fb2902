package ublk

import (
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/backend"
	"pmnbd/backend/mem"
)

// A shaped device says other things of itself.
type shaped struct {
	*mem.Device
	change func(*backend.Info)
}

func (d shaped) Info() backend.Info {
	in := d.Device.Info()
	d.change(&in)
	return in
}

// identity is that of the block devices in these tests.
const identity = 7

// serveOn serves dev on k, as block device 0.
func serveOn(t *testing.T, k *fakeKernel, dev backend.Device, change ...func(*Config)) *Device {
	t.Helper()
	cfg := Config{Device: dev, Identity: identity, host: k.host()}
	for _, c := range change {
		c(&cfg)
	}
	d, err := Open(t.Context(), cfg)
	require.NoError(t, err)
	return d
}

func continued(cfg *Config) { cfg.Recover = true }

// shutDown ends d in order.
func shutDown(t *testing.T, d *Device) {
	t.Helper()
	require.NoError(t, d.Shutdown(t.Context()))
	require.NoError(t, d.Err())
}
