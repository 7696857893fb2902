package flags

import "strings"

// CutPath takes a path from the beginning of s, up to a comma or the end of s. A path with a
// comma in it, or with a double quote at its beginning, stands in double quotes, in which ""
// is one double quote. rest is what follows the comma, and more reports whether there was
// one. Every flag with a path inside a larger value uses CutPath, so that none takes a
// misspelt option for a part of the path.
func CutPath(s string) (path, rest string, more bool, err error) {
	if !strings.HasPrefix(s, `"`) {
		path, rest, more = strings.Cut(s, ",")
		return path, rest, more, nil
	}
	var b strings.Builder
	for rest = s[1:]; ; {
		part, behind, closed := strings.Cut(rest, `"`)
		if !closed {
			return "", "", false, Usagef("%s: the quotation mark at its beginning has no other at the end", s)
		}
		b.WriteString(part)
		if rest, closed = strings.CutPrefix(behind, `"`); !closed {
			break
		}
		b.WriteByte('"')
	}
	if rest != "" && rest[0] != ',' {
		return "", "", false, Usagef("%s: %q follows the quotation mark that ends the path: use a comma, or write \"\" for a quotation mark in the path", s, rest)
	}
	rest, more = strings.CutPrefix(rest, ",")
	return b.String(), rest, more, nil
}

// Path reads a path that is all of s. Like CutPath it wants quotes around a comma.
func Path(s string) (string, error) {
	path, _, more, err := CutPath(s)
	if err == nil && more {
		err = Usagef("%s: a comma ends a path, and nothing may follow here; a path with a comma in it stands in double quotes: %s", s, QuotePath(s))
	}
	return path, err
}

// QuotePath writes a path so that CutPath reads it.
func QuotePath(path string) string {
	if !strings.Contains(path, ",") && !strings.HasPrefix(path, `"`) {
		return path
	}
	return `"` + strings.ReplaceAll(path, `"`, `""`) + `"`
}
