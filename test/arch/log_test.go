package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// warnings returns the messages that the daemons log at level warn and above, with the level.
func warnings(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for path, text := range texts(t, ".go") {
		dir, _, _ := strings.Cut(path, "/")
		switch {
		case !slices.Contains([]string{"cmd", "backend", "persist", "nbd", "ublk", "rdma", "internal", "numa"}, dir),
			strings.HasSuffix(path, "_test.go"), strings.HasSuffix(filepath.Dir(path), "test"):
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, text, parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, d := range f.Decls {
			for message, level := range warningsOf(d) {
				all[message] = level
			}
		}
	}
	require.Greater(t, len(all), 40)
	return all
}

// warningsOf returns those of one function. Most call Warn or Error. Some choose a level, and call
// them level and message.
func warningsOf(d ast.Decl) map[string]string {
	all := map[string]string{}
	atLeast, chosen := "", map[string]string{} // what a lone "level = …" raises all to, and the messages beside a level
	ast.Inspect(d, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			f, ok := n.Fun.(*ast.SelectorExpr)
			if !ok || len(n.Args) == 0 {
				break
			}
			switch level := strings.ToLower(f.Sel.Name); level {
			case "warn", "error":
				if said := literals(n.Args[0]); said != "" {
					all[said] = level
				}
			case "log", "logattrs":
				for _, a := range n.Args[:min(3, len(n.Args))] {
					if lit, ok := a.(*ast.BasicLit); ok {
						chosen[literals(lit)] = ""
					}
				}
			}
		case *ast.AssignStmt:
			name := func(i int) string {
				if v, ok := n.Lhs[i].(*ast.Ident); ok {
					return v.Name
				}
				return ""
			}
			switch {
			case len(n.Lhs) == 2 && len(n.Rhs) == 2 && name(1) == "message":
				chosen[literals(n.Rhs[1])] = levelOf(n.Rhs[0])
			case name(0) == "message":
				chosen[literals(n.Rhs[0])] = "warn"
			case len(n.Lhs) == 1 && name(0) == "level" && n.Tok == token.ASSIGN:
				atLeast = levelOf(n.Rhs[0])
			}
		}
		return true
	})
	for said, level := range chosen {
		if atLeast != "" {
			level = atLeast
		}
		if level != "" && said != "" {
			all[said] = level
		}
	}
	return all
}

// levelOf returns the level that an expression such as slog.LevelWarn names, "" below warn.
func levelOf(e ast.Expr) string {
	if f, ok := e.(*ast.SelectorExpr); ok {
		return map[string]string{"LevelWarn": "warn", "LevelError": "error"}[f.Sel.Name]
	}
	return ""
}

// docs/log.md has each message of level warn and above, with its level, and no other.
func TestLogPage(t *testing.T) {
	logged := warnings(t)
	for _, m := range regexp.MustCompile(`(?m)^\| \*([^*]+)\* \| (\w+) \| [^|]+ \| [^|]+ \|$`).FindAllStringSubmatch(docsPage(t, "log.md"), -1) {
		require.Equal(t, logged[m[1]], m[2], "docs/log.md: the level of %q; none: nothing logs it", m[1])
		delete(logged, m[1])
	}
	require.Empty(t, slices.Sorted(maps.Keys(logged)), "docs/log.md has no row for these")
}
