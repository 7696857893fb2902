package daemon

import (
	"os"
	"os/signal"
	"syscall"
)

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
