package flags

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCount(t *testing.T) {
	for want, n := range map[string]int{"0 exports": 0, "1 export": 1, "2 exports": 2, "-1 exports": -1} {
		require.Equal(t, want, Count(n, "export"))
	}
	require.Equal(t, "1 chunk", Count(uint64(1), "chunk"))
}
