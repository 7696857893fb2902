// Package compare answers what an fsync costs on several places to write to: exports of NBD servers,
// block devices, and directories. It measures all of them in alternating rounds of one run, says what
// kind each one is, and reports the figures as a table, as JSON and as a page of HTML.
//
// The loop is closed: a writer begins an operation when its last one is durable, and waits for it in
// system calls that block its thread. The package imports nbd/client and nbd/wire, its siblings chart
// and storage, and packages below internal and cmd/internal.
package compare

import "math/rand/v2"

const (
	block = 4 << 10 // bytes of a write, but for the WAL's
	page  = 8 << 10 // bytes of a WAL's page, as in PostgreSQL

	// group is how many blocks an operation of the pattern group writes.
	group = 16

	// A WAL has a checkpoint after so many commits. It writes so many pages.
	commitsPerCheckpoint, pagesPerCheckpoint = 64, 32
	// largestCommit is how many pages a commit writes at most.
	largestCommit = 8

	// most is how many writes an operation has at most, in any pattern.
	most = pagesPerCheckpoint
)

// A Pattern is a kind of operation that is measured. Every operation ends with an fsync.
type Pattern struct {
	// Name is for programs, and does not change.
	Name string `json:"name"`
	// Title and Text are for people.
	Title   string `json:"title"`
	Text    string `json:"text"`
	Writers int    `json:"writers"`

	stream func(part extent, rng *rand.Rand) stream
}

// An extent is a piece of the area, in bytes.
type extent struct{ off, len int64 }

// A stream makes the operations of one writer. next returns the writes of the next one, valid until
// the next call, and whether its latency counts.
type stream interface {
	next() (op []extent, counts bool)
}

const random = "random-"

// Patterns returns the patterns in the order of a report.
func Patterns() []Pattern {
	scattered := func(part extent, rng *rand.Rand) stream { return &scatter{part: part, rng: rng, op: make([]extent, 1)} }
	all := []Pattern{
		{
			Name: "log", Title: "Append 4 KiB, fsync", Writers: 1,
			Text:   "A log: each record goes behind the one before it, and the next one waits for the fsync.",
			stream: func(part extent, _ *rand.Rand) stream { return &appends{part: part, op: make([]extent, 1)} },
		}, {
			Name: "group", Title: "16 × 4 KiB, one fsync", Writers: 1,
			Text: "A transaction that changes 16 blocks at random, and makes them durable together.",
			stream: func(part extent, rng *rand.Rand) stream {
				return &scatter{part: part, rng: rng, op: make([]extent, group)}
			},
		},
		{Name: random + "1", Title: "Random 4 KiB, fsync: 1 writer", Writers: 1, Text: "A block at random, then an fsync.", stream: scattered},
		{Name: random + "4", Title: "Random 4 KiB, fsync: 4 writers", Writers: 4, Text: "Four threads that each write a block and wait for an fsync of their own.", stream: scattered},
		{Name: random + "16", Title: "Random 4 KiB, fsync: 16 writers", Writers: 16, Text: "Sixteen threads. What serves them may make the writes of many durable at once.", stream: scattered},
		{Name: random + "64", Title: "Random 4 KiB, fsync: 64 writers", Writers: 64, Text: "Sixty-four threads.", stream: scattered},
		{
			Name: "wal", Title: "Commits of a WAL", Writers: 1,
			Text: "A database's write-ahead log: commits of 1 (70 %), 2 (20 %) or 8 (10 %) pages of 8 KiB, each of which begins with the last page of the one before it. " +
				"After every 64 commits comes a checkpoint of 32 pages at random. Latencies are those of commits; the rate counts commits, over a time that has checkpoints in it.",
			stream: newWAL,
		},
	}
	return all
}

// appends writes one block behind another, and begins again at the end of its part.
type appends struct {
	part extent
	at   int64
	op   []extent
}

func (a *appends) next() ([]extent, bool) {
	if a.at+block > a.part.len {
		a.at = 0
	}
	a.op[0] = extent{a.part.off + a.at, block}
	a.at += block
	return a.op, true
}

// scatter writes blocks at random.
type scatter struct {
	part extent
	rng  *rand.Rand
	op   []extent
}

func (s *scatter) next() ([]extent, bool) {
	for i := range s.op {
		s.op[i] = extent{s.part.off + s.rng.Int64N(s.part.len/block)*block, block}
	}
	return s.op, true
}

// A wal is a log in the first quarter of its part, and tables in the rest.
type wal struct {
	log, tables extent
	rng         *rand.Rand
	at          int64 // the page in the log that the last commit ended with
	commits     int
	op          [pagesPerCheckpoint]extent
}

func newWAL(part extent, rng *rand.Rand) stream {
	log := part.len / 4 / page * page
	return &wal{log: extent{part.off, log}, tables: extent{part.off + log, part.len - log}, rng: rng}
}

func (w *wal) next() ([]extent, bool) {
	if w.commits == commitsPerCheckpoint {
		w.commits = 0
		for i := range w.op {
			w.op[i] = extent{w.tables.off + w.rng.Int64N(w.tables.len/page)*page, page}
		}
		return w.op[:], false
	}
	w.commits++
	pages := int64(1)
	switch n := w.rng.IntN(10); {
	case n == 9:
		pages = largestCommit
	case n >= 7:
		pages = 2
	}
	if w.at+pages*page > w.log.len {
		w.at = 0
	}
	w.op[0] = extent{w.log.off + w.at, pages * page}
	w.at += (pages - 1) * page
	return w.op[:1], true
}

// MinArea is the smallest area, in bytes: every writer and every part of a WAL has room.
const MinArea = 4 << 20

// part returns the piece of the area of writer i of n, in whole pages.
func part(area int64, i, n int) extent {
	each := area / int64(n) / page * page
	return extent{int64(i) * each, each}
}
