package lab

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// limit is how long a guest of Run may take, unless the test's own deadline is nearer:
// ten times what the slowest takes under TCG on an idle machine.
const limit = 10 * time.Minute

// Inside says whether this process runs in a guest of the lab.
func Inside() bool { return os.Getenv(guestVar) != "" }

// Need skips the test where guests cannot be booted, with the reason.
func Need(t testing.TB) {
	t.Helper()
	if !Inside() && os.Getenv(kernelVar) == "" {
		t.Skip("no guest to run it in: `make lab` boots one")
	}
}

// Memory makes a file of size bytes for Guest.NVDIMM, which lives as long as the test.
// In a guest it makes nothing.
func Memory(t testing.TB, size int64) string {
	t.Helper()
	Need(t)
	if Inside() {
		return ""
	}
	path := filepath.Join(t.TempDir(), "nvdimm")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, size); err != nil {
		t.Fatal(err)
	}
	return path
}

// Run runs fn in a guest: there the very same test of the same binary is run, and no
// other. What the test does before is done on both sides.
func Run(t *testing.T, g Guest, fn func(t *testing.T)) {
	t.Helper()
	Need(t)
	if Inside() {
		fn(t)
		return
	}
	m := Start(t, g)
	code, err := m.Wait()
	finish(t, m, code, err)
}

// Start boots g for the calling test: its command is that test, run in the guest,
// unless it has one. The test's end is the guest's.
func Start(t *testing.T, g Guest) *Machine {
	t.Helper()
	Need(t)
	if g.Command == nil {
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		g.Command = []string{self, "-test.v", "-test.run", pattern(t.Name())}
		if testing.Short() {
			g.Command = append(g.Command, "-test.short")
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	m, err := Boot(ctx, g)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m
}

// pattern matches the test called name alone.
func pattern(name string) string {
	parts := strings.Split(name, "/")
	for i, p := range parts {
		parts[i] = "^" + regexp.QuoteMeta(p) + "$"
	}
	return strings.Join(parts, "/")
}

// finish makes the guest's result the test's.
func finish(t *testing.T, m *Machine, code int, err error) {
	t.Helper()
	verdict := relay(m.Log(), t.Name(), testing.Verbose() || code != 0 || err != nil)
	switch {
	case err != nil:
		t.Fatal(err)
	case code == 0 && verdict == "PASS":
		t.Logf("in a guest, accelerator %s", accelerator())
	case code == 0 && verdict == "SKIP":
		t.Skip("skipped in the guest, see above")
	default:
		console, _ := m.console.next()
		t.Fatalf("in the guest: exit code %d, verdict %q; its console:\n%s", code, verdict, console)
	}
}

// Lines by which a test binary tells how its tests go.
var progress = regexp.MustCompile(`^ *(?:=== (?:RUN|PAUSE|CONT) +|--- (PASS|FAIL|SKIP): )(\S+)`)

// relay prints the log of the test called name, which ran in a guest, but for what this
// side says itself of that test and of those that it is a part of. It returns the
// guest's verdict.
func relay(log, name string, print bool) (verdict string) {
	for line := range strings.Lines(log) {
		if m := progress.FindStringSubmatch(line); m != nil && strings.HasPrefix(name+"/", m[2]+"/") {
			if m[2] == name && m[1] != "" {
				verdict = m[1]
			}
		} else if print && line != "PASS\n" {
			_, _ = os.Stdout.WriteString(line) // as go test does
		}
	}
	return verdict
}
