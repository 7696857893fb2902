package arch

import (
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var linked = regexp.MustCompile(`\]\(([a-z-]+\.md)[#)]`)

// The index has each page of docs/.
func TestIndexHasEachPage(t *testing.T) {
	index := map[string]bool{"README.md": true}
	for _, m := range linked.FindAllStringSubmatch(docsPage(t, "README.md"), -1) {
		index[m[1]] = true
	}
	for page := range texts(t, ".md") {
		if dir, name := path.Split(page); dir == "docs/" {
			require.True(t, index[name], "docs/README.md does not list %s", name)
		}
	}
}

// A page for users that has a word of ours links the glossary, which has that word.
func TestWordsLeadToGlossary(t *testing.T) {
	index, _, ok := strings.Cut(docsPage(t, "README.md"), "\n## For people who change the code")
	require.True(t, ok)
	glossary := docsPage(t, "glossary.md")
	words := []string{"doubt", "lineage", "lane", "window", "epoch", "lease", "gpspm", "apm", "leg", "life", "follower"}
	for _, w := range words {
		require.Contains(t, glossary, "\n### "+w+"\n")
	}
	ours := regexp.MustCompile(`(?i)\b(?:` + strings.Join(words, "|") + `)s?\b`)
	for _, m := range linked.FindAllStringSubmatch(index, -1) {
		page := docsPage(t, m[1])
		if word := ours.FindString(page); word != "" && m[1] != "glossary.md" && m[1] != "design.md" && m[1] != "protocol.md" {
			require.Contains(t, page, "](glossary.md", "docs/%s says %q", m[1], word)
		}
	}
}
