package release

import (
	"os"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// The newest release in CHANGELOG.md is the one that the programs say they are.
func TestChangelog(t *testing.T) {
	b, err := os.ReadFile("../../CHANGELOG.md")
	require.NoError(t, err)
	newest := regexp.MustCompile(`(?m)^## \[(\d.*?)\] - \d{4}-\d\d-\d\d$`).FindSubmatch(b)
	require.NotNil(t, newest, "no release in CHANGELOG.md")
	require.Equal(t, Version, string(newest[1]))
	require.Regexp(t, `^\d+\.\d+\.\d+$`, Version)
}
