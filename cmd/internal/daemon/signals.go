package daemon

import (
	"os"
	"os/signal"
	"syscall"

	"go.uber.org/zap"
)

// Signals delivers SIGTERM, SIGINT and SIGHUP: the first asks to end, the second to do
// so at once. SIGHUP comes when a terminal goes; nohup(1) and HoldReload except it, and
// daemons call HoldReload. stop ends the delivery.
//
// From here on, a log that nobody reads any more is no reason to die by SIGPIPE.
func Signals() (signals <-chan os.Signal, stop func()) {
	signal.Ignore(syscall.SIGPIPE)
	c := make(chan os.Signal, 2)
	signal.Notify(c, syscall.SIGTERM, syscall.SIGINT)
	if !signal.Ignored(syscall.SIGHUP) {
		signal.Notify(c, syscall.SIGHUP)
	}
	return c, func() { signal.Stop(c) }
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
