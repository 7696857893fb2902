package flags

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCutPath(t *testing.T) {
	for name, c := range map[string]struct {
		in, path, rest string
		more           bool
		says           string
	}{
		"nothing":                  {in: ""},
		"a path":                   {in: "/a b=c", path: "/a b=c"},
		"an option":                {in: "/a,size=1G,x", path: "/a", rest: "size=1G,x", more: true},
		"a comma at the end":       {in: "/a,", path: "/a", more: true},
		"quoted":                   {in: `"/a"`, path: "/a"},
		"a comma in it":            {in: `"/a,b",size=1G`, path: "/a,b", rest: "size=1G", more: true},
		"a quotation mark in it":   {in: `"/a""b"`, path: `/a"b`},
		"nothing but that":         {in: `""""`, path: `"`},
		"nothing, quoted":          {in: `"",x`, rest: "x", more: true},
		"a mark behind the middle": {in: `/a"b,c"`, path: `/a"b`, rest: `c"`, more: true},
		"not closed":               {in: `"/a,size=1G`, says: "has no other at the end"},
		"never closed":             {in: `"/a""`, says: "has no other at the end"},
		"more behind it":           {in: `"/a"b`, says: `"b" follows the quotation mark`},
	} {
		t.Run(name, func(t *testing.T) {
			path, rest, more, err := CutPath(c.in)
			if c.says != "" {
				require.ErrorIs(t, err, ErrUsage)
				require.ErrorContains(t, err, c.says)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.path, path)
			require.Equal(t, c.rest, rest)
			require.Equal(t, c.more, more)
		})
	}
	_, err := Path("/a,b")
	require.ErrorIs(t, err, ErrUsage)
	require.ErrorContains(t, err, `stands in double quotes: "/a,b"`)
}

func FuzzPath(f *testing.F) {
	f.Add("/a,b")
	f.Add(`"`)
	f.Fuzz(func(t *testing.T, s string) {
		got, err := Path(QuotePath(s))
		require.NoError(t, err)
		require.Equal(t, s, got)
	})
}
