package lab

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// How long a guest of a test may take.
const (
	// limit ends a test that hangs. The slowest one, TestAttach, takes 13 minutes under TCG on a machine of two CPUs and a
	// load of ten.
	limit = 40 * time.Minute
	// reserve is kept of the test's own time, to find out why a guest was slow.
	reserve = 2 * confession
)

// Inside reports whether this process runs in a guest of the lab.
func Inside() bool { return os.Getenv(guestVar) != "" }

// Need skips the test where no guest can boot.
func Need(t testing.TB) {
	t.Helper()
	if !Inside() && os.Getenv(kernelVar) == "" {
		t.Skip("needs a guest: run `make lab`")
	}
}

// Memory makes a file of size bytes for Guest.NVDIMM and removes it when the test ends. In a
// guest it makes nothing.
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

// Run runs fn in a guest, by running the same test of the same binary there. What the test does
// before Run happens on both sides.
func Run(t *testing.T, g Guest, fn func(t *testing.T)) {
	t.Helper()
	Need(t)
	if Inside() {
		fn(t)
		return
	}
	Finish(t, Start(t, g))
}

// cutMark is what a guest prints when its power is to be cut.
const cutMark = "lab: cut the power\n"

// Cut is Run with a power cut at the moment when fn returns. The cut hits whatever fn left
// running; nothing is cleaned up.
func Cut(t *testing.T, g Guest, fn func(t *testing.T)) {
	t.Helper()
	Need(t)
	if Inside() {
		if fn(t); !t.Failed() {
			_, _ = os.Stdout.WriteString(cutMark)
			select {}
		}
		return
	}
	m := Start(t, g)
	err := m.WaitFor(context.Background(), cutMark) // Start has bounded the guest
	m.Kill()
	relay(m.Log(), t.Name(), testing.Verbose() || err != nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("in a guest, accelerator %s, until its power was cut", accelerator())
}

// Start boots g for the calling test. Unless g has a command, it runs that test in the guest.
// The guest ends with the test at the latest.
func Start(t *testing.T, g Guest) *Machine {
	t.Helper()
	Need(t)
	end := time.Now().Add(limit)
	if d, ok := t.Deadline(); ok && d.Add(-reserve).Before(end) {
		end = d.Add(-reserve)
	}
	if g.Command == nil {
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		// The test in the guest has a shorter limit than the guest: when it reaches that, it
		// prints its goroutines.
		own := (time.Until(end) * 3 / 4).Round(time.Second)
		g.Command = []string{self, "-test.v", "-test.timeout", own.String(), "-test.run", pattern(t.Name())}
		if testing.Short() {
			g.Command = append(g.Command, "-test.short")
		}
	}
	ctx, cancel := context.WithDeadline(context.Background(), end)
	t.Cleanup(cancel)
	m, err := Boot(ctx, g)
	if errors.Is(err, errNoKernel) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m
}

// pattern returns a regular expression that matches only the test called name.
func pattern(name string) string {
	parts := strings.Split(name, "/")
	for i, p := range parts {
		parts[i] = "^" + regexp.QuoteMeta(p) + "$"
	}
	return strings.Join(parts, "/")
}

// Finish waits for the end of a guest that runs the calling test, prints the guest's output,
// and gives the test the guest's result.
func Finish(t *testing.T, m *Machine) {
	t.Helper()
	code, err := m.Wait()
	verdict := relay(m.Log(), t.Name(), testing.Verbose() || code != 0 || err != nil)
	switch {
	case err != nil:
		t.Fatal(err)
	case code == 0 && verdict == "PASS":
		t.Logf("in a guest, accelerator %s", accelerator())
	case code == 0 && verdict == "SKIP":
		t.Skip("skipped in the guest; the reason is above")
	default:
		console, _ := m.console.next()
		t.Fatalf("in the guest: exit code %d, verdict %q; its console:\n%s", code, verdict, console)
	}
}

// progress matches the lines by which a test binary reports how its tests go.
var progress = regexp.MustCompile(`^ *(?:=== (?:RUN|PAUSE|CONT) +|--- (PASS|FAIL|SKIP): )(\S+)`)

// relay prints the log of the test called name, which ran in a guest. It leaves out lines that
// this side prints itself, on that test and its parents. It returns the guest's verdict.
func relay(log, name string, print bool) (verdict string) {
	for line := range strings.Lines(log) {
		if m := progress.FindStringSubmatch(line); m != nil && strings.HasPrefix(name+"/", m[2]+"/") {
			if m[2] == name && m[1] != "" {
				verdict = m[1]
			}
		} else if print && line != "PASS\n" && line != cutMark && line != upMark {
			_, _ = os.Stdout.WriteString(line) // as go test does
		}
	}
	return verdict
}
