// Package loglimit keeps peers from filling the log. What a peer can do as often as it
// likes gets a few lines in a period, and the next line says how many were left out.
package loglimit

import (
	"sync"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// New returns a logger that writes at most so many lines in a period to log, whatever
// their messages. The first line of a period has the field left_out if the previous
// period left lines out. Loggers derived from the result share the limit.
func New(log *zap.Logger, lines int, period time.Duration) *zap.Logger {
	return limited(log, &limit{lines: lines, period: period, kind: func(string) string { return "" }})
}

// PerMessage is New with a separate limit for each message. A program's messages are
// constants, so there are few.
func PerMessage(log *zap.Logger, lines int, period time.Duration) *zap.Logger {
	return limited(log, &limit{lines: lines, period: period, kind: func(message string) string { return message }})
}

func limited(log *zap.Logger, l *limit) *zap.Logger {
	l.counts = make(map[string]*count)
	return log.WithOptions(zap.WrapCore(func(c zapcore.Core) zapcore.Core { return &core{c, l} }))
}

// A limit counts the lines of each kind.
type limit struct {
	lines  int
	period time.Duration
	kind   func(message string) string

	mu     sync.Mutex
	counts map[string]*count
}

type count struct {
	since            time.Time // the start of the period
	written, leftOut int       // lines of the period
}

// allow reports whether a line may be written now, and how many the previous period left
// out.
func (l *limit) allow(message string, now time.Time) (leftOut int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	kind := l.kind(message)
	n := l.counts[kind]
	if n == nil {
		n = &count{since: now}
		l.counts[kind] = n
	}
	if now.Sub(n.since) >= l.period {
		leftOut = n.leftOut
		*n = count{since: now}
	}
	if n.written == l.lines {
		n.leftOut++
		return 0, false
	}
	n.written++
	return leftOut, true
}

// A core passes on the lines that the limit allows.
type core struct {
	zapcore.Core
	limit *limit
}

func (c *core) With(fields []zapcore.Field) zapcore.Core { return &core{c.Core.With(fields), c.limit} }

func (c *core) Check(e zapcore.Entry, to *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if !c.Enabled(e.Level) {
		return to
	}
	leftOut, ok := c.limit.allow(e.Message, e.Time)
	if !ok {
		return to
	}
	if leftOut > 0 {
		return c.Core.With([]zapcore.Field{zap.Int("left_out", leftOut)}).Check(e, to)
	}
	return c.Core.Check(e, to)
}
