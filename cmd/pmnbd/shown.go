package main

import (
	"errors"
	"net"
	"slices"
	"sync"

	"go.uber.org/zap"

	"pmnbd/cmd/internal/status"
	"pmnbd/cmd/pmnbd/internal/report"
)

// shown is what the control socket says: which exports are starting, and then what they are.
type shown struct {
	door door // set before anything else is called

	mu       sync.Mutex
	server   *status.Server
	header   status.Header
	starting []report.Starting
	fill     func(*report.Document) // adds the exports; nil: the start is not through
	closed   bool
}

// A door is where somebody can ask.
type door struct {
	log              *zap.Logger
	control, metrics net.Listener // metrics is nil if there is no address for them
	commands         []status.Command
}

// waits notes that an export waits.
func (s *shown) waits(w report.Starting) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgetLocked(w.Name)
	s.starting = append(s.starting, w)
	s.openLocked()
}

// begins notes that an export waits no more.
func (s *shown) begins(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgetLocked(name)
}

func (s *shown) forgetLocked(name string) {
	s.starting = slices.DeleteFunc(s.starting, func(w report.Starting) bool { return w.Name == name })
}

// serve shows the exports from now on.
func (s *shown) serve(fill func(*report.Document)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fill = fill
	s.header = status.NewHeader(report.Program)
	s.openLocked()
}

// serving reports whether serve was called.
func (s *shown) serving() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fill != nil
}

func (s *shown) openLocked() {
	if s.server == nil && !s.closed {
		if s.header == (status.Header{}) {
			s.header = status.NewHeader(report.Program)
		}
		s.server = status.Serve(s.door.control, s.door.metrics, s.door.log, func() status.Document { return s.document() }, s.door.commands...)
	}
}

func (s *shown) document() report.Document {
	s.mu.Lock()
	d := report.Document{Header: s.header, Starting: slices.Clone(s.starting)}
	fill := s.fill
	s.mu.Unlock()
	if fill != nil {
		fill(&d)
	}
	return d
}

// Close removes the socket. It is idempotent.
func (s *shown) Close() error {
	s.mu.Lock()
	server, closed := s.server, s.closed
	s.closed = true
	s.mu.Unlock() // who asks now takes it
	switch {
	case closed:
		return nil
	case server != nil:
		return server.Close()
	}
	err := s.door.control.Close()
	if s.door.metrics != nil {
		err = errors.Join(err, s.door.metrics.Close())
	}
	return err
}
