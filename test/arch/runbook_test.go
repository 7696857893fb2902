package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// docsPage returns the text of a page of docs/.
func docsPage(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, "docs", name))
	require.NoError(t, err)
	return string(b)
}

// section returns what stands in page below heading, up to the next heading of its level or above.
func section(t *testing.T, page, heading string) string {
	t.Helper()
	_, text, ok := strings.Cut(page, "\n"+heading+"\n")
	require.True(t, ok, "no heading %q", heading)
	level := strings.IndexByte(heading, ' ')
	if end := regexp.MustCompile(`(?m)^#{1,` + strconv.Itoa(level) + `} `).FindStringIndex(text); end != nil {
		text = text[:end[0]]
	}
	return text
}

// Each alert has an entry of the runbook, to which its annotation leads, and each entry has an alert
// and says what it has to.
func TestRunbookHasEachAlert(t *testing.T) {
	rules, err := os.ReadFile(filepath.Join(root, "dist/prometheus/alerts.yml"))
	require.NoError(t, err)
	alerts := section(t, docsPage(t, "runbook.md"), "## Alerts")
	entries := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^### (\w+)$`).FindAllStringSubmatch(alerts, -1) {
		entries[m[1]] = true
		entry := section(t, alerts, "### "+m[1])
		for _, part := range []string{"**Means**:", "**At risk**:", "**Look at**:", "**Do**:"} {
			require.Contains(t, entry, part, m[1])
		}
	}
	found := regexp.MustCompile(`(?s)- alert: (\w+)\n.*?severity: (\w+)}.*?runbook: (\S+)`).FindAllStringSubmatch(string(rules), -1)
	require.Len(t, found, strings.Count(string(rules), "- alert: "))
	for _, m := range found {
		require.True(t, entries[m[1]], "docs/runbook.md has no entry for %s", m[1])
		require.Contains(t, strings.ToLower(section(t, alerts, "### "+m[1])), "*"+m[2]+".*", "the severity of %s", m[1])
		require.Equal(t, "docs/runbook.md#"+slug(m[1]), m[3])
		delete(entries, m[1])
	}
	require.Empty(t, entries, "no alert has these names")
}

// fragments returns what the rows of a table quote in italics, row by row.
func fragments(table string) (rows [][]string) {
	for line := range strings.Lines(table) {
		var row []string
		for _, m := range regexp.MustCompile(`(?:^|[ |(])\*([^*|]+)\*`).FindAllStringSubmatch(line, -1) {
			row = append(row, m[1])
		}
		if strings.HasPrefix(line, "|") && row != nil {
			rows = append(rows, row)
		}
	}
	return rows
}

// said returns the text of the literals in each expression of a file that says picks.
func said(t *testing.T, path string, says func(ast.Node) ast.Expr) (all []string) {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, path), nil, parser.SkipObjectResolution)
	require.NoError(t, err)
	ast.Inspect(f, func(n ast.Node) bool {
		if n == nil {
			return false
		}
		if e := says(n); e != nil {
			if text := literals(e); regexp.MustCompile(`[a-z]{3}`).MatchString(text) { // a format alone says nothing
				all = append(all, text)
			}
		}
		return true
	})
	return all
}

// literals returns the strings in e, one after the other.
func literals(e ast.Node) string {
	var text strings.Builder
	ast.Inspect(e, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			s, err := strconv.Unquote(lit.Value)
			if err == nil {
				text.WriteString(s)
			}
		}
		return true
	})
	return text.String()
}

// sources returns the files of a directory that are no tests.
func sources(t *testing.T, dir string) (paths []string) {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(root, dir, "*.go"))
	require.NoError(t, err)
	for _, p := range all {
		if rel, err := filepath.Rel(root, p); err == nil && !strings.HasSuffix(p, "_test.go") {
			paths = append(paths, rel)
		}
	}
	return paths
}

// matched checks that the page quotes something of each text, and nothing that is neither in one nor
// in more, what follows some of them.
func matched(t *testing.T, quoted [][]string, all, more []string, where string) {
	t.Helper()
	var unquoted, unsaid []string
	for _, text := range all {
		if !slices.ContainsFunc(slices.Concat(quoted...), func(q string) bool { return strings.Contains(text, q) }) {
			unquoted = append(unquoted, text)
		}
	}
	for _, q := range slices.Concat(quoted...) {
		if !strings.Contains(strings.Join(slices.Concat(all, more), "\n"), q) {
			unsaid = append(unsaid, q)
		}
	}
	require.Empty(t, unquoted, "%s: no row quotes these", where)
	require.Empty(t, unsaid, "%s: nothing says these", where)
}

// The runbook has a row for each reason to end with exit code 3.
func TestRunbookHasEachLoss(t *testing.T) {
	var all []string
	losing := func(n ast.Node) ast.Expr {
		switch n := n.(type) {
		case *ast.CallExpr:
			if f, ok := n.Fun.(*ast.Ident); ok && (f.Name == "lose" || f.Name == "loss") {
				return n.Args[0]
			}
		case *ast.CompositeLit:
			if typ, ok := n.Type.(*ast.Ident); ok && (typ.Name == "LossError" || typ.Name == "MirrorError") && len(n.Elts) == 1 {
				return n.Elts[0]
			}
		}
		return nil
	}
	for _, path := range sources(t, "backend/remote") {
		all = append(all, said(t, path, losing)...)
	}
	require.Greater(t, len(all), 15)
	// What the calls above insert into a text: where the last window lies, and what the target is.
	all = append(all, said(t, "backend/remote/decide.go", func(n ast.Node) ast.Expr {
		if f, ok := n.(*ast.FuncDecl); ok && f.Name.Name == "elsewhere" {
			return f.Body.List[0].(*ast.ReturnStmt).Results[0]
		}
		return nil
	})...)
	all = append(all, said(t, "backend/remote/record.go", func(n ast.Node) ast.Expr {
		if a, ok := n.(*ast.AssignStmt); ok && a.Tok == token.DEFINE {
			if v, ok := a.Lhs[0].(*ast.Ident); ok && v.Name == "changed" {
				return a.Rhs[0]
			}
		}
		return nil
	})...)
	// Why a mirror cannot begin, however long it waits.
	all = append(all, said(t, "internal/mirror/decide.go", func(n ast.Node) ast.Expr {
		switch n := n.(type) {
		case *ast.AssignStmt:
			if f, ok := n.Lhs[0].(*ast.SelectorExpr); ok && n.Tok == token.ASSIGN && f.Sel.Name == "Why" && refuses(n.Rhs[0]) {
				return n.Rhs[0]
			}
		case *ast.KeyValueExpr:
			if k, ok := n.Key.(*ast.Ident); ok && k.Name == "Why" && refuses(n.Value) {
				return n.Value
			}
		}
		return nil
	})...)
	// Why an export cannot become a ublk device.
	for _, path := range []string{"cmd/pmnbd/ublk.go", "cmd/pmnbd/ublk_left.go"} {
		all = append(all, said(t, path, func(n ast.Node) ast.Expr {
			if c, ok := n.(*ast.CallExpr); ok {
				if f, ok := c.Fun.(*ast.SelectorExpr); ok && f.Sel.Name == "WithCode" {
					return c.Args[0]
				}
			}
			return nil
		})...)
	}
	more := said(t, "internal/mirror/decide.go", func(n ast.Node) ast.Expr {
		if a, ok := n.(*ast.AssignStmt); ok && a.Tok == token.ADD_ASSIGN {
			return a.Rhs[0]
		}
		return nil
	})
	matched(t, fragments(section(t, docsPage(t, "runbook.md"), "### Exit code 3")), all, more, "docs/runbook.md, exit code 3")
}

// refuses reports whether a reason of a decision is one to end, and not to wait or to begin.
func refuses(why ast.Expr) bool {
	text := literals(why)
	return !strings.HasPrefix(text, "waits for") && !strings.HasPrefix(text, "opens ")
}

// The runbook has a row for each line of status --check.
func TestRunbookHasEachState(t *testing.T) {
	var all []string
	for _, path := range []string{"cmd/pmnbd/internal/report/health.go", "cmd/pmnbd-target/health.go"} {
		all = append(all, said(t, path, func(n ast.Node) ast.Expr {
			switch n := n.(type) {
			case *ast.AssignStmt: // c.Level, c.Why = …, or c.Why = …
				for i, l := range n.Lhs {
					if f, ok := l.(*ast.SelectorExpr); ok && f.Sel.Name == "Why" && i < len(n.Rhs) {
						return n.Rhs[i]
					}
				}
			case *ast.KeyValueExpr:
				if k, ok := n.Key.(*ast.Ident); ok && k.Name == "Why" {
					return n.Value
				}
			case *ast.ReturnStmt: // of troubles: why, next
				if len(n.Results) == 2 {
					return n.Results[0]
				}
			}
			return nil
		})...)
	}
	all = append(all, "waiting: it is starting, and serves nothing yet") // of cmd/internal/status
	require.Greater(t, len(all), 8)
	matched(t, fragments(section(t, docsPage(t, "runbook.md"), "## States of status --check")), all, nil, "docs/runbook.md, states")
}
