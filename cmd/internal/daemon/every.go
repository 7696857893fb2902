package daemon

import "time"

// Every calls say every d until stop, which waits for the last call. Daemons use it to log how far
// something is.
func Every(d time.Duration, say func()) (stop func()) {
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(d)
		defer tick.Stop()
		for {
			select {
			case <-end:
				return
			case <-tick.C:
				say()
			}
		}
	}()
	return func() {
		close(end)
		<-ended
	}
}

// SayEvery is how often daemons log how far something is that takes long.
const SayEvery = 5 * time.Second
