// Package arch checks the architecture (design §8): which package may link which, and where
// unsafe code may live. The linter checks direct imports. This package checks the rules that
// hold through any number of packages, and those that hold in files which the present build
// tags leave out.
//
// It imports no other package of this module; it reads their source.
package arch

import (
	"path"
	"slices"
	"strings"
)

// A Graph maps a package to its direct imports.
type Graph map[string][]string

// A Rule names packages that must not be linked.
type Rule struct {
	Name string
	// From and To are import paths; a trailing /... takes in the tree below.
	From, To []string
	// Except lists packages of From to which the rule does not apply.
	Except []string
}

// Rules are the transitive rules.
var Rules = []Rule{
	{
		Name: "nbd links no RDMA and no persistence",
		From: []string{"pmnbd/nbd/..."},
		To:   []string{"pmnbd/rdma/...", "pmnbd/persist/...", "pmnbd/backend/remote"},
	},
	{
		Name: "ublk links no RDMA, no persistence and no other protocol server",
		From: []string{"pmnbd/ublk/..."},
		To:   []string{"pmnbd/rdma/...", "pmnbd/persist/...", "pmnbd/backend/remote", "pmnbd/nbd/..."},
	},
	{
		Name: "only commands speak netlink, through cmd/pmnbd/internal/kernel and cmd/internal/localuser",
		From: []string{"pmnbd/..."},
		To:   []string{"github.com/mdlayher/netlink/...", "github.com/mdlayher/genetlink/..."},
		Except: []string{
			"pmnbd/cmd/...",
		},
	},
	{
		Name:   "only cmd/pmnbd/internal/arbiter speaks to etcd",
		From:   []string{"pmnbd/..."},
		To:     []string{"go.etcd.io/...", "google.golang.org/grpc/..."},
		Except: []string{"pmnbd/cmd/pmnbd/..."},
	},
	{
		Name: "rdma links no persistence, no device and no protocol server",
		From: []string{"pmnbd/rdma/..."},
		To:   []string{"pmnbd/persist/...", "pmnbd/backend/...", "pmnbd/nbd/..."},
	},
	{
		Name: "backend, persist and sockio link no package of this module",
		From: []string{"pmnbd/backend", "pmnbd/persist", "pmnbd/internal/sockio"},
		To:   []string{"pmnbd/..."},
	},
	{
		Name: "an adapter links no device and no protocol server",
		From: []string{"pmnbd/backend/gonbd"},
		To:   []string{"pmnbd/backend/mem", "pmnbd/backend/remote", "pmnbd/nbd/...", "pmnbd/persist/...", "pmnbd/rdma/..."},
	},
	{
		Name: "persistence links no device and no protocol server",
		From: []string{"pmnbd/persist/..."},
		To:   []string{"pmnbd/backend/...", "pmnbd/nbd/..."},
	},
	{
		Name: "the mirror's decisions link records alone, and do no I/O",
		From: []string{"pmnbd/internal/mirror"},
		To: []string{
			"pmnbd/backend/...", "pmnbd/nbd/...", "pmnbd/rdma/...", "pmnbd/persist/region/...", "pmnbd/persist/target", "pmnbd/persist/wire",
			"net/...", "os", "sync/...", "time",
		},
	},
	{
		Name: "only commands choose a provider, and backend/remote's Open takes iwarp by default",
		From: []string{"pmnbd/..."},
		To:   []string{"pmnbd/rdma/iwarp"},
		Except: []string{
			"pmnbd/cmd/...", "pmnbd/test/...", "pmnbd/rdma/iwarp", "pmnbd/backend/remote",
		},
	},
	{
		Name: "only commands link verbs",
		From: []string{"pmnbd/..."},
		To:   []string{"pmnbd/rdma/verbs"},
		Except: []string{
			"pmnbd/cmd/...", "pmnbd/test/...", "pmnbd/rdma/verbs",
		},
	},
	{
		Name: "only commands and tests log with zap",
		From: []string{"pmnbd/..."},
		To:   []string{"go.uber.org/zap/..."},
		Except: []string{
			"pmnbd/cmd/...", "pmnbd/test/...", "pmnbd/internal/logtest",
		},
	},
	{
		Name:   "nothing imports a command",
		From:   []string{"pmnbd/..."},
		To:     []string{"pmnbd/cmd/..."},
		Except: []string{"pmnbd/cmd/..."},
	},
	{
		Name:   "nothing links the tests",
		From:   []string{"pmnbd/..."},
		To:     []string{"pmnbd/test/...", "pmnbd/persist/region/regiontest", "testing"},
		Except: []string{"pmnbd/test/...", "pmnbd/rdma/rdmatest", "pmnbd/backend/backendtest", "pmnbd/internal/devicetest", "pmnbd/internal/etcdtest"},
	},
}

// Violations returns one line for each package that breaks a rule, with the shortest chain of
// imports by which it does.
func Violations(g Graph, rules []Rule) []string {
	var found []string
	for _, r := range rules {
		for pkg := range g {
			if !matches(r.From, pkg) || matches(r.Except, pkg) {
				continue
			}
			if chain := reach(g, pkg, r.To); chain != nil {
				found = append(found, r.Name+": "+strings.Join(chain, " -> "))
			}
		}
	}
	slices.Sort(found)
	return found
}

// reach returns the shortest chain of imports from pkg to one of to, or nil.
func reach(g Graph, pkg string, to []string) []string {
	cameFrom := map[string]string{pkg: ""}
	for queue := []string{pkg}; len(queue) > 0; queue = queue[1:] {
		for _, next := range g[queue[0]] {
			if _, seen := cameFrom[next]; seen {
				continue
			}
			cameFrom[next] = queue[0]
			if !matches(to, next) {
				queue = append(queue, next)
				continue
			}
			var chain []string
			for p := next; p != ""; p = cameFrom[p] {
				chain = append(chain, p)
			}
			slices.Reverse(chain)
			return chain
		}
	}
	return nil
}

func matches(patterns []string, pkg string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		tree, isTree := strings.CutSuffix(p, "/...")
		return pkg == tree || isTree && strings.HasPrefix(pkg, tree+"/")
	})
}

// Stray returns one line for each file that imports unsafe or uses cgo outside the places made
// for them. files maps a file's path, relative to the module and with slashes, to its imports.
func Stray(files map[string][]string) []string {
	var found []string
	for file, imports := range files {
		inVerbs := path.Dir(file) == "rdma/verbs"
		name := strings.TrimSuffix(strings.TrimSuffix(file, ".go"), "_test")
		if slices.Contains(imports, "unsafe") && !inVerbs && !strings.HasSuffix(name, "_unsafe") {
			found = append(found, file+": unsafe lives in *_unsafe.go and rdma/verbs")
		}
		if slices.Contains(imports, "C") && !inVerbs {
			found = append(found, file+": cgo lives in rdma/verbs")
		}
	}
	slices.Sort(found)
	return found
}
