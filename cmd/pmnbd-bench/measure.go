package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// A row is a target that was opened.
type row struct {
	target
	conns []conn
	parts []extent // of the area, one per conn
}

// reads reports whether a read measures the target, and not the page cache.
func (r *row) reads() bool { return r.dir == "" }

func (r *row) close() error {
	var errs []error
	for _, c := range r.conns {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// open opens a target and fills its area.
func open(ctx context.Context, t target, o options, payload []byte) (*row, error) {
	r := &row{target: t}
	area := int64(o.area) / blockSize * blockSize
	for range o.connections {
		var c conn
		var err error
		if t.dir != "" {
			c, err = openDisk(t.dir, area, payload)
		} else {
			c, area, err = dial(ctx, t, area, o.depth, payload)
		}
		if err != nil {
			return nil, errors.Join(err, r.close())
		}
		r.conns = append(r.conns, c)
	}
	part := area / int64(len(r.conns)) / blockSize * blockSize
	if part == 0 {
		return nil, errors.Join(fmt.Errorf("%d bytes are too small for %d connections", area, len(r.conns)), r.close())
	}
	for i := range r.conns {
		r.parts = append(r.parts, extent{int64(i) * part, part})
	}
	for i, c := range r.conns {
		if err := fill(c, r.parts[i]); err != nil {
			return nil, errors.Join(fmt.Errorf("filling it: %w", err), r.close())
		}
	}
	return r, nil
}

// measure opens all targets and visits every cell of the table in every round.
func measure(ctx context.Context, o options) (_ *report, err error) {
	payload := make([]byte, fillSize)
	// Never zero and never compressible: no layer below has it easy.
	_, _ = rand.NewChaCha8([32]byte{}).Read(payload) // it never fails

	rep := &report{Block: blockSize, Depth: o.depth, Connections: o.connections, PerCell: o.perCell.Seconds(), Rounds: o.rounds}
	var rows []*row
	defer func() {
		for _, r := range rows {
			err = errors.Join(err, r.close())
		}
	}()
	for _, t := range o.targets {
		r, err := open(ctx, t, o, payload)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", t.label, err)
		}
		rows = append(rows, r)
		for _, c := range r.conns {
			// A signal ends whatever waits for a reply.
			defer context.AfterFunc(ctx, func() { _ = c.bound(time.Unix(1, 0)) })()
		}
		rep.add(r)
	}
	for n := range o.rounds {
		for _, w := range workloads {
			for i := range rows {
				// Each round begins with another target: none always comes after
				// the same neighbour's last write.
				r := rows[(i+n)%len(rows)]
				c := rep.cell(r.label, w.name)
				if c == nil {
					continue
				}
				if ctx.Err() != nil {
					return nil, ctx.Err()
				}
				if err := visit(c, r, w, n, o); err != nil {
					return nil, fmt.Errorf("%s: %s: %w", r.label, w.name, err)
				}
			}
		}
	}
	for _, c := range rep.Cells {
		c.finish()
	}
	return rep, nil
}

// visit measures one cell for one round, on all connections at once.
func visit(c *cell, r *row, w workload, n int, o options) error {
	measured := o.perCell / time.Duration(o.rounds)
	// A tenth of a round goes by unmeasured, until caches, queues and the CPU's
	// clock are what they are under this load.
	warm := measured / 10
	samples := make([][]time.Duration, len(r.conns))
	errs := make([]error, len(r.conns))
	var wg sync.WaitGroup
	for i := range r.conns {
		wg.Go(func() {
			// The same offsets for every target.
			l := load{conn: r.conns[i], work: w, depth: o.depth, area: r.parts[i], rng: rand.New(rand.NewPCG(uint64(n), uint64(i)))}
			samples[i], errs[i] = l.drive(warm, measured, nil)
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	var all []time.Duration
	for _, s := range samples {
		all = append(all, s...)
	}
	c.add(all, measured)
	// The next cell must not pay for what this one left unflushed.
	return flush(r.conns[0])
}
