package main

import (
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap/zaptest"

	"pmnbd/cmd/internal/status"
	"pmnbd/persist/region"
	"pmnbd/persist/target"
)

// protectedSample is a target with a region of class protected, on battery.
func protectedSample() report {
	left, at := 90.0, time.Unix(900, 0).UTC()
	return report{
		Header:  status.Header{Program: program, PID: 4242, Started: time.Unix(1000, 0)},
		Listen:  []string{"iwarp://127.0.0.1:7204"},
		Battery: &target.BatterySnapshot{OnBattery: true, Runtime: &left},
		Regions: []target.RegionSnapshot{{
			Name: "a", Path: "/dev/shm/a", Class: "protected", Size: 4 << 30, Epoch: 1, Clean: true,
			Protection: &target.ProtectionSnapshot{
				Image: "/saved/a.save", SavedAt: &at, Dirty: 3 << 30, Speed: 1 << 30, Expected: 3, Within: 120,
			},
		}},
	}
}

func TestProtectionText(t *testing.T) {
	r := protectedSample()
	require.Equal(t, `process 4242, for 1m1s, at iwarp://127.0.0.1:7204
battery: ON BATTERY, lasts 1m30s
region a: free, closed cleanly
  path      /dev/shm/a, 4G, class protected
  session   epoch 1, no owner
  image     /saved/a.save, live: a power failure without a save loses the region
  saved     1970-01-01T00:15:00Z
  save      would write 3G at 1073 MB/s, 3s; may take 2m0s
  barriers  0, with 0 fdatasyncs
`, r.text(time.Unix(1061, 0)))
	p := r.Regions[0].Protection
	p.Losses, p.LostAt, p.Lost, p.Refuses = 2, p.SavedAt, "the image is not whole", "the disk is read-only"
	p.Saving, p.Speed = &target.SavingSnapshot{Written: 1 << 30, Of: 3 << 30, Left: 2}, 0
	text := r.text(time.Unix(1061, 0))
	require.Contains(t, text, "  LOST      2 times, the last time at 1970-01-01T00:15:00Z\n            at this start: the image is not whole\n")
	require.Contains(t, text, "  refuses   the disk is read-only\n")
	require.Contains(t, text, "  saving    1G of 3G, 2s left\n")
	require.Contains(t, text, "at an unknown speed")
	for want, b := range map[string]target.BatterySnapshot{
		"UNKNOWN: upsc is not there": {Error: "upsc is not there"}, "on line": {}, "on line, LB": {Weak: "LB"},
	} {
		require.Equal(t, want, batteryText(&b))
	}
	for want, p := range map[string]target.ProtectionSnapshot{
		"saved, and granted to nobody until `pmnbd-target resume`":       {Halted: true, Whole: true},
		"NOT SAVED, and granted to nobody until `pmnbd-target resume`":   {Halted: true},
		"being saved, and granted to nobody until `pmnbd-target resume`": {Halted: true, Saving: &target.SavingSnapshot{}},
	} {
		require.Equal(t, want, use(&target.RegionSnapshot{Protection: &p, Held: true}))
	}
}

func TestProtectionHealth(t *testing.T) {
	at := time.Unix(900, 0).UTC()
	for name, tt := range map[string]struct {
		p     target.ProtectionSnapshot
		level status.Level
		says  string
	}{
		"fine":         {target.ProtectionSnapshot{}, status.Serving, "region a: serving\n"},
		"was lost":     {target.ProtectionSnapshot{LostAt: &at}, status.Serving, "its contents were lost, the last time at 1970-01-01T00:15:00Z"},
		"refuses":      {target.ProtectionSnapshot{Refuses: "the disk is read-only"}, status.Waiting, "the disk is read-only. Mend what that names"},
		"saved":        {target.ProtectionSnapshot{Halted: true, Whole: true, Refuses: "x"}, status.Failed, "Run `pmnbd-target resume`"},
		"not saved":    {target.ProtectionSnapshot{Halted: true, Refuses: "x"}, status.Failed, "its image is not whole"},
		"being saved":  {target.ProtectionSnapshot{Halted: true, Refuses: "x", Saving: &target.SavingSnapshot{Written: 1 << 30, Of: 4 << 30, Left: 1.5}}, status.Failed, "it is being saved: 1G of 4G, 1.5s left"},
		"lost and out": {target.ProtectionSnapshot{LostAt: &at, Refuses: "x"}, status.Waiting, "no session is granted"},
	} {
		h := report{Regions: []target.RegionSnapshot{{Name: "a", Protection: &tt.p}}}.Health()
		require.Equal(t, tt.level, h.Level(), name)
		require.Contains(t, h.Text(), tt.says, name)
	}
}

func TestProtectionMetrics(t *testing.T) {
	r := protectedSample()
	answer := httptest.NewRecorder()
	status.MetricsHandler(zaptest.NewLogger(t), func() status.Document { return r }).ServeHTTP(answer, httptest.NewRequest("GET", status.MetricsPath, nil))
	text := answer.Body.String()
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	require.NoError(t, err)
	require.Empty(t, problems)
	require.Equal(t, `pmnbd_target_battery_on 1
pmnbd_target_battery_runtime_seconds 90
pmnbd_target_battery_unknown 0
pmnbd_target_image_dirty_bytes{region="a"} 3.221225472e+09
pmnbd_target_image_disk_bytes_per_second{region="a"} 1.073741824e+09
pmnbd_target_image_saved_time_seconds{region="a"} 900
pmnbd_target_image_whole{region="a"} 0
pmnbd_target_region_losses{region="a"} 0
pmnbd_target_region_refusing{region="a"} 0
pmnbd_target_save_expected_seconds{region="a"} 3
pmnbd_target_save_within_seconds{region="a"} 120
pmnbd_target_saving_bytes{region="a"} 0
pmnbd_target_saving_written_bytes{region="a"} 0
`, strings.Join(regexp.MustCompile(`(?m)^pmnbd_target_(battery|image|sav|region_losses|region_refusing).*\n`).FindAllString(text, -1), ""))
}

func TestSavesFor(t *testing.T) {
	saving := target.RegionSnapshot{Protection: &target.ProtectionSnapshot{Halted: true, Within: 300}}
	saved := target.RegionSnapshot{Protection: &target.ProtectionSnapshot{Halted: true, Whole: true, Within: 600}}
	serving := target.RegionSnapshot{Protection: &target.ProtectionSnapshot{Within: 600}}
	require.Equal(t, 5*time.Minute, savesFor([]target.RegionSnapshot{{}, saving, saved, serving}))
	saving.Protection.Saving = &target.SavingSnapshot{Left: 600}
	require.Equal(t, 20*time.Minute, savesFor([]target.RegionSnapshot{{}, saving, saved, serving}), "the disk is slower than it was")
	require.Equal(t, 2*region.DiskPatience, savesFor([]target.RegionSnapshot{{}, saved, serving}), "a disk may hang")
	require.Zero(t, savesFor([]target.RegionSnapshot{{}}))
}
