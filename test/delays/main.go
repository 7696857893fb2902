// Command delays makes a copy of the product's source in which goroutines are late at random, and an overlay for the
// go command that builds that copy. What two goroutines do at the same time then happens in orders that a test run
// else meets once in a thousand: a session that is back before the loss of another one is noticed. scripts/stress
// runs the tests on it.
//
// A delay is a nanosleep(2) of at most 5 ms. Each place has one in 25 times: ahead of a lock, behind the choice of a
// select, and where the function literal of a new goroutine begins. A bubble of testing/synctest takes a delay for work:
// its clock stands meanwhile, and synctest.Wait waits for it.
//
// It imports no other package of this module; it reads their source.
package main

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// The package with the delays is in the overlay alone.
const (
	delayPath = "internal/delay/delay.go"
	delay     = `package delay

import (
	"math/rand/v2"
	"syscall"
)

func Now() {
	longest := 5_000_000
	switch n := rand.IntN(100); {
	case n >= 4:
		return
	case n >= 1:
		longest = 300_000
	}
	t := syscall.NsecToTimespec(int64(rand.IntN(longest)))
	_ = syscall.Nanosleep(&t, nil)
}
`
)

// source has the trees of the product.
var source = []string{"backend", "cmd", "internal", "nbd", "persist", "rdma", "ublk"}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: go run ./test/delays DIR, from the top of the repository")
		os.Exit(2)
	}
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "delays:", err)
		os.Exit(1)
	}
}

// write makes dir/overlay.json, and what that names.
func write(dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	replace := make(map[string]string)
	put := func(path string, text []byte) error {
		to := filepath.Join(dir, path)
		from, err := filepath.Abs(path)
		if err != nil {
			return err
		}
		replace[from] = to
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		return os.WriteFile(to, text, 0o644)
	}
	if err := put(delayPath, []byte(delay)); err != nil {
		return err
	}
	for _, tree := range source {
		err := filepath.WalkDir(tree, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			late, err := insert(text)
			if err != nil || late == nil {
				return err
			}
			return put(path, late)
		})
		if err != nil {
			return err
		}
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o644)
}

// insert returns the source text with delays in it, or nil if it has no place for one. Each line keeps its number.
func insert(text []byte) ([]byte, error) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, "", text, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var places []int
	place := func(p token.Pos) { places = append(places, set.Position(p).Offset) }
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			if f, ok := n.Call.Fun.(*ast.FuncLit); ok {
				place(f.Body.Lbrace + 1)
			}
		case *ast.CommClause:
			if n.Comm != nil {
				place(n.Colon + 1)
			}
		case *ast.ExprStmt:
			call, ok := n.X.(*ast.CallExpr)
			if !ok {
				break
			}
			switch method, ok := call.Fun.(*ast.SelectorExpr); {
			case !ok:
			case method.Sel.Name == "Lock" && len(call.Args) == 0:
				place(n.Pos())
			case method.Sel.Name == "Go" && len(call.Args) == 1: // of a sync.WaitGroup
				if f, ok := call.Args[0].(*ast.FuncLit); ok {
					place(f.Body.Lbrace + 1)
				}
			}
		}
		return true
	})
	if len(places) == 0 {
		return nil, nil
	}
	slices.Sort(places)
	for _, at := range slices.Backward(places) {
		text = slices.Insert(text, at, []byte(" delay.Now(); ")...)
	}
	at := set.Position(file.Name.End()).Offset
	return slices.Insert(text, at, []byte(`; import "pmnbd/internal/delay"`)...), nil
}
