package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A play is a page whose commands a test runs, in order, on machines of their own.
type play struct {
	page     string
	machines []string // app1 and pm1 to pm4; the first one types what has no NAME in its prompt
	needs    []peer
	before   string // a console block, without its fences: what the page takes for granted
	// skip has the beginnings of commands that cannot run here, each with the reason.
	skip map[string]string
	// aside has what a reader does beside the page, before the command that begins so.
	aside map[string]func(*testing.T, map[string]*machine)
}

// plays are all of them.
var plays = slices.Concat(guides, references)

// guides are plays of pages that lead a reader through something.
var guides = []play{
	{
		page: "README.md", machines: []string{"app1"},
		skip: map[string]string{"make demo": "TestDemo of test/lab runs it", "make test": "it runs this test"},
	},
	{page: "docs/tutorial.md", machines: []string{"app1"}, skip: map[string]string{"make build": "the test has built"}},
	{
		page: "docs/howto-containers.md", machines: []string{"app1"},
		before: `target$ pmnbd-target serve --region log=/srv/log,size=64M
ready iwarp://127.0.0.1:7204`,
	},
	{
		page: "docs/howto-qemu.md", machines: []string{"app1"},
		needs: []peer{{"qemu-system-x86_64", "qemu-system-x86"}},
		before: `target$ pmnbd-target serve --region vm=/srv/vm,size=64M
ready iwarp://127.0.0.1:7204
app$ pmnbd serve --target iwarp://127.0.0.1/vm --listen unix:/tmp/vm.sock
ready nbd+unix:///vm?socket=/tmp/vm.sock`,
	},
	{
		page: "docs/howto-regions.md", machines: []string{"app1"},
		before: `target$ pmnbd-target serve --region log=/srv/log,size=64M
ready iwarp://127.0.0.1:7204
app$ pmnbd serve --target iwarp://127.0.0.1/log --listen unix:/tmp/log.sock
ready nbd+unix:///log?socket=/tmp/log.sock
$ qemu-io -f raw -c 'write -P 9 1M 2M' -c flush 'nbd+unix:///log?socket=/tmp/log.sock'
wrote 2097152/2097152 bytes at offset 1048576`,
	},
	{
		page: "docs/howto-rotate-keys.md", machines: []string{"app1"},
		before: `$ install -d /etc/pmnbd && umask 077
$ pmnbd-target key new --initiator "$(pmnbd id)" --target pm1 >/etc/pmnbd/keys
$ cp /etc/pmnbd/keys /etc/pmnbd/key
target$ pmnbd-target serve --name pm1 --key-file /etc/pmnbd/keys --listen iwarps://127.0.0.1 --region log=/srv/log,size=64M
ready iwarps://127.0.0.1:7205
app$ pmnbd serve --key-file /etc/pmnbd/key --target iwarps://pm1@127.0.0.1/log --listen unix:/tmp/log.sock
ready nbd+unix:///log?socket=/tmp/log.sock`,
	},
	{
		page: "docs/howto-size.md", machines: []string{"app1"},
		before: `target$ pmnbd-target serve --region log=/srv/log,size=64M
ready iwarp://127.0.0.1:7204
app$ pmnbd serve --target iwarp://127.0.0.1/log --listen unix:/tmp/log.sock
ready nbd+unix:///log?socket=/tmp/log.sock`,
	},
	{page: "docs/tutorial-go.md", machines: []string{"app1"}},
	{
		page: "docs/tutorial-two-hosts.md", machines: []string{"app1", "pm1"},
		needs: []peer{{"promtool", "prometheus"}},
		skip: map[string]string{
			"install -m 755 bin/":          "a machine of the test has the binaries there",
			"apt install ":                 "scripts/packages-test installs the packages",
			"pmnbd attach ":                "needs the kernel's NBD client, as the next two",
			"mkfs.ext4 /dev/nbd0":          "test/lab makes filesystems",
			"mount /dev/nbd0":              "test/lab mounts them",
			"cp /usr/share/doc/pmnbd-doc":  "the package is not installed",
			"systemctl restart prometheus": "no Prometheus runs: promtool tests the rules",
		},
		aside: map[string]func(*testing.T, map[string]*machine){
			"(umask 077; pmnbd-target key new": func(t *testing.T, m map[string]*machine) {
				id := m["app1"].terminal(t, "app1").run(t, "runuser -u pmnbd -- pmnbd id --state-dir /var/lib/pmnbd")
				m["pm1"].terminal(t, "pm1").run(t, "ID="+strings.TrimSpace(id))
			},
			"chown pmnbd /etc/pmnbd/key ": func(t *testing.T, m map[string]*machine) {
				key := m["pm1"].terminal(t, "pm1").run(t, "cat /etc/pmnbd/keys")
				m["app1"].terminal(t, "app1").run(t, "echo '"+strings.TrimSpace(key)+"' >/etc/pmnbd/key")
			},
			"promtool check": func(t *testing.T, m map[string]*machine) {
				m["app1"].terminal(t, "app1").run(t, "cp dist/prometheus/alerts.yml /etc/prometheus/pmnbd-alerts.yml")
			},
		},
	},
}

// unrun has the pages whose commands no test of this package runs, each with the reason.
var unrun = map[string]string{
	"docs/attach.md":           "needs the kernel's NBD client: test/lab attaches (TestAttach, TestAttachRestart)",
	"docs/benchmarks.md":       "takes minutes, and judges times",
	"docs/compare.md":          "takes minutes, and judges times",
	"docs/contributing.md":     "has the targets of make, which .ci/run runs",
	"docs/growth.md":           "takes minutes, and judges times",
	"docs/howto-zfs-slog.md":   "needs ZFS, which the lab's kernel has not",
	"docs/howto-protected.md":  "needs 16 GiB of memory, and a UPS: TestProtectedSaved and the others beside it save and load less",
	"docs/howto-postgresql.md": "needs the kernel's NBD client: TestPostgres of test/lab has it, that of this package nbdfuse",
	"docs/howto-rdma.md":       "needs an adapter: test/lab runs software ones",
	"docs/install.md":          "changes the packages of a machine",
	"docs/lab.md":              "has the targets of make that run the lab",
	"docs/methods.md":          "takes minutes, and judges times",
	"docs/runbook.md":          "looks at what is broken: test/e2e breaks each",
	"docs/systemd.md":          "needs systemd; tutorial-two-hosts.md installs the units and runs their command lines",
}

// TestPages runs the commands of each page as the page has them, and compares what they print.
func TestPages(t *testing.T) {
	t.Parallel()
	for _, p := range plays {
		t.Run(p.page, func(t *testing.T) {
			t.Parallel()
			need(t, append(p.needs, nbdinfo, nbdcopy, qemuIO, qemuImg)...)
			text, err := os.ReadFile(filepath.Join("../..", p.page))
			require.NoError(t, err)
			machines := newMachines(t, p.machines...)
			do := func(s step) {
				m, ok := machines[s.terminal]
				if !ok {
					m = machines[p.machines[0]]
				}
				m.do(t, s)
			}
			for _, s := range steps("```console\n" + p.before + "\n```") {
				do(s)
			}
			for _, s := range steps(string(text)) {
				if skipped(p.skip, s.command) == "" {
					command, _, _ := strings.Cut(s.command, "\n")
					t.Logf("%s:%d: %s", p.page, s.line, command)
					for begin, does := range p.aside {
						if strings.HasPrefix(s.command, begin) {
							does(t, machines)
						}
					}
					do(s)
				}
			}
		})
	}
}

// skipped returns the beginning in skip that command has, or "".
func skipped(skip map[string]string, command string) string {
	for begin := range skip {
		if strings.HasPrefix(command, begin) {
			return begin
		}
	}
	return ""
}

// TestPagesAreRun checks that no page has commands that nobody runs: a page is in plays or in unrun,
// and what these leave out is still there and has a reason.
func TestPagesAreRun(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("../../docs/*.md")
	require.NoError(t, err)
	run := map[string]play{}
	for _, p := range plays {
		run[p.page] = p
	}
	for _, path := range append(pages, "../../README.md") {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		name, err := filepath.Rel("../..", path)
		require.NoError(t, err)
		p, isRun := run[name]
		delete(run, name)
		left := map[string]bool{}
		for _, s := range steps(string(text)) {
			where := fmt.Sprintf("%s:%d: %s", name, s.line, s.command)
			require.True(t, isRun || unrun[name] != "", "%s\nno test runs it: write the page for plays (docs/contributing.md), or give unrun the reason", where)
			require.False(t, !isRun && s.promised, "%s\na console block must run: the page is not in plays", where)
			left[skipped(p.skip, s.command)] = true
		}
		for begin, reason := range p.skip {
			require.True(t, left[begin], "%s has no command %q to leave out", name, begin)
			require.NotEmpty(t, reason)
		}
	}
	require.Empty(t, run, "pages that do not exist")
}
