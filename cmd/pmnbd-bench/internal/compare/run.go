package compare

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"pmnbd/cmd/pmnbd-bench/internal/storage"
)

// An Operand is a place to write to, as a command line names it.
type Operand struct {
	Label string
	// Given is the operand without its label.
	Given string
	// Path is that of a directory or of a block device; "": an export.
	Path                     string
	Network, Address, Export string
}

// Config says what Run measures.
type Config struct {
	Operands []Operand
	// PerCell is how long each pattern is measured on each operand, in Rounds parts.
	PerCell time.Duration
	Rounds  int
	// Area is how many bytes of each operand are used, from its beginning; at least MinArea.
	Area int64
	// Connections is how many connections the writers of an export share.
	Connections int
	// Overwrite has the paths of the block devices whose contents may be lost, cleaned.
	Overwrite []string
	// Force takes devices and exports that are in use or have contents.
	Force bool
	// Idle is how long Run looks at the machine before it begins, to see whether it is busy.
	Idle time.Duration
	// Progress is told the step that is under way and how far all of it is, from 0 to 1, once all
	// operands are open.
	Progress func(step string, share float64)
	System   storage.System

	patterns []Pattern // nil: Patterns
}

// writers is how many writers the pattern with the most has.
func (c *Config) writers() (n int) {
	for _, p := range c.patterns {
		n = max(n, p.Writers)
	}
	return n
}

var errInterrupted = errors.New("interrupted")

// A place is an open operand.
type place struct {
	Subject
	lanes []lane
	disk  storage.Storage // of a directory or device
	end   func() error
}

func (p *place) keptOn(st storage.Storage) {
	p.disk, p.Storage = st, &st
	p.Kind, p.Meaning = string(st.Kind), st.Kind.Meaning()
}

func (p *place) close() error {
	var errs []error
	for _, l := range p.lanes {
		errs = append(errs, l.close())
	}
	if p.end != nil {
		errs = append(errs, p.end())
	}
	return errors.Join(errs...)
}

func open(ctx context.Context, o Operand, cfg *Config, payload []byte) (*place, error) {
	if o.Path == "" {
		return openExport(ctx, o, cfg, payload)
	}
	return openPath(ctx, o, cfg, payload)
}

// Run measures. What it opened it closes, and the files that it made it removes, also if it fails or
// ctx ends.
func Run(ctx context.Context, cfg Config) (_ *Report, err error) {
	if cfg.patterns == nil {
		cfg.patterns = Patterns()
	}
	// Random bytes, so that no layer below saves work on zeroes or by compression.
	payload := make([]byte, fillPiece)
	src := rand.NewChaCha8([32]byte{})
	for i := 0; i < len(payload); i += 8 {
		binary.LittleEndian.PutUint64(payload[i:], src.Uint64())
	}
	r := newReport(cfg)
	var places []*place
	defer func() {
		for _, p := range places {
			if failed := p.close(); failed != nil {
				err = errors.Join(err, fmt.Errorf("%s: close: %w", p.Label, failed))
			}
		}
	}()
	for _, o := range cfg.Operands {
		p, err := open(ctx, o, &cfg, payload)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", o.Label, err)
		}
		places = append(places, p)
		r.Area = min(r.Area, p.Size/page*page)
		if p.Size < MinArea {
			return nil, fmt.Errorf("%s: it has %d bytes, and at least %d are needed", p.Label, p.Size, MinArea)
		}
	}
	cfg.Progress("look whether the machine is busy", 0)
	if err := r.Host.watch(ctx, cfg.Idle); err != nil {
		return nil, err
	}
	for _, p := range places {
		cfg.Progress("fill "+p.Label, 0)
		if err := p.fill(ctx, r.Area); err != nil {
			return nil, fmt.Errorf("%s: fill it: %w", p.Label, err)
		}
	}
	if err := r.measure(ctx, &cfg, places); err != nil {
		return nil, err
	}
	r.finish(places)
	return r, nil
}

// fillPiece is the size of a write that fills an area. Every NBD server takes it.
const fillPiece = 256 << 10

// fill writes all of the area, so that nothing measures the first touch of memory or the allocation
// of a file's blocks.
func (p *place) fill(ctx context.Context, area int64) error {
	w := p.lanes[0]
	defer context.AfterFunc(ctx, func() { _ = w.bound(time.Unix(1, 0)) })()
	for at := int64(0); at < area; {
		if ctx.Err() != nil {
			return errInterrupted
		}
		var op []extent
		for len(op) < 16 && at < area {
			e := extent{at, min(fillPiece, area-at)}
			op = append(op, e)
			at += e.len
		}
		if err := w.bound(time.Now().Add(patience)); err != nil {
			return err
		}
		if err := w.commit(op); err != nil {
			return err
		}
	}
	return nil
}

// measure visits every cell in every round.
func (r *Report) measure(ctx context.Context, cfg *Config, places []*place) error {
	visits, total := 0, cfg.Rounds*len(cfg.patterns)*len(places)
	for n := range cfg.Rounds {
		for _, pattern := range cfg.patterns {
			for i := range places {
				// Each round begins with another operand, so that none always
				// follows the last write of the same other one.
				p := places[(i+n)%len(places)]
				cfg.Progress(fmt.Sprintf("round %d of %d, %s, %s", n+1, cfg.Rounds, p.Label, pattern.Name), float64(visits)/float64(total))
				visits++
				if err := r.cell(p.Label, pattern.Name).visit(ctx, cfg, p, pattern, n, r.Area); err != nil {
					return fmt.Errorf("%s: %s: %w", p.Label, pattern.Name, err)
				}
			}
		}
	}
	return nil
}

// visit measures one cell for one round.
func (c *Cell) visit(ctx context.Context, cfg *Config, p *place, pattern Pattern, n int, area int64) error {
	lanes := p.lanes[:min(len(p.lanes), pattern.Writers)]
	workers := make([]*worker, pattern.Writers)
	shares := make([][]*worker, len(lanes))
	for i := range workers {
		// The same offsets for every operand.
		rng := newRandom(n, i)
		workers[i] = &worker{stream: pattern.stream(part(area, i, len(workers)), rng), latencies: newHistogram()}
		shares[i%len(lanes)] = append(shares[i%len(lanes)], workers[i])
	}
	writesBefore, flushesBefore, counted := p.disk.Counters()

	measured := cfg.PerCell / time.Duration(cfg.Rounds)
	// The first tenth is not measured: caches, queues and the CPU's clock adapt to the load.
	from := time.Now().Add(measured / 10)
	s := span{from: from, until: from.Add(measured), stop: new(atomic.Bool)}
	bound := func(t time.Time) {
		for _, l := range lanes {
			_ = l.bound(t) // what waits ends by itself then, or fails
		}
	}
	bound(s.until.Add(patience))
	defer context.AfterFunc(ctx, func() {
		s.stop.Store(true)
		bound(time.Unix(1, 0))
	})()
	errs := make([]error, len(lanes))
	var wg sync.WaitGroup
	for i, l := range lanes {
		wg.Go(func() {
			if errs[i] = l.run(shares[i], s); errs[i] != nil {
				s.stop.Store(true) // the others need not go on
			}
		})
	}
	wg.Wait()
	if ctx.Err() != nil {
		return errInterrupted
	}
	for _, err := range errs {
		if err != nil && !errors.Is(err, errInterrupted) {
			return err
		}
	}
	writes, flushes, _ := p.disk.Counters()
	if counted {
		c.DiskWrites += writes - writesBefore
		c.DiskFlushes += flushes - flushesBefore
		c.DiskCounted = true
	}
	return c.add(workers)
}

// newRandom returns the offsets of a writer in a round.
func newRandom(round, writer int) *rand.Rand {
	return rand.New(rand.NewPCG(uint64(round), uint64(writer)))
}
