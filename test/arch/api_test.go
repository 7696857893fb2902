package arch

import (
	"flag"
	"fmt"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var write = flag.Bool("write", false, "write docs/api.md anew")

// stable are the packages that programs of others may use.
var stable = []string{"backend", "backend/remote", "backend/gonbd", "nbd"}

// TestAPIPage checks that docs/api.md has the exported names of the stable packages, and no others.
// `go test ./test/arch -run TestAPIPage -write` writes it, with the first sentence of what the source
// says of each.
func TestAPIPage(t *testing.T) {
	path := filepath.Join(root, "docs/api.md")
	page, err := os.ReadFile(path)
	require.NoError(t, err)
	head, _, ok := strings.Cut(string(page), "\n## ")
	require.True(t, ok)
	var b strings.Builder
	b.WriteString(head)
	for _, dir := range stable {
		p := documented(t, dir)
		fmt.Fprintf(&b, "\n## pmnbd/%s\n\n%s\n\n| name | what it is |\n|---|---|\n", dir, cell(p, p.Doc))
		row := func(name, text string) { fmt.Fprintf(&b, "| `%s` | %s |\n", name, cell(p, text)) }
		values := func(all []*doc.Value) {
			for _, v := range all {
				for _, s := range v.Decl.Specs {
					said := v.Doc
					if one := s.(*ast.ValueSpec); one.Doc.Text() != "" {
						said = one.Doc.Text()
					} else if one.Comment.Text() != "" {
						said = one.Comment.Text()
					}
					for _, n := range s.(*ast.ValueSpec).Names {
						if n.IsExported() {
							row(n.Name, said)
						}
					}
				}
			}
		}
		values(p.Consts)
		values(p.Vars)
		for _, f := range p.Funcs {
			row(f.Name, f.Doc)
		}
		for _, typ := range p.Types {
			row(typ.Name, typ.Doc)
			values(typ.Consts)
			values(typ.Vars)
			for _, f := range typ.Funcs {
				row(f.Name, f.Doc)
			}
			for _, f := range typ.Methods {
				row(typ.Name+"."+f.Name, f.Doc)
			}
		}
	}
	if *write {
		require.NoError(t, os.WriteFile(path, []byte(b.String()), 0o644))
		return
	}
	names := regexp.MustCompile("(?m)^(## \\S+|\\| `\\S+` \\|)")
	require.Equal(t, names.FindAllString(b.String(), -1), names.FindAllString(string(page), -1),
		"docs/api.md is of another API: go test ./test/arch -run TestAPIPage -write")
}

// documented returns what the source says of a package.
func documented(t *testing.T, dir string) *doc.Package {
	t.Helper()
	fset := token.NewFileSet()
	var files []*ast.File
	for _, path := range sources(t, dir) {
		f, err := parser.ParseFile(fset, filepath.Join(root, path), nil, parser.ParseComments)
		require.NoError(t, err)
		files = append(files, f)
	}
	p, err := doc.NewFromFiles(fset, files, "pmnbd/"+dir)
	require.NoError(t, err)
	return p
}

// cell is the first sentence of text, for a table.
func cell(p *doc.Package, text string) string {
	return strings.NewReplacer("|", `\|`, "\n", " ").Replace(p.Synopsis(text))
}
