package mutants

import (
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/scanner"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// An edit changes one place in the source.
type edit struct {
	// in is the package's directory and the declaration, as go doc writes it:
	// "backend/remote.core.cover", "backend/remote.Device", "backend/remote.firstSlice".
	in string
	// new replaces old, which must occur once in that declaration, compared token by token.
	// Without old, new is a new declaration, placed after that one.
	old, new string
}

// A tree holds the sources on which edits were tried, by directory. It reads each directory
// once.
type tree map[string]*directory

// A directory holds the sources of one package, without its tests.
type directory struct {
	files map[string]string
	// places maps a name to its declarations. There are several if files for different systems
	// declare the same name, or if a function is in assembly.
	places map[string][]place
}

// A place is a declaration in a file: the bytes [from, to). A new declaration goes to end,
// which lies behind the whole group if the declaration is in one.
type place struct {
	file          string
	from, to, end int
}

// assembly matches the head of a function in an assembly file.
var assembly = regexp.MustCompile(`(?m)^TEXT ·(\w+)\(`)

// directory reads a directory of the module.
func (t tree) directory(dir string) (*directory, error) {
	if d := t[dir]; d != nil {
		return d, nil
	}
	paths, err := filepath.Glob(filepath.Join(root, dir, "*.*"))
	if err != nil {
		return nil, err
	}
	files := make(map[string]string)
	for _, path := range paths {
		goes := strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go")
		if !goes && !strings.HasSuffix(path, ".s") {
			continue
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		files[filepath.Join(dir, filepath.Base(path))] = string(b)
	}
	d, err := index(files)
	if err != nil {
		return nil, err
	}
	t[dir] = d
	return d, nil
}

// index finds the declarations of a package's files.
func index(files map[string]string) (*directory, error) {
	d := &directory{files: files, places: make(map[string][]place)}
	for file, src := range files {
		if strings.HasSuffix(file, ".s") {
			at := assembly.FindAllStringSubmatchIndex(src, -1)
			for i, m := range at {
				to := len(src)
				if i+1 < len(at) {
					to = at[i+1][0]
				}
				name := src[m[2]:m[3]]
				d.places[name] = append(d.places[name], place{file, m[0], to, to})
			}
			continue
		}
		set := token.NewFileSet()
		parsed, err := parser.ParseFile(set, file, src, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		add := func(name string, n, group ast.Node) {
			at := func(p token.Pos) int { return set.Position(p).Offset }
			d.places[name] = append(d.places[name], place{file, at(n.Pos()), at(n.End()), at(group.End())})
		}
		for _, decl := range parsed.Decls {
			switch decl := decl.(type) {
			case *ast.FuncDecl:
				add(receiver(decl)+decl.Name.Name, decl, decl)
			case *ast.GenDecl:
				for _, spec := range decl.Specs {
					n := ast.Node(spec)
					if !decl.Lparen.IsValid() {
						n = decl
					}
					switch spec := spec.(type) {
					case *ast.TypeSpec:
						add(spec.Name.Name, n, decl)
					case *ast.ValueSpec:
						for _, name := range spec.Names {
							add(name.Name, n, decl)
						}
					}
				}
			}
		}
	}
	return d, nil
}

// receiver returns the type of a method with a dot, or nothing for a function.
func receiver(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return ""
	}
	for t := f.Recv.List[0].Type; ; {
		switch of := t.(type) {
		case *ast.Ident:
			return of.Name + "."
		case *ast.StarExpr:
			t = of.X
		case *ast.IndexExpr: // of a generic type
			t = of.X
		case *ast.IndexListExpr:
			t = of.X
		default:
			return ""
		}
	}
}

// A word is a token and its place.
type word struct {
	tok      token.Token
	text     string
	from, to int
}

// words returns the tokens of src. It leaves out comments and semicolons: a newline may stand
// for a semicolon, or for nothing.
func words(src string) []word {
	file := token.NewFileSet().AddFile("", -1, len(src))
	var s scanner.Scanner
	s.Init(file, []byte(src), func(token.Position, string) {}, 0) // assembly has tokens that Go does not have
	var ws []word
	for {
		pos, tok, text := s.Scan()
		switch {
		case tok == token.EOF:
			return ws
		case tok == token.SEMICOLON:
			continue
		case text == "":
			text = tok.String()
		}
		from := file.Offset(pos)
		ws = append(ws, word{tok, text, from, from + len(text)})
	}
}

// find returns every place in src at which the tokens of old are.
func find(src, old string) [][2]int {
	in, want := words(src), words(old)
	same := func(a, b word) bool { return a.tok == b.tok && a.text == b.text }
	var found [][2]int
	for i := 0; len(want) > 0 && i+len(want) <= len(in); i++ {
		if got := in[i : i+len(want)]; slices.EqualFunc(got, want, same) {
			found = append(found, [2]int{got[0].from, got[len(got)-1].to})
		}
	}
	return found
}

// A change replaces a file's bytes [from, to).
type change struct {
	from, to int
	text     string
}

// locate finds the one place of an edit.
func (d *directory) locate(name string, e edit) (string, change, error) {
	places := d.places[name]
	if len(places) == 0 {
		return "", change{}, fmt.Errorf("%s: no such declaration; did it move to one of %q?", e.in, d.alike(name))
	}
	if strings.TrimSpace(e.old) == "" {
		p := places[0]
		if len(places) > 1 {
			return "", change{}, fmt.Errorf("%s: %d declarations of that name, so new cannot follow one", e.in, len(places))
		}
		return p.file, change{p.end, p.end, "\n\n" + e.new + "\n"}, nil
	}
	var file string
	var at []change
	for _, p := range places {
		for _, f := range find(d.files[p.file][p.from:p.to], e.old) {
			file, at = p.file, append(at, change{p.from + f[0], p.from + f[1], e.new})
		}
	}
	if len(at) != 1 {
		return "", change{}, fmt.Errorf("%s: found %d times, not once:\n%s", e.in, len(at), e.old)
	}
	return file, at[0], nil
}

// alike returns the declarations with the same last name: a function may have moved to another
// type.
func (d *directory) alike(name string) []string {
	_, last, method := strings.Cut(name, ".")
	if !method {
		last = name
	}
	var names []string
	for n := range d.places {
		if n == last || strings.HasSuffix(n, "."+last) {
			names = append(names, n)
		}
	}
	slices.Sort(names)
	return names
}

// plant returns the files that edits change, with the edits in them, by path.
func (t tree) plant(edits []edit) (map[string]string, error) {
	changes := make(map[string][]change)
	files := make(map[string]string)
	for _, e := range edits {
		dir, name := split(e.in)
		d, err := t.directory(dir)
		if err != nil {
			return nil, err
		}
		file, c, err := d.locate(name, e)
		if err != nil {
			return nil, err
		}
		files[file], changes[file] = d.files[file], append(changes[file], c)
	}
	for file, cs := range changes {
		// From the back, so that the other offsets stay right.
		slices.SortFunc(cs, func(a, b change) int { return b.from - a.from })
		src := files[file]
		for i, c := range cs {
			if i > 0 && c.to > cs[i-1].from {
				return nil, fmt.Errorf("%s: two edits overlap", file)
			}
			src = src[:c.from] + c.text + src[c.to:]
		}
		if strings.HasSuffix(file, ".go") {
			if _, err := format.Source([]byte(src)); err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
		}
		files[file] = src
	}
	return files, nil
}

// split returns the directory and the declaration of an address.
func split(in string) (dir, name string) {
	slash := strings.LastIndexByte(in, '/') + 1
	last, name, _ := strings.Cut(in[slash:], ".")
	return in[:slash] + last, name
}

// TestPlant checks that an edit finds its place wherever its declaration is in the package and
// however it is laid out. An edit that finds no place, or several, is an error.
func TestPlant(t *testing.T) {
	const here = "package p\n\nfunc (d *T[K]) f(a int) {\n\tif a > 0 {\n\t\td.g(a)\n\t}\n\td.g(a)\n\td.h() // done\n}\n"
	const moved = "package p\n\n// f is\nfunc (d *T[K]) f(\n\ta int,\n) {\n\tif a > 0 { // why\n\t\t\td.g( a )\n\t}\n\n\td.g(a)\n\t// and then\n\td.h()\n}\n"
	const group = "package p\n\nconst (\n\tone = 1\n\ttwo = 2\n)\n\ntype s struct {\n\tone int\n}\n"
	const text = "TEXT ·a(SB), NOSPLIT, $0-0\n\tADDQ $64, AX // next\n\tRET\n\nTEXT ·b(SB), NOSPLIT, $0-0\n\tADDQ $64, AX\n\tRET\n"

	tests := []struct {
		name   string
		src    string
		edit   edit
		broken string // a part of the mutant's source; none if planting must fail
		err    string
	}{
		{"a call", here, edit{"p.T.f", "d.g(a); d.h()", "d.h()"}, "\t}\n\td.h() // done", ""},
		{"moved and laid out anew", moved, edit{"p.T.f", "d.g(a); d.h()", "d.h()"}, "\t}\n\n\td.h()\n}", ""},
		{"in its head", here, edit{"p.T.f", "f(a int) { if", "f(a int) { d.h()\nif"}, "{ d.h()\nif a > 0", ""},
		{"nowhere", here, edit{"p.T.f", "d.i()", ""}, "", "0 times"},
		{"twice", here, edit{"p.T.f", "d.g(a)", ""}, "", "2 times"},
		{"part of a token", here, edit{"p.T.f", "d.g(a); d", "e"}, "e.h() // done", ""},
		{"elsewhere", here, edit{"p.f", "d.h()", ""}, "", "no such declaration"},
		{"not Go any more", here, edit{"p.T.f", "d.h()", "d.h("}, "", "p/a.go"},
		{"a constant", group, edit{"p.two", "2", "3"}, "\ttwo = 3\n", ""},
		{"a field", group, edit{"p.s", "one int", "one, two int"}, "\tone, two int\n", ""},
		{"not of the name's declaration", group, edit{"p.two", "1", "3"}, "", "0 times"},
		{"a declaration more", group, edit{"p.one", "", "var three = 3"}, ")\n\nvar three = 3\n", ""},
		{"assembly", text, edit{"p.b", "ADDQ $64, AX", "ADDQ $128, AX"}, "NOSPLIT, $0-0\n\tADDQ $128, AX\n\tRET\n", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			file := "p/a.go"
			if tt.src == text {
				file = "p/a.s"
			}
			d, err := index(map[string]string{file: tt.src, "p/other.go": "package p\n\nfunc other() { d.i() }\n"})
			require.NoError(t, err)
			files, err := tree{"p": d}.plant([]edit{tt.edit})
			if tt.err != "" {
				require.ErrorContains(t, err, tt.err)
				return
			}
			require.NoError(t, err)
			require.Len(t, files, 1)
			require.Contains(t, files[file], tt.broken)
		})
	}
	t.Run("two edits of a file", func(t *testing.T) {
		d, err := index(map[string]string{"p/a.go": here})
		require.NoError(t, err)
		files, err := tree{"p": d}.plant([]edit{{"p.T.f", "a > 0", "a > 1"}, {"p.T.f", "d.h()", ""}})
		require.NoError(t, err)
		require.Contains(t, files["p/a.go"], "a > 1")
		require.NotContains(t, files["p/a.go"], "d.h()")
		_, err = tree{"p": d}.plant([]edit{{"p.T.f", "a > 0", "a > 1"}, {"p.T.f", "0", "1"}})
		require.ErrorContains(t, err, "overlap")
	})
}
