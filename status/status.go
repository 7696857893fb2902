// Package status is the control socket: a process shows how it is to whoever may
// open the socket, as JSON over HTTP.
//
// It exists so that people and their monitoring ask a running process, and not its
// log. It owns where control sockets are (Place), their server and their client. What
// is shown are snapshots: values that their owners copied, made only when somebody
// asks (design §9). It imports sockio.
package status

import (
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"go.uber.org/zap"
)

// Path is where the document is.
const Path = "/status"

// timeout bounds a question, at both ends: an answer takes a few microseconds, so
// it is only there for who is stuck.
const timeout = 5 * time.Second

// A Header begins every document.
type Header struct {
	Program string    `json:"program"` // "pmnbd" or "pmnbd-target"
	PID     int       `json:"pid"`
	Started time.Time `json:"started"`
}

// NewHeader is this process's, which starts now.
func NewHeader(program string) Header {
	return Header{Program: program, PID: os.Getpid(), Started: time.Now().Round(time.Millisecond)}
}

// A Server answers on a control socket.
type Server struct {
	http   http.Server
	ended  chan struct{} // no more connections come
	conns  sync.WaitGroup
	failed error
}

// Serve answers on l, which it closes, with what snapshot returns: a struct that
// embeds a Header. snapshot may be called by several goroutines.
func Serve(l net.Listener, log *zap.Logger, snapshot func() any) *Server {
	s := &Server{ended: make(chan struct{})}
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+Path, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(snapshot()) // who asked has left
	})
	s.http = http.Server{Handler: mux, ReadTimeout: timeout, WriteTimeout: timeout, ErrorLog: zap.NewStdLog(log), ConnState: s.track}
	s.http.SetKeepAlivesEnabled(false)
	go func() {
		defer close(s.ended)
		s.failed = s.http.Serve(l)
	}()
	return s
}

// track counts the connections. The first state is reported before Serve can return.
func (s *Server) track(_ net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		s.conns.Add(1)
	case http.StateClosed:
		s.conns.Done()
	}
}

// Close removes the socket, cuts its connections, and returns when their
// goroutines have ended. It is idempotent.
func (s *Server) Close() error {
	err := s.http.Close()
	<-s.ended
	_ = s.http.Close() // of a connection that came meanwhile
	s.conns.Wait()
	if !errors.Is(s.failed, http.ErrServerClosed) {
		return s.failed
	}
	return err
}
