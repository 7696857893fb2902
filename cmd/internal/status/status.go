// Package status is the control socket: over HTTP a process shows its state, as JSON and as
// metrics, to every user who may open the socket. The metrics can have a TCP address as well.
//
// It exists so that people and their monitoring can ask a running process instead of reading
// its log. The package owns the places of control sockets (Place) and metrics (Address), their
// server and client, and the form of a metric. It shows snapshots: copies that their owners
// make only when somebody asks (design §9). It imports latency, plain, release and
// sockio.
package status

import (
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus/collectors"
	"go.uber.org/zap"
)

// The URL paths of the document and of the metrics made of it.
const (
	Path        = "/status"
	MetricsPath = "/metrics"
)

const (
	// timeout bounds a request, at both ends. An answer takes a few microseconds, so only a
	// process that is stuck meets it.
	timeout = 5 * time.Second
	// maxConns is how many connections each address has at the same time. More could take
	// the descriptors that the process needs for its own work.
	maxConns = 32
	// maxHead bounds the head of a request, in bytes.
	maxHead = 16 << 10
)

// A Header begins every document.
type Header struct {
	Program string    `json:"program"` // "pmnbd" or "pmnbd-target"
	PID     int       `json:"pid"`
	Started time.Time `json:"started"`
}

// NewHeader returns the header of this process, with now as its start.
func NewHeader(program string) Header {
	return Header{Program: program, PID: os.Getpid(), Started: time.Now().Round(time.Millisecond)}
}

// A Server answers on a control socket, and on an address for metrics.
type Server struct{ doors []*door }

// Serve answers requests on control with documents and metrics and, if metrics is not nil, on
// metrics with metrics. The server closes both listeners. It calls snapshot from several
// goroutines. log may be nil. On control it runs commands, too.
func Serve(control, metrics net.Listener, log *zap.Logger, snapshot func() Document, commands ...Command) *Server {
	if log == nil {
		log = zap.NewNop()
	}
	scrape := MetricsHandler(log, snapshot, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	mux := http.NewServeMux()
	mux.Handle("GET "+MetricsPath, scrape)
	mux.HandleFunc("GET "+Path, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(snapshot()) // fails if the client has left
	})
	handleHealth(mux, snapshot)
	for i := range commands {
		mux.Handle("POST "+commands[i].Path, &commands[i])
	}
	s := &Server{doors: []*door{open(control, mux, log, false)}}
	if metrics != nil {
		mux = http.NewServeMux()
		mux.Handle("GET "+MetricsPath, scrape)
		handleHealth(mux, snapshot)
		handlePage(mux)
		log.Info("metrics are served", zap.String("url", "http://"+metrics.Addr().String()+MetricsPath))
		s.doors = append(s.doors, open(metrics, mux, log, true))
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

// A door is a listener and the connections that came in by it.
type door struct {
	public bool // everybody may come, and an answer takes microseconds; set once
	http   http.Server
	ended  chan struct{} // closed once no more connections come
	conns  sync.WaitGroup
	mu     sync.Mutex
	inside []net.Conn // in the order in which they came, without those that were cut
	alive  int        // how many have a goroutine, those that were cut too
	failed error
}

func open(l net.Listener, handler http.Handler, log *zap.Logger, public bool) *door {
	d := &door{public: public, ended: make(chan struct{})}
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

// track counts the connections, and cuts one if there are more than maxConns. At a public door it cuts the
// oldest: silent connections must not shut out a client that asks. Elsewhere the oldest may have a command
// under way, which takes hours, so track cuts the newest. net/http reports a connection's first state before
// Serve can return.
//
// A handler does not notice that its connection was cut. While such handlers are stuck, and there are as many of
// them as may be inside, the newest is cut at a public door too: else nothing would bound how many are stuck.
func (d *door) track(c net.Conn, state http.ConnState) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch state {
	case http.StateNew:
		d.conns.Add(1)
		d.alive++
		d.inside = append(d.inside, c)
		if n := len(d.inside); n > maxConns {
			i := n - 1
			if d.public && d.alive <= 2*maxConns {
				i = 0
			}
			_ = d.inside[i].Close() // its goroutine meets that, and ends
			d.inside = slices.Delete(d.inside, i, i+1)
		}
	case http.StateClosed:
		if i := slices.Index(d.inside, c); i >= 0 {
			d.inside = slices.Delete(d.inside, i, i+1)
		}
		d.alive--
		d.conns.Done()
	}
}

func (d *door) close() error {
	err := d.http.Close()
	<-d.ended
	_ = d.http.Close() // a connection may have come meanwhile
	d.conns.Wait()
	if !errors.Is(d.failed, http.ErrServerClosed) {
		return d.failed
	}
	return err
}
