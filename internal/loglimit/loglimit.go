// Package loglimit keeps peers from filling the log. What a peer can do as often as it
// likes gets a few lines in a period, and the next line says how many were left out.
package loglimit

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// New returns a logger that writes at most so many lines in a period to log, whatever
// their messages. The first line of a period has the field left_out if the previous
// period left lines out. Loggers derived from the result share the limit.
func New(log *slog.Logger, lines int, period time.Duration) *slog.Logger {
	return limited(log, &limit{lines: lines, period: period, kind: func(string) string { return "" }})
}

// PerMessage is New with a separate limit for each message. A program's messages are
// constants, so there are few.
func PerMessage(log *slog.Logger, lines int, period time.Duration) *slog.Logger {
	return limited(log, &limit{lines: lines, period: period, kind: func(message string) string { return message }})
}

func limited(log *slog.Logger, l *limit) *slog.Logger {
	l.counts = make(map[string]*count)
	return slog.New(&handler{log.Handler(), l})
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

// A handler passes on what the limit admits.
type handler struct {
	slog.Handler
	limit *limit
}

func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &handler{h.Handler.WithAttrs(attrs), h.limit}
}

func (h *handler) WithGroup(name string) slog.Handler {
	return &handler{h.Handler.WithGroup(name), h.limit}
}

func (h *handler) Handle(ctx context.Context, r slog.Record) error {
	leftOut, ok := h.limit.allow(r.Message, r.Time)
	switch {
	case !ok:
		return nil
	case leftOut > 0:
		return h.Handler.WithAttrs([]slog.Attr{slog.Int("left_out", leftOut)}).Handle(ctx, r)
	}
	return h.Handler.Handle(ctx, r)
}
