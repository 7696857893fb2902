package arch

import (
	"encoding/json"
	"errors"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// root is the module's directory, relative to this package.
const root = "../.."

func TestModule(t *testing.T) {
	cmd := exec.Command("go", "list", "-deps", "-json=ImportPath,Imports", "./...")
	cmd.Dir = root
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	require.NoError(t, err, "go list")

	g := Graph{}
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p struct {
			ImportPath string
			Imports    []string
		}
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else {
			require.NoError(t, err)
		}
		// The graph holds this module alone.
		if p.ImportPath == "pmnbd" || strings.HasPrefix(p.ImportPath, "pmnbd/") {
			g[p.ImportPath] = p.Imports
		}
	}
	require.Contains(t, g, "pmnbd/backend")
	require.Empty(t, Violations(g, Rules))
}

func TestUnsafeAndCgoStayInTheirPlaces(t *testing.T) {
	files := map[string][]string{}
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if n := d.Name(); p != root && (n[0] == '.' || n == "bin" || n == "testdata" || n == "tools") {
				return filepath.SkipDir
			}
			return nil
		}
		if filepath.Ext(p) != ".go" {
			return nil
		}
		// All files, because build tags hide some from go list.
		f, err := parser.ParseFile(token.NewFileSet(), p, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		var imports []string
		for _, i := range f.Imports {
			name, err := strconv.Unquote(i.Path.Value)
			if err != nil {
				return err
			}
			imports = append(imports, name)
		}
		files[filepath.ToSlash(rel)] = imports
		return nil
	})
	require.NoError(t, err)
	require.Contains(t, files, "backend/backend.go")
	require.Empty(t, Stray(files))
}

// clean is a graph that breaks no rule.
var clean = Graph{
	"pmnbd/backend":            {"fmt"},
	"pmnbd/backend/gonbd":      {"pmnbd/backend"},
	"pmnbd/backend/remote":     {"pmnbd/backend", "pmnbd/persist", "pmnbd/rdma"},
	"pmnbd/cmd/internal/flags": {"fmt"},
	"pmnbd/cmd/pmnbd":          {"pmnbd/cmd/internal/flags", "pmnbd/nbd", "pmnbd/backend/remote", "pmnbd/rdma/iwarp"},
	"pmnbd/nbd":                {"pmnbd/backend", "pmnbd/internal/sockio"},
	"pmnbd/persist":            {"fmt"},
	"pmnbd/rdma":               {"fmt"},
	"pmnbd/rdma/iwarp":         {"pmnbd/rdma", "pmnbd/internal/sockio"},
	"pmnbd/rdma/rdmatest":      {"pmnbd/rdma", "testing"},
	"pmnbd/internal/sockio":    {"net"},
}

// violations add to clean what breaks one rule, or what must break none.
var violations = []struct {
	name string
	add  Graph
	want []string
}{
	{
		name: "nbd reaches rdma through another package",
		add:  Graph{"pmnbd/nbd": {"pmnbd/glue"}, "pmnbd/glue": {"pmnbd/rdma"}},
		want: []string{"nbd links no RDMA and no persistence: pmnbd/nbd -> pmnbd/glue -> pmnbd/rdma"},
	},
	{
		name: "a package below nbd counts as nbd",
		add:  Graph{"pmnbd/nbd/wire": {"pmnbd/persist"}},
		want: []string{"nbd links no RDMA and no persistence: pmnbd/nbd/wire -> pmnbd/persist"},
	},
	{
		name: "ublk borrows from nbd",
		add:  Graph{"pmnbd/ublk": {"pmnbd/nbd/wire"}},
		want: []string{"ublk links no RDMA, no persistence and no other protocol server: pmnbd/ublk -> pmnbd/nbd/wire"},
	},
	{
		name: "rdma knows a message of persist",
		add:  Graph{"pmnbd/rdma": {"pmnbd/persist/wire"}, "pmnbd/rdma/iwarp": nil, "pmnbd/rdma/rdmatest": nil, "pmnbd/persist": nil, "pmnbd/backend/remote": nil},
		want: []string{"rdma links no persistence, no device and no protocol server: pmnbd/rdma -> pmnbd/persist/wire"},
	},
	{
		name: "backend is a leaf",
		add:  Graph{"pmnbd/backend": {"pmnbd/internal/sockio"}},
		want: []string{"backend, persist and sockio link no package of this module: pmnbd/backend -> pmnbd/internal/sockio"},
	},
	{
		name: "the adapter knows a device",
		add:  Graph{"pmnbd/backend/gonbd": {"pmnbd/backend/mem"}},
		want: []string{"an adapter links no device and no protocol server: pmnbd/backend/gonbd -> pmnbd/backend/mem"},
	},
	{
		name: "persistence knows the device",
		add:  Graph{"pmnbd/persist/target": {"pmnbd/backend"}},
		want: []string{"persistence links no device and no protocol server: pmnbd/persist/target -> pmnbd/backend"},
	},
	{
		name: "a decision of the mirror reads a clock",
		add:  Graph{"pmnbd/internal/mirror": {"pmnbd/persist", "time"}},
		want: []string{"the mirror's decisions link records alone, and do no I/O: pmnbd/internal/mirror -> time"},
	},
	{
		name: "a library chooses its provider",
		add:  Graph{"pmnbd/backend/remote": {"pmnbd/rdma/verbs"}},
		want: []string{"only commands link verbs: pmnbd/backend/remote -> pmnbd/rdma/verbs"},
	},
	{
		name: "a library chooses its log",
		add:  Graph{"pmnbd/nbd": {"go.uber.org/zap"}},
		want: []string{"only commands and tests log with zap: pmnbd/nbd -> go.uber.org/zap"},
	},
	{
		name: "a library imports a command",
		add:  Graph{"pmnbd/numa": {"pmnbd/cmd/internal/flags"}},
		want: []string{"nothing imports a command: pmnbd/numa -> pmnbd/cmd/internal/flags"},
	},
	{
		name: "the server speaks netlink",
		add:  Graph{"pmnbd/nbd": {"github.com/mdlayher/netlink"}},
		want: []string{"only commands speak netlink, through cmd/pmnbd/internal/kernel and cmd/internal/localuser: pmnbd/nbd -> github.com/mdlayher/netlink"},
	},
	{
		name: "a command links the testing package",
		add:  Graph{"pmnbd/cmd/pmnbd-bench": {"pmnbd/rdma/rdmatest"}},
		want: []string{"nothing links the tests: pmnbd/cmd/pmnbd-bench -> pmnbd/rdma/rdmatest -> testing"},
	},
	{
		name: "a command takes a file for persistent memory",
		add:  Graph{"pmnbd/cmd/pmnbd-target": {"pmnbd/persist/region/regiontest"}},
		want: []string{"nothing links the tests: pmnbd/cmd/pmnbd-target -> pmnbd/persist/region/regiontest"},
	},
	{
		name: "a cycle does not hang the search",
		add:  Graph{"pmnbd/nbd": {"pmnbd/a"}, "pmnbd/a": {"pmnbd/nbd"}},
	},
	{
		name: "a name that only begins alike is another package",
		add:  Graph{"pmnbd/nbd": {"pmnbd/rdmaish"}},
	},
}

// TestViolations breaks each rule once.
func TestViolations(t *testing.T) {
	require.Empty(t, Violations(clean, Rules))
	for _, tc := range violations {
		t.Run(tc.name, func(t *testing.T) {
			g := Graph{}
			for p, imports := range clean {
				g[p] = imports
			}
			for p, imports := range tc.add {
				g[p] = imports
			}
			require.Equal(t, tc.want, Violations(g, Rules))
		})
	}
}

func TestStray(t *testing.T) {
	for _, tc := range []struct {
		name, file, imports string
		want                []string
	}{
		{name: "a file made for it", file: "internal/sockio/writev_unsafe.go", imports: "unsafe"},
		{name: "its test", file: "internal/sockio/writev_unsafe_test.go", imports: "unsafe"},
		{name: "verbs may", file: "rdma/verbs/post.go", imports: "unsafe C"},
		{name: "anywhere else", file: "nbd/conn.go", imports: "unsafe",
			want: []string{"nbd/conn.go: unsafe lives in *_unsafe.go and rdma/verbs"}},
		{name: "a test elsewhere", file: "nbd/conn_test.go", imports: "unsafe",
			want: []string{"nbd/conn_test.go: unsafe lives in *_unsafe.go and rdma/verbs"}},
		{name: "cgo elsewhere, whatever the file's name", file: "internal/flush/clwb_unsafe.go", imports: "unsafe C",
			want: []string{"internal/flush/clwb_unsafe.go: cgo lives in rdma/verbs"}},
		{name: "below verbs is elsewhere", file: "rdma/verbs/sub/x.go", imports: "C",
			want: []string{"rdma/verbs/sub/x.go: cgo lives in rdma/verbs"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			require.Equal(t, tc.want, Stray(map[string][]string{tc.file: strings.Fields(tc.imports)}))
		})
	}
}
