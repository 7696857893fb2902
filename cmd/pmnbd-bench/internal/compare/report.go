package compare

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	hdr "github.com/HdrHistogram/hdrhistogram-go"

	"pmnbd/cmd/pmnbd-bench/internal/storage"
)

// The forms of subjects.
const (
	FormExport    = "export"
	FormDirectory = "directory"
	FormDevice    = "device"
)

// A Report is everything that a run measured and found.
type Report struct {
	// Version is that of pmnbd-bench.
	Version string    `json:"version"`
	Began   time.Time `json:"began"`
	Host    Host      `json:"host"`
	PerCell float64   `json:"seconds_per_cell"`
	Rounds  int       `json:"rounds"`
	// Connections is how many connections the writers of an export share.
	Connections int       `json:"connections"`
	Area        int64     `json:"area_bytes"`
	Subjects    []Subject `json:"subjects"`
	Patterns    []Pattern `json:"patterns"`
	// Cells has a cell for each subject and pattern.
	Cells    []*Cell   `json:"cells"`
	Headline []string  `json:"headline"`
	Warnings []Warning `json:"warnings"`
}

// A Subject is what a report says of an operand.
type Subject struct {
	Label string `json:"label"`
	Given string `json:"given"`
	Form  string `json:"form"`
	// Kind is what kind of disk it is, and Meaning what an fsync waits for there.
	Kind    string `json:"kind"`
	Meaning string `json:"meaning"`
	// Size is in bytes. That of a directory is its file's.
	Size int64 `json:"size_bytes"`
	// Says is what an NBD server says of its export.
	Says string `json:"says,omitempty"`
	// Volatile means that what an fsync covered is lost with the power, by the server's word.
	Volatile bool `json:"volatile,omitempty"`
	// Local means that the client reaches the server without a network.
	Local   bool             `json:"local,omitempty"`
	Storage *storage.Storage `json:"storage,omitempty"`
}

// A Cell is one subject under one pattern. Latencies are in µs.
type Cell struct {
	Subject string `json:"subject"`
	Pattern string `json:"pattern"`
	// Commits is how many latencies there are.
	Commits int64 `json:"commits"`
	// Rate is in commits per second, over all rounds.
	Rate float64 `json:"commits_per_second"`
	Mean float64 `json:"mean_us"`
	P50  float64 `json:"p50_us"`
	P90  float64 `json:"p90_us"`
	// P99 and P999 are missing if fewer than five latencies are above them.
	P99    *float64 `json:"p99_us,omitempty"`
	P999   *float64 `json:"p999_us,omitempty"`
	Max    float64  `json:"max_us"`
	Rounds []Round  `json:"rounds"`
	// DiskWrites and DiskFlushes are how many of each the disk completed meanwhile, of everybody,
	// if DiskCounted says that Linux counts them.
	DiskCounted bool   `json:"disk_counted"`
	DiskWrites  uint64 `json:"disk_writes"`
	DiskFlushes uint64 `json:"disk_flushes"`
	// Histogram has all latencies in ns, as HdrHistogram encodes them: V2, compressed, base64.
	Histogram string `json:"histogram,omitempty"`

	latencies *hdr.Histogram
	busy      time.Duration // of all writers
	writers   int
}

// A Round is one visit to a cell.
type Round struct {
	Commits int64   `json:"commits"`
	Rate    float64 `json:"commits_per_second"`
	P50     float64 `json:"p50_us"`
}

func newReport(cfg Config) *Report {
	r := &Report{
		Version: version(), Began: time.Now().UTC().Truncate(time.Second), Host: thisHost(cfg.System),
		PerCell: cfg.PerCell.Seconds(), Rounds: cfg.Rounds, Connections: cfg.Connections, Area: cfg.Area / page * page, Patterns: cfg.patterns,
	}
	for _, p := range cfg.patterns {
		for _, o := range cfg.Operands {
			r.Cells = append(r.Cells, &Cell{Subject: o.Label, Pattern: p.Name, writers: p.Writers, latencies: newHistogram()})
		}
	}
	return r
}

// add adds what the writers of a visit measured. Their rates add up: each one had a time of its own.
func (c *Cell) add(workers []*worker) error {
	one := newHistogram()
	round := Round{}
	for _, w := range workers {
		if dropped := one.Merge(w.latencies); dropped > 0 {
			return fmt.Errorf("%d latencies do not fit the histogram", dropped)
		}
		round.Commits += w.commits
		round.Rate += float64(w.commits) / w.busy.Seconds()
		c.busy += w.busy
	}
	round.P50 = quantile(one, 50)
	c.Rounds = append(c.Rounds, round)
	c.Commits += round.Commits
	if dropped := c.latencies.Merge(one); dropped > 0 {
		return fmt.Errorf("%d latencies do not fit the histogram", dropped)
	}
	return nil
}

// quantile is a percentile in µs.
func quantile(h *hdr.Histogram, percent float64) float64 {
	return float64(h.ValueAtPercentile(percent)) / 1e3
}

// known returns a percentile in µs, or nil if fewer than five latencies are above it.
func known(h *hdr.Histogram, percent float64) *float64 {
	if float64(h.TotalCount())*(100-percent)/100 < 5-1e-9 {
		return nil
	}
	v := quantile(h, percent)
	return &v
}

// finish computes the figures of all rounds, the warnings and the headline.
func (r *Report) finish(places []*place) {
	r.Host.end()
	for _, p := range places {
		r.Subjects = append(r.Subjects, p.Subject)
	}
	for _, c := range r.Cells {
		c.finish()
	}
	r.Warnings = r.warn(places)
	r.Headline = r.headline()
}

func (c *Cell) finish() {
	if c.Commits == 0 {
		return
	}
	c.Rate = float64(c.Commits) / c.busy.Seconds() * float64(c.writers)
	c.Mean = c.latencies.Mean() / 1e3
	c.P50, c.P90, c.Max = quantile(c.latencies, 50), quantile(c.latencies, 90), quantile(c.latencies, 100)
	c.P99, c.P999 = known(c.latencies, 99), known(c.latencies, 99.9)
}

// rates returns the least and the most of the rounds' rates.
func (c *Cell) rates() (least, most float64) {
	for i, round := range c.Rounds {
		if i == 0 || round.Rate < least {
			least = round.Rate
		}
		most = max(most, round.Rate)
	}
	return least, most
}

// medians returns the least and the most of the rounds' medians, in µs.
func (c *Cell) medians() (least, most float64) {
	for i, round := range c.Rounds {
		if i == 0 || round.P50 < least {
			least = round.P50
		}
		most = max(most, round.P50)
	}
	return least, most
}

// cell returns the cell of a subject and a pattern, or nil.
func (r *Report) cell(subject, pattern string) *Cell {
	for _, c := range r.Cells {
		if c.Subject == subject && c.Pattern == pattern {
			return c
		}
	}
	return nil
}

// JSON returns the report for programs. Load reads it.
func (r *Report) JSON() ([]byte, error) {
	for _, c := range r.Cells {
		if c.Commits == 0 {
			continue
		}
		b, err := c.latencies.Encode(hdr.V2CompressedEncodingCookieBase)
		if err != nil {
			return nil, fmt.Errorf("encode a histogram: %w", err)
		}
		c.Histogram = string(b)
	}
	b, err := json.MarshalIndent(r, "", "  ")
	return append(b, '\n'), err
}

// Load reads what JSON wrote.
func Load(in io.Reader) (*Report, error) {
	r := new(Report)
	if err := json.NewDecoder(in).Decode(r); err != nil {
		return nil, err
	}
	for _, c := range r.Cells {
		c.latencies = newHistogram()
		if c.Histogram == "" {
			continue
		}
		var err error
		if c.latencies, err = hdr.Decode([]byte(c.Histogram)); err != nil {
			return nil, fmt.Errorf("%s, %s: %w", c.Subject, c.Pattern, err)
		}
	}
	return r, nil
}
