package mutants

import (
	"context"
	"encoding/json"
	"go/format"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// root is the module's directory, seen from here.
const root = "../.."

// A mutant is a broken rule.
type mutant struct {
	name string
	rule string // of the design
	file string
	old  string // occurs once in file
	new  string // takes its place
	// pkg and run name the test that must catch it.
	pkg, run string
	// hangs: the test waits for what can no longer happen.
	hangs bool
	// few: CI builds it.
	few bool
}

// crashes and property are the tests that know no rule, only what NBD allows.
const (
	crashes = "^TestCrashes$"
	model   = "./test/property"
)

// mutate is the file with the mutant in it.
func (m *mutant) mutate(t *testing.T) []byte {
	src, err := os.ReadFile(filepath.Join(root, m.file))
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(string(src), m.old), "the code that it breaks is not there any more, or twice: %s\n%s", m.file, m.old)
	broken := []byte(strings.Replace(string(src), m.old, m.new, 1))
	_, err = format.Source(broken)
	require.NoError(t, err, m.file)
	return broken
}

// TestMutants runs each mutant against its test, which must fail.
func TestMutants(t *testing.T) {
	all := os.Getenv("PMNBD_MUTANTS") == "all"
	for _, m := range table {
		t.Run(m.name, func(t *testing.T) {
			broken := m.mutate(t)
			if !all && !m.few {
				t.Skip("PMNBD_MUTANTS=all builds it")
			}
			m.kill(t, broken)
		})
	}
}

// kill runs the test on the broken code.
func (m *mutant) kill(t *testing.T, broken []byte) {
	dir := t.TempDir()
	file := filepath.Join(dir, filepath.Base(m.file))
	require.NoError(t, os.WriteFile(file, broken, 0o600))
	whole, err := filepath.Abs(filepath.Join(root, m.file))
	require.NoError(t, err)
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {whole: file}})
	require.NoError(t, err)
	spec := filepath.Join(dir, "overlay.json")
	require.NoError(t, os.WriteFile(spec, overlay, 0o600))

	args := []string{"test", "-count=1", "-timeout=3m", "-overlay=" + spec, "-run=" + m.run, m.pkg}
	if m.hangs {
		args[2] = "-timeout=40s"
	}
	if m.pkg == model {
		args = append(args, "-rapid.checks=300", "-rapid.shrinktime=1ms", "-rapid.nofailfile")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 6*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = root
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

// cause is the line of a failed test that says what it saw.
func cause(text string) string {
	for line := range strings.Lines(text) {
		for _, mark := range []string{"Error:", "panic", "[rapid] failed", "Messages:"} {
			if strings.Contains(line, mark) {
				return strings.TrimSpace(line)
			}
		}
	}
	return "see its output"
}
