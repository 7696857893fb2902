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

// HoldReload makes the process ignore SIGHUP until OnReload. A daemon calls it first of all.
func HoldReload() { signal.Ignore(syscall.SIGHUP) }

// OnReload calls read for each SIGHUP, one at a time, to read file again, and logs what came
// of it, with the fields that read returns. A daemon that has no file, "", says so and goes
// on: the same command must not reload one daemon and end another. stop waits for read.
func OnReload(log *zap.Logger, file string, read func() ([]zap.Field, error)) (stop func()) {
	c := make(chan os.Signal, 1)
	end, ended := make(chan struct{}), make(chan struct{})
	signal.Notify(c, syscall.SIGHUP)
	go func() {
		defer close(ended)
		for {
			select {
			case <-c:
				reload(log, file, read)
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

func reload(log *zap.Logger, file string, read func() ([]zap.Field, error)) {
	if file == "" {
		log.Info("SIGHUP: there is nothing to read again, since there is no --key-file; SIGTERM would end this process")
		return
	}
	fields, err := read()
	if err != nil {
		log.Error("keys not changed", zap.Error(err))
		return
	}
	log.Info("keys read again: they count from the next handshake", append(fields, zap.String("file", file))...)
}
