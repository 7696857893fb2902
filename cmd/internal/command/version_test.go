package command

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/internal/release"
)

func TestVersion(t *testing.T) {
	line := (&Command{Name: "prog", Formats: "window file 7"}).version()
	require.Regexp(t, `^prog \d+\.\d+\.\d+, revision \S+, protocol \d+, window file 7, tags \S+, go`, line)
	require.Contains(t, line, " "+release.Version+", ")
	require.Contains(t, line, runtime.GOARCH+"\n")
	require.NotContains(t, (&Command{Name: "prog"}).version(), "file")
}
