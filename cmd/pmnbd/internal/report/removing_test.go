package report

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"pmnbd/backend/remote"
	"pmnbd/cmd/internal/status"
)

// An export that a reload removes is shown until it is flushed, with what that waits for.
func TestRemoving(t *testing.T) {
	h := sample().Header
	for name, c := range map[string]struct {
		state     remote.State
		cause     string
		unflushed uint64
		level     status.Level
		text      string
		says      []string
	}{
		"flushes":  {remote.StateOpen, "", 49152, status.Serving, "export two: REMOVED by a reload, 48K not flushed yet\n", []string{"nobody can use it", "48K not flushed yet"}},
		"closes":   {remote.StateOpen, "", 0, status.Serving, "export two: REMOVED by a reload, all is flushed, and its region is being closed\n", []string{"all is flushed"}},
		"waits":    {remote.StateWaiting, "connection lost", 4096, status.Waiting, "4K not flushed yet; WAITING for the target: connection lost\n", []string{"4K not flushed yet: connection lost", "Start pmnbd-target there (10.0.0.2:7204)", "--drain-timeout"}},
		"has died": {remote.StateFailed, "the disk is gone", 4096, status.Failed, "FAILED: the disk is gone\n", []string{"the disk is gone", "docs/durability.md"}},
	} {
		r := Removing{Name: "two", Since: time.Unix(2000, 0), Device: sampleExport("two").Device}
		r.Device.State, r.Device.Cause, r.Device.Window.Unflushed = c.state, c.cause, c.unflushed
		text := r.Text(&h, time.Unix(2005, 0))
		require.Contains(t, text, c.text, name)
		require.Contains(t, text, "  process  4242\n  removed  for 5s\n  region   two at 10.0.0.2:7204\n", name)
		d := Document{Exports: []Export{sampleExport("one")}, Removing: []Removing{r}}
		d.Exports[0].Device.State = remote.StateOpen
		require.Equal(t, c.level, d.Health().Level(), name)
		for _, s := range append(c.says, "export two: "+c.level.String()+" since "+time.Unix(2000, 0).Format(time.RFC3339)+": ") {
			require.Contains(t, d.Health().Text(), s, name)
		}
		watched := Watched{d, time.Unix(2005, 0)}
		require.Contains(t, watched.Since(&Watched{}), "export two: "+c.level.String(), name)
	}
}
