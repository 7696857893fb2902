package e2e

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/stretchr/testify/require"

	"pmnbd/internal/testhost"
)

// A scrape holds the values of a page of metrics, by name and labels.
type scrape map[string]string

// scraped returns the page that a process serves at its metrics address. The page must lint and
// have every series of the page on the control socket.
func scraped(t *testing.T, p *process, socket string) scrape {
	t.Helper()
	p.waitLog(t, "metrics are served")
	url := regexp.MustCompile(`http://(127\.0\.0\.1:[0-9]+)/metrics`).FindStringSubmatch(p.stderr.String())
	require.NotNil(t, url)
	byTCP, bySocket := page(t, "tcp", url[1]), page(t, "unix", socket)
	problems, err := promlint.New(strings.NewReader(byTCP)).Lint()
	require.NoError(t, err)
	require.Empty(t, problems)
	s := values(byTCP)
	for series := range values(bySocket) {
		require.Contains(t, s, series)
	}
	for _, one := range []string{"go_goroutines", "process_cpu_seconds_total", "process_open_fds"} {
		require.Regexp(t, "(?m)^"+one+" ", byTCP)
	}
	return s
}

// page returns the page of metrics at an address.
func page(t *testing.T, network, address string) string {
	t.Helper()
	client := http.Client{Timeout: outer, Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(context.Context, string, string) (net.Conn, error) {
		return net.Dial(network, address)
	}}}
	res, err := client.Get("http://pmnbd/metrics")
	require.NoError(t, err)
	body, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	require.Equal(t, http.StatusOK, res.StatusCode, "%s", body)
	return string(body)
}

func values(page string) scrape {
	s := scrape{}
	for _, m := range regexp.MustCompile(`(?m)^(pmnbd_.*) (\S+)$`).FindAllStringSubmatch(page, -1) {
		s[m[1]] = m[2]
	}
	return s
}

// labelled returns the names in s, each with the names of its labels.
func (s scrape) labelled() map[string][]string {
	all := map[string][]string{}
	for series := range s {
		name, _, _ := strings.Cut(series, "{")
		labels := []string{}
		for _, l := range regexp.MustCompile(`([a-z_]+)="`).FindAllStringSubmatch(series, -1) {
			labels = append(labels, l[1])
		}
		if base, part := histogram(name); base != "" {
			if part != "sum" { // it has the labels of the metric
				continue
			}
			name = base
		}
		slices.Sort(labels)
		all[name] = labels
	}
	return all
}

// histogram returns the histogram that a series is a part of, and which part, or "".
func histogram(series string) (name, part string) {
	if m := regexp.MustCompile(`^(.*_seconds)_(bucket|sum|count)$`).FindStringSubmatch(series); m != nil {
		return m[1], m[2]
	}
	return "", ""
}

// documentedMetrics returns the metrics and labels that docs/status.md lists between two
// headings.
func documentedMetrics(t *testing.T, from, to string) map[string][]string {
	t.Helper()
	text, err := os.ReadFile("../../docs/status.md")
	require.NoError(t, err)
	_, part, found := strings.Cut(string(text), from)
	require.True(t, found, from)
	part, _, found = strings.Cut(part, to)
	require.True(t, found, to)
	quoted := func(s string) []string {
		words := []string{}
		for _, w := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(s, -1) {
			words = append(words, w[1])
		}
		return words
	}
	all := map[string][]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| (`pmnbd_.*?) \\| (.*?) ?\\|").FindAllStringSubmatch(part, -1) {
		labels := quoted(row[2])
		slices.Sort(labels)
		for _, name := range quoted(row[1]) {
			require.NotContains(t, all, name)
			all[name] = labels
		}
	}
	return all
}

// TestMetrics checks that both daemons tell Prometheus what they tell people, and that
// docs/status.md has all of it.
func TestMetrics(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	memory, battery := filepath.Join(testhost.Memory(t), "c"), filepath.Join(h.home, "battery")
	h.protected(t, "c", memory)
	require.NoError(t, os.WriteFile(battery, []byte("ups.status: OL\nbattery.runtime: 600\n"), 0o600))
	target := start(t, h.home, "pmnbd-target", "serve", "--listen", "iwarp://127.0.0.1:0", "--metrics", "0", "--battery-command", "cat "+battery,
		"--region", "a="+h.region(t, "a", "16M"), "--region", "b="+h.region(t, "b", "16M"), "--region", "c="+memory+",save="+h.disk)
	uri := target.waitReady(t)[0]
	pmnbd, unix, _ := h.initiator(t, uri, "a", "--lanes", "2", "--metrics", "127.0.0.1:0")
	c := dialNBD(t, unix)
	require.NoError(t, c.write(0, noise(t, 4096)))
	require.NoError(t, c.flush())
	require.NoError(t, c.write(0, noise(t, 8192)))
	socketOf := func(name string, p *process) string {
		return filepath.Join(h.home, "run", name+"-"+strconv.Itoa(p.cmd.Process.Pid)+".sock")
	}

	s := scraped(t, pmnbd, socketOf("a", pmnbd))
	require.Equal(t, documentedMetrics(t, "### What pmnbd says", "### What pmnbd-target says"), s.labelled())
	at := statusOf[targetStatus](t, h, "pmnbd-target", "status")[0].Regions
	var info string
	for series := range s {
		if strings.HasPrefix(series, "pmnbd_session_info{") {
			require.Empty(t, info, "one line for each export")
			info = series
		}
	}
	for _, label := range []string{`export="a"`, `region="a"`, `class="file"`, `method="gpspm"`, `target="` + strings.TrimPrefix(uri, "iwarp://") + `"`} {
		require.Contains(t, info, label)
	}
	for series, want := range map[string]string{
		info: "1",
		`pmnbd_session_state{export="a",state="open"}`:                     "1",
		`pmnbd_session_state{export="a",state="waiting"}`:                  "0",
		`pmnbd_session_state{export="a",state="failed"}`:                   "0",
		`pmnbd_session_doubt{export="a"}`:                                  "0",
		`pmnbd_session_epoch{export="a"}`:                                  strconv.FormatUint(at[0].Epoch, 10),
		`pmnbd_barriers_total{export="a"}`:                                 "1",
		`pmnbd_barrier_requests_total{export="a"}`:                         "1",
		`pmnbd_window_unflushed_bytes{export="a"}`:                         "8192",
		`pmnbd_commands_total{command="WRITE",export="a"}`:                 "2",
		`pmnbd_clients{export="a"}`:                                        "1",
		`pmnbd_command_duration_seconds_count{command="WRITE",export="a"}`: "2",
		`pmnbd_command_duration_seconds_count{command="FLUSH",export="a"}`: "1",
		`pmnbd_session_waiting_since_seconds{export="a"}`:                  "0",
	} {
		require.Equal(t, want, s[series], series)
	}
	require.Contains(t, s, `pmnbd_lane_work_requests_total{export="a",lane="1"}`)

	s = scraped(t, target, socketOf("target", target))
	require.Equal(t, documentedMetrics(t, "### What pmnbd-target says", "### What both say of a mirror"), s.labelled())
	for series, want := range map[string]string{
		`pmnbd_target_region_held{region="a"}`:                                                   "1",
		`pmnbd_target_region_held{region="b"}`:                                                   "0",
		`pmnbd_target_region_failed{region="a"}`:                                                 "0",
		`pmnbd_target_session_lanes{region="a"}`:                                                 "2",
		`pmnbd_target_session_lanes{region="b"}`:                                                 "0",
		`pmnbd_target_barriers_total{region="a"}`:                                                "1",
		`pmnbd_target_write_back_duration_seconds_count{region="a"}`:                             "0",
		`pmnbd_target_region_size_bytes{region="b"}`:                                             "1.6777216e+07",
		`pmnbd_target_image_whole{region="c"}`:                                                   "1",
		`pmnbd_target_battery_runtime_seconds`:                                                   "600",
		`pmnbd_target_session_info{method="gpspm",owner_id="` + at[0].Owner.ID + `",region="a"}`: "1",
	} {
		require.Equal(t, want, s[series], series)
	}
	c.close()
	pmnbd.stop(t)
	target.stop(t)
}
