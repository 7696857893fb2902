package configfile

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/cmd/internal/flags"
)

var settings = Settings{
	"tls":      {Takes: "a text", Kinds: Text},
	"lanes":    {Takes: "a number", Kinds: Number},
	"log.name": {Takes: "a name", Kinds: Text},
	"log.path": {Takes: "a path", Kinds: Text},
	"log":      {Takes: "a table", Kinds: Tables, Items: Table},
}

// A key in two spellings is given twice, at the top and in a table of any form. Tables of one name each
// have keys of their own.
func TestSpellings(t *testing.T) {
	for name, c := range map[string]struct{ file, says string }{
		"one":                      {"TLS = 'on'\nLanes = 1\n", ""},
		"a key":                    {"tls = 'on'\n\nTLS = 'off'\n", "3: TLS is another spelling of tls on line 1"},
		"with quotes":              {"tls = 'on'\n'Tls' = 'off'\n", "2: Tls is another spelling of tls on line 1"},
		"three":                    {"tls = 'on'\nTLS = 'off'\nTls = 'off'\n", "2: TLS is another spelling of tls on line 1; 3: Tls is another spelling of tls on line 1"},
		"two keys":                 {"tls = 'on'\nlanes = 1\nLANES = 2\nTLS = 'off'\n", "3: LANES is another spelling of lanes on line 2; 4: TLS is another spelling of tls on line 1"},
		"a table":                  {"[[log]]\nname = 'a'\n[[Log]]\nname = 'b'\n", "3: Log is another spelling of log on line 1"},
		"tables":                   {"[[log]]\nname = 'a'\n[[log]]\nName = 'b'\n", ""},
		"tables in one line":       {"log = [{name = 'a'}, {Name = 'b'}]\n", ""},
		"a table and a list":       {"log = []\n[[LOG]]\nname = 'b'\n", "2: LOG is another spelling of log on line 1"},
		"a key of a table":         {"[[log]]\nname = 'a'\n[[log]]\nname = 'b'\npath = '/b'\nName = 'c'\n", "6: log.Name is another spelling of log.name on line 4"},
		"a key of one in one line": {"log = [{name = 'a'}, {name = 'b', NAME = 'c'}]\n", "1: log.NAME is another spelling of log.name on line 1"},
		"a dotted key":             {"Log.name = 'a'\n[[log]]\nname = 'b'\n", "2: log is another spelling of Log on line 1"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "f")
			require.NoError(t, os.WriteFile(path, []byte(c.file), 0o600))
			var all map[string]any
			err := settings.Load(path, &all)
			if c.says == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, flags.ErrUsage)
			says := strings.NewReplacer(path+":", "", ": keys are not case-sensitive, so keep one of the two", "", "\n", "; ").Replace(err.Error())
			require.Equal(t, c.says, says)
		})
	}
}

// A key that the decoder finds twice has its error as before.
func TestKeyTwice(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	require.NoError(t, os.WriteFile(path, []byte("TLS = 'on'\nTLS = 'off'\n"), 0o600))
	var all map[string]any
	require.EqualError(t, settings.Load(path, &all), path+":2: tls: key TLS is already defined")
}
