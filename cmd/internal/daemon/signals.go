package daemon

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// Signals delivers the signals that ask a process to end: SIGTERM and SIGINT, and SIGHUP,
// which comes when a terminal goes away, unless nohup(1) or HoldReload made the process
// ignore it. stop ends the delivery.
//
// From here on SIGPIPE does not kill the process: nobody may be reading its log any more.
func Signals() (signals <-chan os.Signal, stop func()) {
	c := make(chan os.Signal, 2) // the second asks to end at once
	signal.Notify(c, ending()...)
	return c, func() { signal.Stop(c) }
}

// UntilSignal returns a context that ends with the first of the signals that Signals
// delivers. stop ends it, too.
func UntilSignal() (ctx context.Context, stop func()) {
	return signal.NotifyContext(context.Background(), ending()...)
}

func ending() []os.Signal {
	signal.Ignore(syscall.SIGPIPE)
	all := []os.Signal{syscall.SIGTERM, syscall.SIGINT}
	if !signal.Ignored(syscall.SIGHUP) {
		all = append(all, syscall.SIGHUP)
	}
	return all
}

// HoldReload makes the process ignore SIGHUP until OnHangup. A daemon calls it first of all.
func HoldReload() { signal.Ignore(syscall.SIGHUP) }

// OnHangup calls do for each SIGHUP, one at a time. stop ends the context of a do that is under way,
// and waits for it.
func OnHangup(do func(context.Context)) (stop func()) { return take(hold(syscall.SIGHUP), do) }

// A PowerFailure keeps a SIGPWR until somebody takes it.
type PowerFailure chan os.Signal

// HoldPowerFailure keeps each SIGPWR from now on. A daemon calls it before it does what takes long.
func HoldPowerFailure() PowerFailure { return hold(syscall.SIGPWR) }

// Take calls do for each SIGPWR that has come or comes, one at a time. stop waits for a do that is
// under way.
func (p PowerFailure) Take(do func()) (stop func()) {
	return take(p, func(context.Context) { do() })
}

func hold(sig os.Signal) chan os.Signal {
	c := make(chan os.Signal, 1)
	signal.Notify(c, sig)
	return c
}

func take(c chan os.Signal, do func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-c:
				do(ctx)
			case <-ctx.Done():
				return
			}
		}
	}()
	return func() {
		signal.Stop(c)
		cancel()
		<-ended
	}
}
