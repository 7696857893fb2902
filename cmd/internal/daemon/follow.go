package daemon

import (
	"os"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"go.uber.org/zap"
)

// followEvery is how often systemd hears how the process is.
const followEvery = time.Second

// A Follower is what Follow started. Close ends it, and is idempotent. Nil is one that has nobody to
// tell.
type Follower func()

// Close implements io.Closer.
func (f Follower) Close() error {
	if f != nil {
		f()
	}
	return nil
}

// Follow tells systemd, if it started us with Type=notify, whenever line says something new, and
// that the process is alive, if the unit has WatchdogSec=. line must return at once: a process in
// which it does not is stuck, and systemd starts it again.
func Follow(log *zap.Logger, line func() string) Follower {
	if os.Getenv("NOTIFY_SOCKET") == "" {
		return nil
	}
	every := followEvery
	watchdog, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		log.Warn("systemd asks for a watchdog in a way that nobody understands", zap.Error(err))
	}
	if watchdog > 0 {
		every = min(every, watchdog/2)
	}
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(every)
		defer tick.Stop()
		follow(log, line, watchdog > 0, tick.C, end)
	}()
	return sync.OnceFunc(func() {
		close(end)
		<-ended
	})
}

// follow tells systemd at each tick.
func follow(log *zap.Logger, line func() string, watchdog bool, tick <-chan time.Time, end <-chan struct{}) {
	said := ""
	for {
		select {
		case <-end:
			return
		case <-tick:
		}
		var news []string
		if now := line(); now != said {
			said = now
			news = append(news, "STATUS="+now)
		}
		if watchdog {
			news = append(news, daemon.SdNotifyWatchdog)
		}
		if len(news) > 0 {
			notify(log, news...)
		}
	}
}
