package command

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestVersion(t *testing.T) {
	line := version("prog")
	require.Regexp(t, `^prog \S+, protocol \d+, tags \S+, go`, line)
	require.Contains(t, line, runtime.GOARCH+"\n")
}
