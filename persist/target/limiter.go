package target

import (
	"sync"
	"time"

	"go.uber.org/zap"
)

// quiet is how long a limiter writes nothing after a line: short enough for somebody
// who looks for the cause of a refusal, long enough for a disk that holds the log.
const quiet = 5 * time.Second

// A limiter is the log for what strangers do: whoever reaches the port can do it as
// often as they like. One line goes out in a while, and the next says how many were
// left out.
type limiter struct {
	mu     sync.Mutex
	until  int64 // nothing goes out before, by clock
	hidden uint64
}

// warn writes a line, or counts it.
func (l *limiter) warn(log *zap.Logger, msg string, fields ...zap.Field) {
	if hidden, ok := l.admit(clock()); ok {
		log.Warn(msg, append(fields, zap.Uint64("left_out", hidden))...)
	}
}

// admit reports whether a line may go out now, and how many did not since the last.
func (l *limiter) admit(now int64) (hidden uint64, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now < l.until {
		l.hidden++
		return 0, false
	}
	hidden = l.hidden
	l.until, l.hidden = now+quiet.Nanoseconds(), 0
	return hidden, true
}

// Stranger tells of a connection from addr, HOST:PORT, that a listener dropped
// before it became a request.
func (s *Server) Stranger(addr string, err error) {
	s.breaches.warn(s.log, "connection refused", zap.String("peer", addr), zap.Error(err))
}
