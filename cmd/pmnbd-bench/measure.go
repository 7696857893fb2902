package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"time"
)

// A row is an open target.
type row struct {
	target
	area int64 // bytes
	disk *disk // nil: an export, to which every visit connects anew
	pids []int // of the processes that serve it
}

// connect returns the connections for w, and a function that closes them.
func (r *row) connect(ctx context.Context, w workload, payload []byte) (conns []conn, end func() error, err error) {
	if r.disk != nil {
		return []conn{r.disk}, func() error { return nil }, nil
	}
	end = func() error {
		var errs []error
		for _, c := range conns {
			errs = append(errs, c.Close())
		}
		return errors.Join(errs...)
	}
	for range w.conns {
		c, _, err := dial(ctx, r.target, r.area, w.depth, w.block, payload)
		if err != nil {
			return nil, nil, errors.Join(err, end())
		}
		conns = append(conns, c)
	}
	return conns, end, nil
}

func (r *row) close() error {
	if r.disk != nil {
		return r.disk.Close()
	}
	return nil
}

// open opens a target and fills its area.
func open(ctx context.Context, t target, o options, payload []byte) (r *row, err error) {
	r = &row{target: t, area: int64(o.area) / blockSize * blockSize, pids: o.pids[t.label]}
	var c conn
	if t.dir != "" {
		if r.disk, err = openDisk(t.dir, r.area, payload); err != nil {
			return nil, err
		}
		c = r.disk
	} else {
		e, area, err := dial(ctx, t, r.area, 1, blockSize, payload)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, e.Close()) }()
		c, r.area = e, area
	}
	for _, w := range o.works {
		if part(r.area, w) == 0 {
			return nil, errors.Join(fmt.Errorf("%d bytes are too small for so many connections: %d", r.area, w.conns), r.close())
		}
	}
	if err := fill(c, extent{0, r.area}); err != nil {
		return nil, errors.Join(fmt.Errorf("filling it: %w", err), r.close())
	}
	return r, nil
}

// part returns how much of area each connection of w has, in bytes; 0 if that is too little.
func part(area int64, w workload) int64 {
	block := int64(w.block)
	size := area / int64(w.conns) / block * block
	if size < 2*block*int64(w.ranges) {
		return 0
	}
	return size
}

// measure opens all targets and visits every cell of the table in every round.
func measure(ctx context.Context, o options) (_ *report, err error) {
	largest := fillSize
	for _, w := range o.works {
		largest = max(largest, w.block)
	}
	payload := make([]byte, largest)
	// Random bytes, so that no layer below can save work on zeroes or by compression.
	_, _ = rand.NewChaCha8([32]byte{}).Read(payload) // never fails

	rep := &report{PerCell: o.perCell.Seconds(), Rounds: o.rounds, OS: runtime.GOOS + "/" + runtime.GOARCH, CPUs: runtime.NumCPU(), suite: o.suite, works: o.works}
	if rep.Load, err = loadAverage(); err != nil {
		return nil, err
	}
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
		rep.add(t)
	}
	for n := range o.rounds {
		for _, w := range o.works {
			for i := range rows {
				// Each round begins with another target, so that none always
				// follows the last write of the same other one.
				r := rows[(i+n)%len(rows)]
				c := rep.cell(r.label, w.name)
				if c == nil {
					continue
				}
				if ctx.Err() != nil {
					return nil, ctx.Err()
				}
				if err := visit(ctx, c, r, w, n, o, payload); err != nil {
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
func visit(ctx context.Context, c *cell, r *row, w workload, n int, o options, payload []byte) (err error) {
	conns, end, err := r.connect(ctx, w, payload)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
	// A signal ends every wait for a reply.
	defer context.AfterFunc(ctx, func() {
		for _, c := range conns {
			_ = c.bound(time.Unix(1, 0))
		}
	})()

	measured := o.perCell / time.Duration(o.rounds)
	// The first tenth of a round is not measured: caches, queues and the CPU's clock adapt
	// to the load.
	warm := measured / 10
	before, err := used(r.pids)
	if err != nil {
		return err
	}
	samples := make([][]time.Duration, len(conns))
	errs := make([]error, len(conns))
	dones := make([]int, len(conns))
	size := part(r.area, w)
	var wg sync.WaitGroup
	for i := range conns {
		wg.Go(func() {
			// The same offsets for every target.
			l := load{conn: conns[i], work: w, area: extent{int64(i) * size, size}, rng: rand.New(rand.NewPCG(uint64(n), uint64(i)))}
			run := l.drive
			if w.ranges > 0 {
				run = l.flushes
			}
			samples[i], errs[i] = run(warm, measured, nil)
			dones[i] = l.done
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	// Writes may be acknowledged that the server has yet to carry out. This flush makes it do
	// so, and counts in this cell's time and CPU, so that the next cell does not pay for it.
	flushed := time.Now()
	if err := flush(conns[0]); err != nil {
		return err
	}
	measured += time.Since(flushed)
	after, err := used(r.pids)
	if err != nil {
		return err
	}
	var all []time.Duration
	done := 0
	for i, s := range samples {
		all = append(all, s...)
		done += dones[i]
	}
	c.add(all, measured)
	if len(r.pids) > 0 && done > 0 {
		ops, round := float64(done), &c.Rounds[n]
		round.CPU = micros(after.cpu-before.cpu) / ops
		round.Front = micros(after.front-before.front) / ops
		round.Switches = float64(after.switched(before)) / ops
	}
	return nil
}
