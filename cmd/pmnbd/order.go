package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"time"

	"pmnbd/backend/remote"
	"pmnbd/cmd/internal/flags"
	"pmnbd/internal/endpoint"
)

// orderPath is where the control socket takes orders about mirrors.
const orderPath = "/mirror"

// An order is what pmnbd mirror asks of the pmnbd that serves a mirror.
type order struct {
	Export string `json:"export"`
	// Do is orderRemove, orderSet or orderAdd.
	Do        string          `json:"do"`
	Member    string          `json:"member,omitempty"`     // the letter of the one to remove
	MinCopies int             `json:"min_copies,omitempty"` // to set
	Target    string          `json:"target,omitempty"`     // the URI of the region to add, or that takes Member's place next
	Prepared  remote.Prepared `json:"prepared"`             // what is known of it
}

const (
	orderRemove = "remove"
	orderSet    = "set"
	orderAdd    = "add"
)

// A done order was carried out, and its generation is active.
type done struct {
	Member string `json:"member,omitempty"`
	// NotTold says why a removed member does not know that it is none.
	NotTold string                 `json:"not_told,omitempty"`
	Targets string                 `json:"targets"` // for --target of the next start
	Mirror  *remote.MirrorSnapshot `json:"mirror"`
}

// orderTimeout bounds how long an order waits for targets.
const orderTimeout = 2 * time.Minute

// order carries out an order that came over the control socket.
func (s *initiator) order(ctx context.Context, query url.Values, say func(any) error) error {
	var o order
	if err := json.Unmarshal([]byte(query.Get("order")), &o); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, orderTimeout)
	defer cancel()
	d, err := s.carryOut(ctx, &o)
	if err != nil {
		return err
	}
	return say(d)
}

// carryOut does what o says. One order at a time is carried out.
func (s *initiator) carryOut(ctx context.Context, o *order) (*done, error) {
	if !s.shown.serving() {
		return nil, fmt.Errorf("export %s does not serve yet: pmnbd status says what it waits for", o.Export)
	}
	end, err := s.turn(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	exports := s.exports()
	i := slices.IndexFunc(exports, func(x *export) bool { return x.name == o.Export })
	if i < 0 {
		return nil, fmt.Errorf("no export is called %q", o.Export)
	}
	x := exports[i]
	d := &done{Member: o.Member}
	switch o.Do {
	case orderRemove:
		if o.Target != "" { // a mistake with that region is not to cost the member
			_, t, err := s.reach(o.Target)
			if err == nil {
				err = x.dev.CheckMember(ctx, t, o.Prepared)
			}
			if err != nil {
				return nil, err
			}
		}
		at := addressOf(x.dev.Snapshot().Mirror, o.Member)
		told, err := x.dev.RemoveMember(ctx, remote.MemberSlot(o.Member))
		if err != nil {
			return nil, err
		}
		if told != nil {
			d.NotTold = told.Error()
		}
		x.drop(at.is)
	case orderSet:
		if err := x.dev.SetMinCopies(ctx, o.MinCopies); err != nil {
			return nil, err
		}
	case orderAdd:
		e, t, err := s.reach(o.Target)
		if err != nil {
			return nil, err
		}
		slot, err := x.dev.AddMember(ctx, t, o.Prepared)
		if err != nil {
			return nil, err
		}
		d.Member = remote.MemberLetter(slot)
		x.drop(e.Same)
		x.targets, x.keys = append(x.targets, e), append(x.keys, t.Name)
	default:
		return nil, fmt.Errorf("this release does not know how to %q", o.Do)
	}
	d.Targets, d.Mirror = uris(x.targets), x.dev.Snapshot().Mirror
	return d, nil
}

// turn waits until no order, reload or attach --ublk goes on. None begins then until the caller calls end. The wait
// ends with ctx, because those may take minutes: a process that is to end does not wait for a reload behind one.
func (s *initiator) turn(ctx context.Context) (end func(), err error) {
	select {
	case s.ordering <- struct{}{}:
		return func() { <-s.ordering }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting for another order, reload or attach --ublk to end: %w", ctx.Err())
	}
}

// reach returns how this process reaches the region at uri.
func (s *initiator) reach(uri string) (e endpoint.Endpoint, t remote.Target, err error) {
	if e, err = flags.ParseTarget(uri); err != nil {
		return e, t, err
	}
	targets, err := connecting([]endpoint.Endpoint{e}, s.cfg.spin, s.keys.latest())
	if err != nil {
		return e, t, err
	}
	return e, targets[0], nil
}

// An address is where a member is, as status tells it.
type address struct{ target, region string }

func (a address) is(e endpoint.Endpoint) bool { return e.Address() == a.target && e.Region == a.region }

// addressOf returns where member is, the zero address if no target leads to it.
func addressOf(m *remote.MirrorSnapshot, member string) (a address) {
	if m == nil {
		return a
	}
	for i := range m.Legs {
		if l := &m.Legs[i]; l.Slot == member && member != "" {
			a = address{l.Target, l.Region}
		}
	}
	return a
}
