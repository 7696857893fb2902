//go:build !verbs || !cgo

package verbs

import (
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/rdma"
)

func TestWithoutTheTag(t *testing.T) {
	require.False(t, Built)
	_, err := New(Config{})
	require.ErrorIs(t, err, rdma.ErrNotSupported)
	require.ErrorContains(t, err, "libibverbs-dev")
}
