package daemon

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"go.uber.org/zap"
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

// NothingToReload tells somebody who sent SIGHUP that there is no file to read again. A
// daemon that has none goes on all the same: the same command must not reload one daemon
// and end another.
func NothingToReload(log *zap.Logger) {
	log.Info("SIGHUP: there is nothing to read again, since there is no --key-file; SIGTERM would end this process")
}

// HoldReload keeps SIGHUP for OnReload, and from doing harm until then. It is called
// before Signals.
func HoldReload() { signal.Ignore(syscall.SIGHUP) }

// OnReload calls reload for SIGHUP, one at a time, until stop, which waits for it.
func OnReload(reload func()) (stop func()) {
	c := make(chan os.Signal, 1)
	end, ended := make(chan struct{}), make(chan struct{})
	signal.Notify(c, syscall.SIGHUP)
	go func() {
		defer close(ended)
		for {
			select {
			case <-c:
				reload()
			case <-end:
				return
			}
		}
	}()
	return func() {
		signal.Stop(c)
		close(end)
		<-ended
	}
}
