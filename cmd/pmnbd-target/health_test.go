package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/cmd/internal/status"
	"pmnbd/persist/target"
)

func TestHealth(t *testing.T) {
	for name, c := range map[string]struct {
		region target.RegionSnapshot
		level  status.Level
		says   []string
	}{
		"free":             {target.RegionSnapshot{Clean: true}, status.Serving, []string{"region a: serving\n"}},
		"its owner's":      {target.RegionSnapshot{Held: true}, status.Serving, []string{"region a: serving\n"}},
		"doubt left alone": {target.RegionSnapshot{Doubt: true}, status.Serving, nil},
		"doubt":            {target.RegionSnapshot{Doubt: true, Held: true, DoubtLeft: 3 << 30}, status.Waiting, []string{"3G left to flush", "by itself"}},
		"syncing":          {target.RegionSnapshot{Path: "/var/a", Syncing: 9}, status.Serving, nil},
		"hanging":          {target.RegionSnapshot{Path: "/var/a", Syncing: 61}, status.Waiting, []string{"61 s", "disk beneath /var/a"}},
		"torn":             {target.RegionSnapshot{Member: &target.MemberSnapshot{Torn: true}}, status.Waiting, []string{"has not ended"}},
		"suspect":          {target.RegionSnapshot{Suspect: true, Doubt: true}, status.Failed, []string{"without saving", "region clear"}},
		"failed":           {target.RegionSnapshot{Failed: true, Failure: "medium error", Held: true}, status.Failed, []string{"medium error", "region clear"}},
	} {
		c.region.Name = "a"
		h := report{Regions: []target.RegionSnapshot{c.region}}.Health()
		require.Equal(t, c.level, h.Level(), name)
		for _, s := range c.says {
			require.Contains(t, h.Text(), s, name)
		}
	}
}
