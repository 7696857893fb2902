// Package status is the control socket: a process shows how it is to whoever may
// open the socket, as JSON and as metrics over HTTP. The metrics alone can have a TCP
// address as well.
//
// It exists so that people and their monitoring ask a running process, and not its
// log. It owns where control sockets are (Place), where metrics are (Address), their
// server and their client, and how a metric is written. What is shown are snapshots:
// values that their owners copied, made only when somebody asks (design §9). It
// imports plain and sockio.
package status

import (
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
)

// Where things are: the document, and the metrics made of it.
const (
	Path        = "/status"
	MetricsPath = "/metrics"
)

const (
	// timeout bounds a question, at both ends: an answer takes a few microseconds, so
	// it is only there for who is stuck.
	timeout = 5 * time.Second
	// maxConns is how many may ask at the same time, at each address: who can reach
	// one must not take the descriptors that requests need.
	maxConns = 32
	// maxHead bounds the head of a question, in bytes.
	maxHead = 16 << 10
)

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

// A Server answers on a control socket, and on an address for metrics.
type Server struct{ doors []*door }

// Serve answers on control with documents and metrics, and on metrics, if that is not
// nil, with metrics; it closes both. snapshot may be called by several goroutines.
func Serve(control, metrics net.Listener, log *zap.Logger, snapshot func() Document) *Server {
	scrape := MetricsHandler(log, snapshot)
	mux := http.NewServeMux()
	mux.Handle("GET "+MetricsPath, scrape)
	mux.HandleFunc("GET "+Path, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(snapshot()) // who asked has left
	})
	s := &Server{doors: []*door{open(control, mux, log)}}
	if metrics != nil {
		mux = http.NewServeMux()
		mux.Handle("GET "+MetricsPath, scrape)
		log.Info("metrics are served", zap.String("url", "http://"+metrics.Addr().String()+MetricsPath))
		s.doors = append(s.doors, open(metrics, mux, log))
	}
	return s
}

// Close removes the socket, cuts all connections, and returns when their goroutines
// have ended. It is idempotent.
func (s *Server) Close() error {
	var errs []error
	for _, d := range s.doors {
		errs = append(errs, d.close())
	}
	return errors.Join(errs...)
}

// A door is a listener and who came in by it.
type door struct {
	http   http.Server
	ended  chan struct{} // no more connections come
	conns  sync.WaitGroup
	inside atomic.Int32 // as conns counts
	failed error
}

func open(l net.Listener, handler http.Handler, log *zap.Logger) *door {
	d := &door{ended: make(chan struct{})}
	d.http = http.Server{
		Handler: handler, ReadTimeout: timeout, WriteTimeout: timeout, MaxHeaderBytes: maxHead,
		ErrorLog: zap.NewStdLog(log), ConnState: d.track,
	}
	d.http.SetKeepAlivesEnabled(false)
	go func() {
		defer close(d.ended)
		d.failed = d.http.Serve(l)
	}()
	return d
}

// track counts the connections, and cuts those that are too many. The first state is
// reported before http.Serve can return.
func (d *door) track(c net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		d.conns.Add(1)
		if d.inside.Add(1) > maxConns {
			_ = c.Close() // its goroutine meets that, and ends
		}
	case http.StateClosed:
		d.inside.Add(-1)
		d.conns.Done()
	}
}

func (d *door) close() error {
	err := d.http.Close()
	<-d.ended
	_ = d.http.Close() // of a connection that came meanwhile
	d.conns.Wait()
	if !errors.Is(d.failed, http.ErrServerClosed) {
		return d.failed
	}
	return err
}
