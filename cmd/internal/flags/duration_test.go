package flags

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestDuration(t *testing.T) {
	for in, c := range map[string]struct {
		want time.Duration
		says string
	}{
		"30s":          {want: 30 * time.Second},
		"1h30m":        {want: 90 * time.Minute},
		"0":            {},
		"-1s":          {want: -time.Second}, // who takes none says so
		"30":           {says: `"30" has no unit: use 30s`},
		"1.5":          {says: "is not a duration"},
		"thirty":       {says: "is not a duration"},
		"":             {says: "is not a duration"},
		"30 s":         {says: "is not a duration"},
		"1d":           {says: "is not a duration"},
		"999999999999": {says: "is not a duration"},
	} {
		t.Run(in, func(t *testing.T) {
			d, err := ParseDuration(in)
			if c.says != "" {
				require.ErrorIs(t, err, ErrUsage)
				require.ErrorContains(t, err, c.says)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.want, d)
		})
	}
}
