package arch

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// texts returns the text of each file of the module whose name ends in one of suffixes, keyed
// by its path from root.
func texts(t *testing.T, suffixes ...string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if n := d.Name(); p != root && (n[0] == '.' || n == "bin" || n == "tools") {
				return fs.SkipDir
			}
			return nil
		}
		for _, s := range suffixes {
			if strings.HasSuffix(p, s) {
				text, err := os.ReadFile(p)
				if err != nil {
					return err
				}
				rel, err := filepath.Rel(root, p)
				all[filepath.ToSlash(rel)] = string(text)
				return err
			}
		}
		return nil
	})
	require.NoError(t, err)
	return all
}

// sections returns the sections of docs/design.md that can be cited: "5", "3.7".
func sections(page string) map[string]bool {
	all, section := map[string]bool{}, ""
	for line := range strings.Lines(page) {
		if m := regexp.MustCompile(`^## §(\d+) `).FindStringSubmatch(line); m != nil {
			section = m[1]
			all[section] = true
		} else if m := regexp.MustCompile(`^(?:\*\*)?(\d+)\. `).FindStringSubmatch(line); m != nil {
			all[section+"."+m[1]] = true
		}
	}
	return all
}

// TestCitations checks that comments and pages cite existing sections of the two design pages.
func TestCitations(t *testing.T) {
	design := sections(texts(t, "docs/design.md")["docs/design.md"])
	mirror := sections(texts(t, "docs/design-mirror.md")["docs/design-mirror.md"])
	require.True(t, design["3.7"] && design["6.4"] && design["9"])
	require.True(t, mirror["3.7"] && mirror["4.6"] && mirror["8"])
	cited := 0
	ofMirror := regexp.MustCompile(`[Mm]irror\s+(?://\s+)?§(\d+(?:\.\d+)?)`)
	for path, text := range texts(t, ".go", ".md") {
		for _, m := range ofMirror.FindAllStringSubmatch(text, -1) {
			require.True(t, mirror[m[1]], "%s cites mirror §%s, which does not exist", path, m[1])
			cited++
		}
		text = ofMirror.ReplaceAllString(text, "")
		if path == "docs/design-mirror.md" {
			continue
		}
		citation := regexp.MustCompile(`[Dd]esign\s+(?://\s+)?§(\d+(?:\.\d+)?)`)
		if path == "docs/design.md" || path == "docs/rules.md" || path == "test/model/README.md" {
			citation = regexp.MustCompile(`(?:^|[^0-9] ?)§(\d+(?:\.\d+)?)`)
			text = regexp.MustCompile(`(?:RFC \d+|[Mm]irror) §[\d.]+`).ReplaceAllString(text, "")
		}
		for _, m := range citation.FindAllStringSubmatch(text, -1) {
			require.True(t, design[m[1]], "%s cites design §%s, which does not exist", path, m[1])
			cited++
		}
	}
	require.Greater(t, cited, 100)
}

// TestRulesNameTests checks that docs/rules.md names existing tests.
func TestRulesNameTests(t *testing.T) {
	var code strings.Builder
	for path, text := range texts(t, ".go") {
		if strings.HasSuffix(path, "_test.go") || strings.Contains(path, "test") {
			code.WriteString(text)
		}
	}
	tests := regexp.MustCompile("`((?:Test|Fuzz)[A-Za-z0-9]+)[`/]").FindAllStringSubmatch(texts(t, "docs/rules.md")["docs/rules.md"], -1)
	require.NotEmpty(t, tests)
	for _, m := range tests {
		require.Contains(t, code.String(), "func "+m[1]+"(", "docs/rules.md names a test that does not exist")
	}
}

// slug returns the anchor that Markdown readers make of a heading.
func slug(heading string) string {
	s := strings.ToLower(strings.TrimSpace(heading))
	s = regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(s, "")
	return strings.ReplaceAll(s, " ", "-")
}

// packed returns whether the package pmnbd-doc has a file: scripts/packages copies it, or a directory above it.
func packed(t *testing.T) func(file string) bool {
	script, err := os.ReadFile(filepath.Join(root, "scripts/packages"))
	require.NoError(t, err)
	var copied []string
	for line := range strings.Lines(string(script)) {
		if words := strings.Fields(line); len(words) > 2 && words[0] == "cp" {
			copied = append(copied, words[1:len(words)-1]...)
		}
	}
	return func(file string) bool {
		return slices.ContainsFunc(copied, func(what string) bool {
			same, err := filepath.Match(what, file)
			require.NoError(t, err)
			return same || strings.HasPrefix(file, what+"/")
		})
	}
}

// TestPageLinks checks that links lead to existing files, and to existing headings in them. Those of the pages
// that are packed lead to files that are packed, too.
func TestPageLinks(t *testing.T) {
	pages, packed := texts(t, ".md"), packed(t)
	require.True(t, packed("docs/rules.md"))
	anchors := map[string]bool{}
	for path, text := range pages {
		for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(text, -1) {
			anchors[path+"#"+slug(m[1])] = true
		}
	}
	for path, text := range pages {
		for _, m := range regexp.MustCompile(`\]\(([^)\s]+)\)`).FindAllStringSubmatch(text, -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			file, anchor, _ := strings.Cut(m[1], "#")
			if file == "" {
				file = path
			} else {
				file = filepath.ToSlash(filepath.Join(filepath.Dir(path), file))
			}
			_, err := os.Stat(filepath.Join(root, file))
			require.NoError(t, err, "%s links to %s", path, m[1])
			require.True(t, packed(file) || !packed(path), "%s links to %s, which scripts/packages does not copy", path, m[1])
			if anchor != "" {
				require.True(t, anchors[file+"#"+anchor], "%s links to %s, a heading that does not exist", path, m[1])
			}
		}
	}
}
