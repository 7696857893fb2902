// Package plain makes text of what strangers wrote, for people to read.
//
// It exists so that nobody who reaches a port moves a reader's cursor, colours or
// reorders lines, or sets a terminal's title: by an error, a log line or a status. Code
// that decodes a peer's text passes it through here; commands do so once more with what
// they print. It imports nothing of ours.
package plain

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Text is s with everything escaped, as in Go, that is not a printable character or a
// space: control characters, what reorders or hides text, invalid UTF-8, line ends. What
// is plain stays as it is, so a second time changes nothing.
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

// JSON is JSON that means the same as b, valid UTF-8 provided, and is plain but for its
// line ends. It may return b.
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

// strange reports whether r, in JSON, needs an escape to be plain. Outside strings there
// is nothing but ASCII, and the white space of its layout.
func strange(r rune) bool {
	return !strconv.IsPrint(r) && r != '\n' && r != '\t' && r != '\r' || r == utf8.RuneError
}
