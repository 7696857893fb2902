package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/internal/testhost"
)

// TestCompare compares a region of class volatile, one of class file and a directory. The report says
// which is which, in the words that pmnbd tells its clients, and warns of the first.
func TestCompare(t *testing.T) {
	need(t, peer{"wipefs", "util-linux"})
	t.Parallel()
	h := newHost(t)
	memory := testhost.Memory(t)
	quick := filepath.Join(memory, "quick")
	h.run(t, "pmnbd-target", "region", "create", "quick", quick, "--size", "8M")
	target := start(t, h.home, "pmnbd-target", "serve", "--listen", "iwarp://127.0.0.1:0", "--allow-volatile",
		"--region", "quick="+quick, "--region", "safe="+h.region(t, "safe", "8M"))
	uri := target.waitReady(t)[0]
	_, quickURI, _ := h.initiator(t, uri, "quick", "--allow-volatile")
	_, _, safeURI := h.initiator(t, uri, "safe")

	local, page, raw := t.TempDir(), filepath.Join(h.home, "page.html"), filepath.Join(h.home, "raw.json")
	text := h.run(t, "pmnbd-bench", "compare", "--time", "40ms", "--rounds", "2", "--connections", "2",
		"--html", page, "--json", raw, "quick="+quickURI, "safe="+safeURI, "local="+local)
	require.Regexp(t, `(?m)^With 16 writers, quick completes \S+ fsyncs a second, safe \S+ \(.+\) and local \S+ \(.+\)\.$`, text)
	require.Contains(t, text, "does not survive a power loss on quick")
	require.NoFileExists(t, filepath.Join(local, "*"))

	var r struct {
		Subjects []struct{ Kind string }
		Cells    []struct{ Commits int }
		Warnings []struct{ Code, Subject string }
	}
	b, err := os.ReadFile(raw)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(b, &r))
	require.Equal(t, "NBD export, class volatile", r.Subjects[0].Kind)
	require.Equal(t, "NBD export, class file", r.Subjects[1].Kind)
	require.Contains(t, r.Warnings, struct{ Code, Subject string }{"volatile", "quick"})
	require.NotContains(t, r.Warnings, struct{ Code, Subject string }{"volatile", "safe"})
	require.Len(t, r.Cells, 21)
	for _, c := range r.Cells {
		require.Positive(t, c.Commits)
	}
	dom := browse(t, "file://"+page, "compare")
	require.Contains(t, dom, "<title>What does an fsync cost?</title>")
	require.Contains(t, dom, `aria-label="Throughput over writers"`)
}
