package report

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"pmnbd/backend/remote"
	"pmnbd/cmd/internal/status"
)

// Whoever asks learns since when, why, and what to do.
func TestHealth(t *testing.T) {
	since := time.Unix(2000, 0)
	for name, c := range map[string]struct {
		change func(d *remote.Snapshot)
		level  status.Level
		says   []string
	}{
		"open":      {func(*remote.Snapshot) {}, status.Serving, []string{"export log: serving since " + time.Unix(1500, 0).Format(time.RFC3339) + "\n"}},
		"slow sync": {func(d *remote.Snapshot) { d.Barriers.AtTarget = 61 }, status.Serving, []string{"the target has been syncing for 61 s", "disk of the target"}},
		"degraded":  {func(d *remote.Snapshot) { d.Mirror = sampleMirror() }, status.Serving, []string{"1 of 3 copies", "pmnbd mirror status"}},
		"waiting": {func(d *remote.Snapshot) {
			d.State, d.WaitingSince, d.Cause = remote.StateWaiting, &since, "connection lost"
		}, status.Waiting, []string{"since " + since.Format(time.RFC3339), "connection lost", "Start pmnbd-target there (10.0.0.2:7204)", "Nothing is lost"}},
		"failed": {func(d *remote.Snapshot) { d.State, d.Cause = remote.StateFailed, "the disk is gone" }, status.Failed, []string{"the disk is gone", "start pmnbd again", "docs/durability.md"}},
		"taken":  {func(d *remote.Snapshot) { d.State, d.Taken = remote.StateFailed, true }, status.Failed, []string{"--accept-loss", "--takeover"}},
		"ending": {func(d *remote.Snapshot) { d.State = remote.StateClosed }, status.Waiting, []string{"ending"}},
	} {
		e := sampleExport("log")
		e.Device.State, e.Device.Since = remote.StateOpen, time.Unix(1500, 0)
		c.change(&e.Device)
		h := Document{Exports: []Export{e}}.Health()
		require.Equal(t, c.level, h.Level(), name)
		for _, s := range c.says {
			require.Contains(t, h.Text(), s, name)
		}
	}
	h := Document{Starting: []Starting{{Name: "log", Waits: "waits for B"}}}.Health()
	require.Equal(t, status.Waiting, h.Level())
	require.Contains(t, h.Text(), "export log: waiting: it is starting: waits for B. ")
	h = Document{Starting: []Starting{{Name: "log", Standby: true, Waits: "standby: pm1 is active"}}}.Health()
	require.Equal(t, status.Serving, h.Level())
	require.Contains(t, h.Text(), "standby: pm1 is active")
}
