package plain

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// Text escapes what moves a cursor, rings, hides or reorders text, and nothing else.
func TestText(t *testing.T) {
	for in, want := range map[string]string{
		"":                              "",
		`no region "log" is served, \x`: `no region "log" is served, \x`,
		"größer als 4 µs, 東京 🙂":         "größer als 4 µs, 東京 🙂",
		"\x1b]0;owned\x07\x1b[2J":       `\x1b]0;owned\a\x1b[2J`,
		"\x7f":                          `\x7f`,
		"\u009b31m":                     `\u009b31m`,
		"a\u202eb\u2066c\u200f":         `a\u202eb\u2066c\u200f`,
		"zero\u200bwidth\ufeff":         `zero\u200bwidth\ufeff`,
		"line\nof\r\ttext":              `line\nof\r\ttext`,
		"two\u2028lines":                `two\u2028lines`,
		"\xff\xc3(":                     `\xff\xc3(`,
		"\ufffd":                        "\ufffd",
		"\U000e0041":                    `\U000e0041`,
		"\u00a0":                        `\u00a0`,
	} {
		require.Equal(t, want, Text(in), "%q", in)
	}
}

func FuzzText(f *testing.F) {
	f.Add("\x1b[2J\u202e\xff plain \ufffd")
	f.Fuzz(func(t *testing.T, s string) {
		p := Text(s)
		require.True(t, utf8.ValidString(p))
		require.Equal(t, -1, strings.IndexFunc(p, func(r rune) bool { return !strconv.IsPrint(r) }))
		require.Equal(t, p, Text(p))
	})
}

// JSON returns plain text that means the same.
func FuzzJSON(f *testing.F) {
	f.Add("\x1b[2J\u009b\u202e\x7f\U000e0041 plain \ufffd🙂")
	f.Fuzz(func(t *testing.T, s string) {
		s = strings.ToValidUTF8(s, "\ufffd")
		b, err := json.MarshalIndent(map[string]string{"text": s}, "", "\t")
		require.NoError(t, err)
		var again map[string]string
		p := JSON(b)
		require.NoError(t, json.Unmarshal(p, &again))
		require.Equal(t, s, again["text"])
		require.Equal(t, -1, strings.IndexFunc(string(p), func(r rune) bool { return !strconv.IsPrint(r) && r != '\n' && r != '\t' }))
	})
}
