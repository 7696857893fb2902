package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"time"

	"pmnbd/backend/remote"
	"pmnbd/cmd/internal/command"
	"pmnbd/cmd/internal/flags"
	"pmnbd/cmd/internal/provider"
	"pmnbd/internal/endpoint"
	"pmnbd/persist"
	"pmnbd/rdma"
)

const methodsHelp = `Measures how long it takes to make 1 to 32 writes of 64 bytes to 64 KiB durable on regions of targets, by
each method that is sound, without a block device. It submits the writes and a FLUSH as one batch, waits
for the FLUSH's completion, and then submits the next batch. Prints ratios in Markdown. Targets that
ask for a key, and iwarps:// addresses, need --key-file.

Usage:
  pmnbd-bench methods [flags] [LABEL=]iwarp://HOST:PORT/REGION [LABEL=]rdma://HOST:PORT/REGION …

The first 32M of every REGION are OVERWRITTEN.
`

// shapes returns those of the table. The sizes are a cache line, a small and a usual block of
// a log, and two that fill several packets. 32 Writes are more than one cache's worth of
// posting.
func shapes() (all []shape) {
	for _, bytes := range []int{64, 1 << 10, 4 << 10, 16 << 10, 64 << 10} {
		for _, writes := range []int{1, 4, 16, 32} {
			all = append(all, shape{bytes, writes})
		}
	}
	return all
}

// measuredMethods has the methods in the order of the table. It compares the others with the
// first, which is sound on every region.
var measuredMethods = []persist.Method{persist.MethodGPSPM, persist.MethodAPM, persist.MethodFlush}

// methodArea is how much of a region is written, in bytes.
const methodArea = 32 << 20

// methodOptions is the command line of methods. With the defaults each of five rounds has a
// fifth of a second, which is some hundreds of barriers.
type methodOptions struct {
	perCell       time.Duration
	rounds        int
	json          string
	allowVolatile bool
	identity
	targets []methodTarget
}

type methodTarget struct {
	label string
	endpoint.Endpoint
	name string // of the target, for its key
}

func parseMethods(call *command.Call) (methodOptions, error) {
	var o methodOptions
	fs := call.Flags
	fs.DurationVar(&o.perCell, "time", time.Second, "how long to measure each cell of the table, over all rounds")
	fs.IntVar(&o.rounds, "rounds", 5, "in how many rounds, each of which visits every cell")
	fs.StringVar(&o.json, "json", "", "file for the figures of every round, as JSON")
	fs.BoolVar(&o.allowVolatile, "allow-volatile", false, "accept regions of class volatile")
	keyFile := fs.String("key-file", "", "the `file` with the keys that this initiator and the targets share (docs/security.md)")
	if err := call.Parse("TARGET", "[…]"); err != nil {
		return o, err
	}
	var err error
	if o.identity, err = identify(*keyFile); err != nil {
		return o, err
	}
	switch {
	case o.perCell < time.Millisecond || o.perCell > time.Hour:
		return o, flags.Usagef("--time %v: use 1ms to 1h", o.perCell)
	case o.rounds < 1 || o.rounds > 1000:
		return o, flags.Usagef("--rounds %d: use 1 to 1000", o.rounds)
	}
	for _, arg := range fs.Args() {
		label, uri := arg, arg
		if l, rest, ok := strings.Cut(arg, "="); ok {
			label, uri = l, rest
		}
		e, err := flags.ParseTarget(uri)
		if err != nil {
			return o, err
		}
		if slices.ContainsFunc(o.targets, func(other methodTarget) bool { return other.label == label }) {
			return o, flags.Usagef("two targets are called %q; give them labels, as in a=%s", label, uri)
		}
		name, err := o.target(e)
		if err != nil {
			return o, err
		}
		o.targets = append(o.targets, methodTarget{label, e, name})
	}
	return o, nil
}

// benchMethods is `pmnbd-bench methods`.
func benchMethods(ctx context.Context, call *command.Call) error {
	o, err := parseMethods(call)
	if err != nil {
		return err
	}
	if err := hasDirectory("json", o.json); err != nil {
		return err
	}
	r, err := measureMethods(ctx, o)
	if err != nil {
		return err
	}
	if err := save(r, o.json); err != nil {
		return err
	}
	return r.markdown(call.Stdout)
}

// measureMethods visits every way in every round. Each visit opens a session of its own, since
// a region has only one at a time.
func measureMethods(ctx context.Context, o methodOptions) (_ *methodReport, err error) {
	r := newMethodReport(o)
	state, err := os.MkdirTemp("", "pmnbd-bench-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(state)) }()
	for n := range o.rounds {
		for i := range r.Ways {
			w := &r.Ways[(i+n)%len(r.Ways)] // so that no way always follows the same other one
			if w.Refused != "" {
				continue
			}
			if err := w.visit(ctx, n, o, state); err != nil {
				return nil, fmt.Errorf("%s: %v: %w", w.Target, w.method, err)
			}
		}
	}
	r.finish()
	return r, nil
}

// openTimeout bounds opening a session.
const openTimeout = 30 * time.Second

// visit measures every cell of w for one round.
func (w *way) visit(ctx context.Context, n int, o methodOptions, state string) (err error) {
	transport, err := provider.For(w.at.Provider, provider.Config{})
	if err != nil {
		return err
	}
	opening, cancel := context.WithTimeout(ctx, openTimeout)
	dev, err := remote.Dial(opening, remote.Config{
		Provider: transport, Addr: w.at.Address(), Region: w.at.Region, ID: o.id, StateDir: state,
		Target: w.name, Key: o.key(), Encrypted: w.at.Encrypted(),
		Method: w.method, AllowVolatile: o.allowVolatile,
	})
	cancel()
	if w.method != measuredMethods[0] && unsound(err) {
		w.Refused = err.Error()
		return nil
	}
	if errors.Is(err, remote.ErrVolatile) {
		return fmt.Errorf("%w: --allow-volatile permits that", err)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dev.Close()) }()
	w.Description = dev.Info().Description
	measured := o.perCell / time.Duration(o.rounds)
	for _, c := range w.cells {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		// The same offsets for every way.
		rng := rand.New(rand.NewPCG(uint64(n), uint64(c.Bytes*c.Writes)))
		b, err := newBarriers(dev, c.shape, min(methodArea, int64(dev.Info().Size)), rng)
		if err != nil {
			return err
		}
		began := time.Now()
		samples, err := b.drive(measured/10, measured)
		b.close()
		if err != nil {
			return fmt.Errorf("%d writes of %d bytes: %w", c.Writes, c.Bytes, err)
		}
		c.Rounds = append(c.Rounds, newRound(samples, time.Since(began)))
	}
	return nil
}

// unsound reports whether either end refused a session because of its method.
func unsound(err error) bool {
	var refused *remote.RefusedError
	return errors.As(err, &refused) && refused.Reason() == remote.ReasonMethod || errors.Is(err, rdma.ErrNotSupported)
}
