package version

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestString(t *testing.T) {
	line := String("prog")
	require.Regexp(t, `^prog \S+, protocol \d+, tags \S+, go`, line)
	require.Contains(t, line, runtime.GOARCH+"\n")
}
