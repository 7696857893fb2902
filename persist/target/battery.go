package target

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// lookEvery is how often a server asks for the battery, and looks at each disk that saves go to.
const lookEvery = 10 * time.Second

// A Battery is what an uninterruptible power supply says of itself.
type Battery struct {
	// OnBattery: the mains are away.
	OnBattery bool
	// Weak is what of its status means that it may not last, such as NUT's LB, or "".
	Weak string
	// Runtime is how long it lasts, if Known.
	Runtime time.Duration
	Known   bool
}

// tooShort returns why a save that takes need may not end before the power does, or "".
func (b *Battery) tooShort(need time.Duration) string {
	switch {
	case b.Weak != "":
		return "the battery says " + b.Weak + ", so it may not last for a save"
	case !b.OnBattery:
		return ""
	case !b.Known:
		return "the host runs on battery, which does not say for how long"
	case b.Runtime < need:
		return fmt.Sprintf("the host runs on battery for %v more, and a save takes %v", b.Runtime.Round(time.Second), need.Round(time.Second))
	}
	return ""
}

// A power watches the battery, if there is one. The zero power has none.
type power struct {
	ask    func(context.Context) (Battery, error)
	answer atomic.Pointer[powerAnswer] // nil: none yet
	first  chan struct{}               // closed with the first answer
	cancel context.CancelFunc
	ended  sync.WaitGroup
}

type powerAnswer struct {
	Battery
	err error
	at  int64 // by clock
}

// start begins to ask every so often.
func (p *power) start(ask func(context.Context) (Battery, error), every time.Duration) {
	if ask == nil {
		return
	}
	p.ask, p.first = ask, make(chan struct{})
	ctx, cancel := context.WithCancel(context.Background())
	p.cancel = cancel
	answered := sync.OnceFunc(func() { close(p.first) })
	p.ended.Go(func() {
		repeat(ctx, every, func() {
			p.look(ctx)
			answered()
		})
	})
}

// close ends that, and waits for the goroutine.
func (p *power) close() {
	if p.cancel != nil {
		p.cancel()
	}
	p.ended.Wait()
}

// await waits until the battery has answered once, if there is one, or ctx ends.
func (p *power) await(ctx context.Context) {
	if p.ask == nil {
		return
	}
	select {
	case <-p.first:
	case <-ctx.Done():
	}
}

// look asks once.
func (p *power) look(ctx context.Context) {
	b, err := p.ask(ctx)
	p.answer.Store(&powerAnswer{b, err, clock()})
}

// tooShort returns why a save that takes need may not end before the power does, or "". A
// battery that nobody could ask may be empty.
func (p *power) tooShort(need time.Duration) string {
	if p.ask == nil {
		return ""
	}
	a := p.answer.Load()
	switch {
	case a == nil:
		return "the battery has not been asked yet"
	case a.err != nil:
		return fmt.Sprintf("the battery cannot be asked: %v", a.err)
	case time.Duration(clock()-a.at) > 3*lookEvery:
		return "the battery has not answered for " + time.Duration(clock()-a.at).Round(time.Second).String()
	}
	return a.tooShort(need)
}

// repeat calls do at once, and then every so often until ctx ends.
func repeat(ctx context.Context, every time.Duration, do func()) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for ctx.Err() == nil {
		do()
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// A BatterySnapshot is what the battery said last. Its JSON names stay as they are once
// published.
type BatterySnapshot struct {
	OnBattery bool `json:"on_battery"`
	// Weak is what of its status means that it may not last, or "".
	Weak string `json:"weak,omitempty"`
	// Runtime is how many seconds the battery lasts, nil if it does not say.
	Runtime *float64 `json:"runtime_seconds"`
	// Error is why it could not be asked, or "".
	Error string `json:"error,omitempty"`
}

// Battery returns what the battery said last, or nil if there is none.
func (s *Server) Battery() *BatterySnapshot {
	if s.power.ask == nil {
		return nil
	}
	a := s.power.answer.Load()
	if a == nil {
		return &BatterySnapshot{Error: "not asked yet"}
	}
	shot := &BatterySnapshot{OnBattery: a.OnBattery, Weak: a.Weak}
	if a.err != nil {
		shot.Error = a.err.Error()
	}
	if a.Known {
		left := a.Runtime.Seconds()
		shot.Runtime = &left
	}
	return shot
}
