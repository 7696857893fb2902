package compare

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"pmnbd/cmd/pmnbd-bench/internal/storage"
)

// fixed returns a report of made-up figures: an operation of the first subject takes from 50 µs, on the
// second slow times as long, and so on. A round's figures are 5 % above those of the round before it.
func fixed(t *testing.T, slow float64, places ...*place) *Report {
	t.Helper()
	cfg := Config{PerCell: 2 * time.Second, Rounds: 2, Area: 64 << 20, Connections: 1, patterns: Patterns(), System: storage.System{Root: t.TempDir()}}
	for _, p := range places {
		cfg.Operands = append(cfg.Operands, Operand{Label: p.Label})
	}
	r := newReport(cfg)
	r.Version, r.Began = "0.0.0", time.Date(2026, 1, 2, 15, 4, 0, 0, time.UTC)
	r.Host = Host{OS: "linux/amd64", Kernel: "6.1", CPU: "Some CPU <X>", CPUs: 8, Threads: 80, Busy: .01, root: t.TempDir()}
	factor := 1.0
	for _, place := range places {
		for _, p := range r.Patterns {
			for n := range cfg.Rounds {
				var workers []*worker
				c := r.cell(place.Label, p.Name)
				c.writers = min(p.Writers, 4) // more take long
				for range c.writers {
					w := &worker{latencies: newHistogram()}
					for i := range 2000 {
						us := 50 * factor * (1 + .05*float64(n)) * (1 + math.Pow(float64(i)/2000, 20)) * math.Sqrt(float64(p.Writers))
						began := time.Unix(0, 0).Add(w.busy)
						require.NoError(t, w.count(span{}, began, began.Add(time.Duration(us*1e3)), true))
						w.first = time.Unix(0, 0)
					}
					workers = append(workers, w)
				}
				require.NoError(t, c.add(workers))
			}
		}
		factor *= slow
	}
	r.finish(places)
	return r
}

func export(label string) *place {
	p := &place{Subject: Subject{Label: label, Given: "nbd://host/" + label, Form: FormExport, Kind: "NBD export", Size: 1 << 30}}
	p.Says = "region log, VOLATILE: FLUSH means visible at the target"
	p.judgeExport(Operand{Network: "tcp", Address: "host:10809"})
	return p
}

func directory(label string, st storage.Storage) *place {
	p := &place{Subject: Subject{Label: label, Given: "/var/" + label, Form: FormDirectory, Size: 64 << 20}}
	p.keptOn(st)
	return p
}

func ssd() storage.Storage {
	return storage.Storage{Kind: storage.Cached, Why: "of its model", Filesystem: "ext4", Device: "nvme0n1", Model: "Fast", WriteCache: "write back"}
}

func TestText(t *testing.T) {
	text := fixed(t, 10, export("memory"), directory("disk", ssd())).Text()
	for _, want := range []string{
		"With one writer, an append of 4 KiB with an fsync takes 52.5 µs on memory and 525 µs on disk (10 times as long).\n",
		"With 16 writers, memory completes 18.6k fsyncs a second and disk 1.86k (a factor of 10 less).\n",
		"This is not like for like: what an fsync covers does not survive a power loss on memory.\n",
		"warning: memory is of class volatile",
		"memory: NBD export, class volatile; size 1G; server region log, VOLATILE",
		"disk: SSD with a volatile write cache; disk nvme0n1 (Fast); filesystem ext4; write cache write back; because of its model.\n",
		"A closed loop",
	} {
		require.Contains(t, text, want)
	}
	// All rows have the same columns.
	rows := regexp.MustCompile(`(?m)^  (?:memory|disk) .*$`).FindAllString(text, -1)
	require.Len(t, rows, 2*len(Patterns()))
	for _, row := range rows {
		require.Len(t, []rune(row), len([]rune(rows[0])), row)
	}
}

func TestHeadline(t *testing.T) {
	for _, c := range []struct {
		name   string
		slow   float64
		places []*place
		want   []string
	}{
		{"equal", 1.01, []*place{directory("a", ssd()), directory("b", ssd())}, []string{"(" + overlap + ")"}},
		{"faster", .2, []*place{directory("a", ssd()), directory("b", ssd())}, []string{"5.0 times as fast", "5.0 times as many"}},
		{"three", 3, []*place{directory("a", ssd()), directory("b", ssd()), directory("c", ssd())}, []string{"on a, ", "(3.0 times as long) and ", "on c (9.0 times"}},
		{"one", 1, []*place{directory("a", ssd())}, []string{"takes 52.5 µs on a.", "a completes 18.6k fsyncs a second."}},
		{"one that forgets", 1, []*place{export("a")}, []string{"But what an fsync covers does not survive a power loss there."}},
	} {
		t.Run(c.name, func(t *testing.T) {
			lines := strings.Join(fixed(t, c.slow, c.places...).Headline, "\n")
			for _, want := range c.want {
				require.Contains(t, lines, want)
			}
		})
	}
}

// JSON has everything that the other forms show.
func TestJSON(t *testing.T) {
	r := fixed(t, 10, export("memory"), directory("disk", ssd()))
	b, err := r.JSON()
	require.NoError(t, err)
	back, err := Load(bytes.NewReader(b))
	require.NoError(t, err)
	require.Equal(t, r.Text(), back.Text())
	page, err := r.HTML()
	require.NoError(t, err)
	again, err := back.HTML()
	require.NoError(t, err)
	require.Equal(t, string(page), string(again))

	_, err = Load(strings.NewReader(`{"cells": [{"histogram": "x"}]}`))
	require.Error(t, err)
}

// The page is complete, needs nothing from elsewhere, and takes no markup from labels.
func TestHTML(t *testing.T) {
	r := fixed(t, 10, export(`<b>"memory"`), directory("disk", ssd()), directory("third", ssd()))
	b, err := r.HTML()
	require.NoError(t, err)
	page := string(b)
	// The operands are URIs that a reader may know; no other address is there.
	require.NotRegexp(t, `(?i)https?:`, page)
	require.NotRegexp(t, `(?i)<script|<link|<img|<iframe|src=|href=|url\(|@import`, page)
	require.NotContains(t, page, "<b>")
	require.Contains(t, page, "&lt;b&gt;")
	require.Contains(t, page, "prefers-color-scheme: dark")
	charts := regexp.MustCompile(`<svg viewBox[^>]* role="img" aria-label="[^"]+">`).FindAllString(page, -1)
	require.Len(t, charts, 2+2*len(Patterns()))
	for _, want := range []string{"Throughput over writers", "Distribution", "Percentiles", "var(--line2)", "The loop is closed", "1 connection,", `data-code="volatile"`, "Some CPU &lt;X&gt;", "99.9 %"} {
		require.Contains(t, page, want)
	}
	require.NotContains(t, page, "NaN")
}

// The picture in the documentation is made of the figures in docs/data, a report without its
// histograms. To make it anew:
//
//	UPDATE_PICTURE=1 go test -count=1 -run TestPicture ./cmd/pmnbd-bench/internal/compare
func TestPicture(t *testing.T) {
	const docs = "../../../../docs"
	f, err := os.Open(filepath.Join(docs, "data/compare.json"))
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	r, err := Load(f)
	require.NoError(t, err)
	c, _ := r.rateChart()
	picture, err := c.Picture()
	require.NoError(t, err)
	path := filepath.Join(docs, "compare.svg")
	if os.Getenv("UPDATE_PICTURE") != "" {
		require.NoError(t, os.WriteFile(path, picture, 0o644))
	}
	kept, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(picture), string(kept))
}
