package arch

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// shownMetrics returns the metrics that docs/status.md lists, each with its labels. Another test
// (test/e2e, TestMetrics) compares the page with what the daemons say.
func shownMetrics(t *testing.T) map[string][]string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(root, "docs/status.md"))
	require.NoError(t, err)
	quoted := func(s string) (words []string) {
		for _, w := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(s, -1) {
			words = append(words, w[1])
		}
		return words
	}
	all := map[string][]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| (`pmnbd_.*?) \\| (.*?) ?\\|").FindAllStringSubmatch(string(page), -1) {
		for _, name := range quoted(row[1]) {
			all[name] = quoted(row[2])
			if strings.HasSuffix(name, "_duration_seconds") || strings.HasSuffix(name, "_outage_seconds") {
				for _, part := range []string{"_bucket", "_sum", "_count"} {
					all[name+part] = append([]string{"le"}, quoted(row[2])...)
				}
			}
		}
	}
	require.Greater(t, len(all), 50)
	return all
}

// unknown returns what an expression of PromQL names that no metric or label has.
func unknown(metrics map[string][]string, expr string) (wrong []string) {
	labels := []string{"instance", "job", "severity"}
	for _, name := range regexp.MustCompile(`\bpmnbd_[a-z_]+`).FindAllString(expr, -1) {
		if own, ok := metrics[name]; ok {
			labels = append(labels, own...)
		} else {
			wrong = append(wrong, name)
		}
	}
	used := regexp.MustCompile(`([a-z_]+) ?(?:=~|!~|!=|=)"`).FindAllStringSubmatch(expr, -1)
	for _, by := range regexp.MustCompile(`(?:by|on|without) \(([^)]*)\)`).FindAllStringSubmatch(expr, -1) {
		for _, l := range strings.Split(by[1], ",") {
			used = append(used, []string{"", strings.TrimSpace(l)})
		}
	}
	for _, l := range used {
		if !slices.Contains(labels, l[1]) {
			wrong = append(wrong, l[1])
		}
	}
	return wrong
}

// dashboard returns the expressions of the dashboard by the panel and letter of each.
func dashboard(t *testing.T) map[string]string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, "dist/grafana/pmnbd.json"))
	require.NoError(t, err)
	var d struct {
		Panels []struct {
			ID      int
			Title   string
			GridPos struct{ X, Y, W, H int }
			Targets []struct{ RefID, Expr, LegendFormat string }
		}
	}
	require.NoError(t, json.Unmarshal(b, &d))
	all := map[string]string{}
	ids := map[int]bool{}
	for i, p := range d.Panels {
		require.False(t, ids[p.ID], p.Title)
		ids[p.ID] = true
		for _, other := range d.Panels[:i] {
			a, b := p.GridPos, other.GridPos
			require.True(t, a.X >= b.X+b.W || b.X >= a.X+a.W || a.Y >= b.Y+b.H || b.Y >= a.Y+a.H, "%s lies on %s", p.Title, other.Title)
		}
		require.NotEmpty(t, p.Targets, p.Title)
		for _, g := range p.Targets {
			all[fmt.Sprintf("%s, %s", p.Title, g.RefID)] = g.Expr
		}
	}
	return all
}

// The dashboard asks for metrics and labels that there are.
func TestDashboard(t *testing.T) {
	metrics := shownMetrics(t)
	require.Equal(t, []string{"pmnbd_sesion_state", "exprt"}, unknown(metrics, `sum by (exprt) (pmnbd_sesion_state{export="a"} == 1 or pmnbd_clients)`)[:2])
	for name, expr := range dashboard(t) {
		require.Empty(t, unknown(metrics, expr), "%s: %s", name, expr)
	}
}

// The alert rules name metrics and labels that there are, and docs/status.md says of each, with its
// severity, what to do. promtool finds no fault with them, nor with the dashboard's expressions.
func TestAlerts(t *testing.T) {
	metrics := shownMetrics(t)
	rules, err := os.ReadFile(filepath.Join(root, "dist/prometheus/alerts.yml"))
	require.NoError(t, err)
	page, err := os.ReadFile(filepath.Join(root, "docs/status.md"))
	require.NoError(t, err)
	all := regexp.MustCompile(`(?s)- alert: (\w+)\n\s+expr: ([^\n]+)\n(.*?)severity: (\w+)}`).FindAllStringSubmatch(string(rules), -1)
	require.Len(t, all, strings.Count(string(rules), "- alert: "), "each has a severity")
	for _, m := range all {
		require.Empty(t, unknown(metrics, m[2]), m[1])
		require.Contains(t, string(page), "\n| `"+m[1]+"` | "+m[4]+" |", "docs/status.md says what to do")
	}
	require.Equal(t, len(all), len(regexp.MustCompile("(?m)^\\| `Pmnbd").FindAllString(string(page), -1)), "and of no other")

	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("promtool of Debian's prometheus is missing: scripts/install-deps test")
	}
	check := func(args ...string) {
		t.Helper()
		cmd := exec.Command(promtool, args...)
		cmd.Dir = filepath.Join(root, "dist/prometheus")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	check("check", "rules", "alerts.yml")
	check("test", "rules", "alerts_test.yml")
	var as strings.Builder // rules with the dashboard's expressions
	as.WriteString("groups:\n- name: dashboard\n  rules:\n")
	n := 0
	for _, expr := range dashboard(t) {
		n++
		fmt.Fprintf(&as, "  - record: a%d\n    expr: %q\n", n, strings.NewReplacer("$__rate_interval", "5m", "$export", ".*").Replace(expr))
	}
	path := filepath.Join(t.TempDir(), "dashboard.yml")
	require.NoError(t, os.WriteFile(path, []byte(as.String()), 0o600))
	check("check", "rules", path)
}
