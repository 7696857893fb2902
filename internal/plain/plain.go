// Package plain makes text that strangers wrote safe for people to read, only for this
// module; it promises nothing to other programs.
//
// It exists so that nobody who reaches a port can move a reader's cursor, colour or
// reorder lines, or set a terminal's title through an error, a log line or a status. Code
// that decodes a peer's text passes it through here. Commands do so again with what they
// print.
package plain

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Text returns s with escapes, as in Go, for everything that is not a printable character
// or a space: control characters, invalid UTF-8, ends of lines, and what reorders or
// hides text. Plain text stays as it is, so to call Text twice changes nothing.
func Text(s string) string {
	at := strings.IndexFunc(s, func(r rune) bool { return !strconv.IsPrint(r) || r == utf8.RuneError })
	if at < 0 {
		return s
	}
	var b strings.Builder
	b.WriteString(s[:at])
	for s = s[at:]; len(s) > 0; {
		r, n := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[0])
		case strconv.IsPrint(r):
			b.WriteRune(r)
		default:
			q := strconv.QuoteRune(r)
			b.WriteString(q[1 : len(q)-1])
		}
		s = s[n:]
	}
	return b.String()
}

// JSON returns JSON that means the same as b and is plain except for white space between
// values. b must be valid JSON in UTF-8. JSON may return b itself.
func JSON(b []byte) []byte {
	if bytes.IndexFunc(b, strange) < 0 {
		return b
	}
	var out []byte
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		switch {
		case !strange(r):
			out = append(out, b[:n]...)
		case r > 0xffff: // a surrogate pair
			r -= 0x10000
			out = fmt.Appendf(out, `\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
		b = b[n:]
	}
	return out
}

// strange reports whether r needs an escape in JSON. Outside strings, JSON has only ASCII
// and the white space of its layout.
func strange(r rune) bool {
	return !strconv.IsPrint(r) && r != '\n' && r != '\t' && r != '\r' || r == utf8.RuneError
}
