package mutants

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"pmnbd/internal/testhost"
)

// root is the module's directory, relative to this package.
const root = "../.."

// A mutant breaks one rule.
type mutant struct {
	name string
	rule string // of the design or of docs/rules.md
	// in, old and new are an edit. also has the other edits of a mutant that needs several.
	in, old, new string
	also         []edit
	// pkg and run name the test that must catch it.
	pkg, run string
	// hangs says that the test fails by waiting for something that can no longer happen.
	hangs bool
	// needs names a program without which the test skips.
	needs string
	// few says that every run builds the mutant, not only PMNBD_MUTANTS=all.
	few bool
}

// crashes, in model, knows no rule, only what NBD allows.
const (
	crashes = "^TestCrashes$"
	model   = "./test/property"
)

var table = slices.Concat(barriers, places, window, clients, blockDevices, recovery, inheritance, lives, mirrors, turns, followers, memberships, sturdy, methods, sessions, saves, strangers, regions, protection, disks, lines, latencies, healths, mistakes, trust, bads, partials)

// mutate returns the files with the mutant in them, by path.
func (m *mutant) mutate(t *testing.T, sources tree) map[string]string {
	t.Helper()
	files, err := sources.plant(append([]edit{{m.in, m.old, m.new}}, m.also...))
	require.NoError(t, err, m.name)
	return files
}

// TestTable checks that each mutant can be planted, and that no two have one name.
func TestTable(t *testing.T) {
	sources := make(tree)
	names := make(map[string]bool)
	for _, m := range table {
		require.NotEmpty(t, m.mutate(t, sources))
		require.False(t, names[m.name], "%s: twice", m.name)
		names[m.name] = true
		require.NotEmpty(t, m.rule, m.name)
		require.Regexp(t, `^\^Test\w+\$$`, m.run, "%s: one test", m.name)
	}
}

// TestMutants runs each mutant against its test, which must fail.
func TestMutants(t *testing.T) {
	all := os.Getenv("PMNBD_MUTANTS") == "all"
	sources := make(tree)
	for _, m := range table {
		if all || m.few {
			t.Run(m.name, func(t *testing.T) { m.kill(t, m.mutate(t, sources)) })
		}
	}
}

// kill runs the test on the broken code.
func (m *mutant) kill(t *testing.T, broken map[string]string) {
	if m.needs != "" {
		if _, err := exec.LookPath(m.needs); err != nil {
			t.Skipf("no %s (scripts/install-deps test)", m.needs)
		}
	}
	dir := t.TempDir()
	replace := make(map[string]string)
	for name, src := range broken {
		file := filepath.Join(dir, strings.ReplaceAll(name, "/", "-"))
		require.NoError(t, os.WriteFile(file, []byte(src), 0o600))
		whole, err := filepath.Abs(filepath.Join(root, name))
		require.NoError(t, err)
		replace[whole] = file
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	require.NoError(t, err)
	spec := filepath.Join(dir, "overlay.json")
	require.NoError(t, os.WriteFile(spec, overlay, 0o600))

	args := []string{"test", "-count=1", "-timeout=3m", "-run=" + m.run, m.pkg}
	if m.hangs {
		args[2] = "-timeout=40s"
	}
	if m.pkg == model {
		args = append(args, "-rapid.checks=300", "-rapid.shrinktime=1ms", "-rapid.nofailfile", "-once") // broken code may hang in what follows
	}
	ctx, cancel := context.WithTimeout(context.Background(), 6*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = root
	// In the environment, so that binaries that the test builds are broken, too.
	cmd.Env = append(os.Environ(), "GOFLAGS="+os.Getenv("GOFLAGS")+" -overlay="+spec)
	// A test that panics removes nothing. Its sockets need short names.
	temp, err := os.MkdirTemp("", "mutant")
	require.NoError(t, err)
	require.NoError(t, os.Chmod(temp, 0o755)) // a test runs binaries in it as another user
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(temp)) })
	cmd.Env = append(cmd.Env, "TMPDIR="+temp, testhost.MemoryEnv+"="+testhost.Memory(t), testhost.DiskEnv+"="+testhost.Disk(t))
	began := time.Now()
	out, err := cmd.CombinedOutput()
	text := string(out)
	require.Error(t, err, "survived: %s\n%s", m.rule, text)
	require.NotContains(t, text, "[build failed]")
	require.NotContains(t, text, "no tests to run")
	if !m.hangs {
		require.NotContains(t, text, "test timed out")
	}
	require.Contains(t, text, "FAIL")
	t.Logf("%s: caught by %s after %v: %s", m.rule, m.run, time.Since(began).Round(100*time.Millisecond), cause(text))
}

// cause returns the line in which a failed test says what it saw.
func cause(text string) string {
	for line := range strings.Lines(text) {
		for _, mark := range []string{"Error:", "panic", "[rapid] failed", "[rapid] flaky", "Messages:"} {
			if strings.Contains(line, mark) {
				return strings.TrimSpace(line)
			}
		}
	}
	return "see its output"
}
