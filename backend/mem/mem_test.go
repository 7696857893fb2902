package mem_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"pmnbd/backend"
	"pmnbd/backend/backendtest"
	"pmnbd/backend/mem"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) {
	backendtest.Run(t, func(t *testing.T) backend.Device {
		d, err := mem.New(8 << 20)
		require.NoError(t, err)
		return d
	})
}

func TestSizes(t *testing.T) {
	for _, size := range []uint64{0, 1 << 63, 1<<64 - 1} {
		_, err := mem.New(size)
		require.ErrorIs(t, err, backend.ErrInvalid)
	}
	d, err := mem.New(1)
	require.NoError(t, err)
	require.EqualValues(t, 1, d.Info().Size)
	require.NoError(t, d.Close())
	require.NoError(t, d.Close())
}
