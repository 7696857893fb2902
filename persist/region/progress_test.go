package region

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/persist"
)

// Whoever waits for a region to be made or cleared hears of each step, from its beginning, and never
// of more than there is.
func TestProgress(t *testing.T) {
	for name, c := range map[string]struct {
		on     host
		create []string
		clear  []string
	}{
		"file":     {fileHost, []string{"allocate", "sync"}, []string{"rewrite", "sync"}},
		"volatile": {volatileHost, []string{"allocate", "sync"}, []string{"read", "write back"}},
		"pmem":     {hostOf(persist.ClassPMem, bootA), []string{"allocate", "write zeroes", "sync"}, []string{"read", "write back"}},
	} {
		t.Run(name, func(t *testing.T) {
			var steps []string
			listen := func(step string, done, total uint64) {
				if !slices.Contains(steps, step) {
					require.Zero(t, done, step)
					steps = append(steps, step)
				}
				require.LessOrEqual(t, done, total)
			}
			path := filepath.Join(t.TempDir(), "r")
			_, err := create(path, CreateOptions{Name: "r", Size: testSize, Progress: listen}, c.on)
			require.NoError(t, err)
			require.Equal(t, c.create, steps)
			steps = nil
			require.NoError(t, clearRegion(path, "x", c.on, listen))
			require.Equal(t, c.clear, steps)
		})
	}
}
