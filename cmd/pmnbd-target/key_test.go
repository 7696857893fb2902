package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// A target takes the keys of its name. It warns of those of others, which somebody who breaks into this
// host could use in their place, and does not serve without one of its own.
func TestKeysOfThisTarget(t *testing.T) {
	line := func(target, digit string) string {
		return alice.String() + " " + target + " " + strings.Repeat("0123456789abcde"+digit, 4) + "\n"
	}
	for name, c := range map[string]struct {
		file   string
		as     string
		keys   int // of alice
		warns  bool
		refuse string
	}{
		"its own":           {file: line("pm1", "0") + line("pm1", "1"), as: "pm1", keys: 2},
		"another's, too":    {file: line("pm1", "0") + line("pm2", "1"), as: "pm1", keys: 1, warns: true},
		"another's":         {file: line("pm2", "0"), as: "pm1", refuse: "has no key of target pm1, but of pm2: name this target with --name"},
		"in capitals":       {file: line("PM1", "0"), as: "pm1", refuse: "has no key of target pm1, but of PM1"},
		"of the old format": {file: strings.Replace(line("", "0"), "  ", " ", 1), as: "pm1", refuse: "a line of the old format"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "keys")
			require.NoError(t, os.WriteFile(path, []byte(c.file), 0o600))
			core, said := observer.New(zap.WarnLevel)
			keys, err := readKeys(&config{KeyFile: path, Name: c.as}, zap.New(core))
			if c.refuse != "" {
				require.ErrorContains(t, err, c.refuse)
				require.Nil(t, keys)
				return
			}
			require.NoError(t, err)
			require.Len(t, keys[alice], c.keys)
			require.Equal(t, c.warns, said.FilterMessageSnippet("the key file has keys of other targets").Len() == 1)
		})
	}
	host, err := (&config{}).name()
	require.NoError(t, err)
	own, err := os.Hostname()
	require.NoError(t, err)
	require.Equal(t, own, host)
	given, err := (&config{Name: "pm1"}).name()
	require.NoError(t, err)
	require.Equal(t, "pm1", given)
}
