package remote

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"pmnbd/internal/mirror"
	"pmnbd/persist"
)

// A Forgetting has the arbiter of a mirror forget what it holds, because an operator has decided to go on
// with other members. Only Config.Degraded begins the mirror then, and that start tells the arbiter what it
// has begun.
type Forgetting struct {
	// Set is the UUID of the mirror.
	Set uuid.UUID
	// Held is the generation that the arbiter holds and F its members in sync; both are "" if it holds
	// none.
	Held, F string
	// Newest is the newest generation that the members know which were reached, NewestF its members in
	// sync.
	Newest, NewestF string

	device *Device
	held   persist.Record
}

// FindForgetting asks the targets of Config.Members which mirror they belong to, and Config.Arbiter what
// it holds of that. It changes nothing, but has become the initiator that may have the mirror: it fails,
// or waits as the arbiter does, while another one may. The caller ends the Forgetting with Close.
func FindForgetting(ctx context.Context, cfg Config) (_ *Forgetting, err error) {
	cfg.AllowVolatile = true
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	if cfg.Arbiter == nil || len(cfg.Members) == 0 {
		return nil, errors.New("name the members of a mirror, and its arbiter")
	}
	d := &Device{cfg: cfg, log: cfg.Log, yields: true}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.release())
		}
	}()
	if err := d.makeLegs(); err != nil {
		return nil, err
	}
	b := d.newBeginning()
	b.probe(ctx)
	decision := mirror.Decide(b.found)
	newest := &decision.Newest
	if *newest == (persist.Record{}) {
		return nil, errors.Join(append([]error{errors.New(decision.Why)}, b.errs...)...)
	}
	if err := d.join(ctx, newest.Set); err != nil {
		return nil, err
	}
	x := &Forgetting{device: d, Set: newest.Set, Newest: newest.String(), NewestF: newest.F.String()}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	if x.held, err = d.term.Held(ctx); err != nil {
		return nil, fmt.Errorf("ask the arbiter of the mirror: %w", err)
	}
	if x.held != (persist.Record{}) {
		x.Held, x.F = x.held.String(), x.held.F.String()
	}
	return x, nil
}

// Do has the arbiter forget. A life that the arbiter still knew begins no further generation.
func (x *Forgetting) Do(ctx context.Context) error {
	if x.held == (persist.Record{}) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	held, err := x.device.term.Swap(ctx, x.held, persist.Record{})
	if err == nil && held != (persist.Record{}) {
		err = takenAt(&held)
	}
	if err != nil {
		return fmt.Errorf("have the arbiter forget the mirror: %w", err)
	}
	return nil
}

// Close gives the mirror back, so that another initiator may have it.
func (x *Forgetting) Close() error { return x.device.release() }
