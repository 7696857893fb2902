package status

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"pmnbd/internal/plain"
	"pmnbd/internal/sockio"
)

// maxDocument bounds a document, in bytes. A target with thousands of regions needs less.
const maxDocument = 16 << 20

// errGone is the error of a socket that no process accepts on.
var errGone = errors.New("nobody accepts on the socket")

// errNBD is the error of a socket for NBD clients.
var errNBD = errors.New("NBD clients connect there: it is no control socket")

// A Found is one process's document.
type Found[T any] struct {
	Document T
	// Raw is the document as it came, with the fields that T does not have.
	Raw json.RawMessage
	// Socket is the path of the process's control socket.
	Socket string
}

// maxAsked is how many processes Ask asks at the same time.
const maxAsked = 64

// moment is how long Ask waits for all processes before it passes on what it has.
const moment = time.Second

// Ask asks all processes at p at once, and calls heard with what each of those says that run
// program: in the order of their sockets' names, but a process that takes longer than a moment
// keeps nobody waiting for the others. In a directory it removes sockets that nobody accepts on.
// It returns an error if some processes did not answer.
func Ask[T any](ctx context.Context, p *Place, program string, heard func(Found[T])) error {
	sockets, err := p.sockets()
	if err != nil {
		return err
	}
	found := make([]*Found[T], len(sockets)) // nil: the process runs another program, or there is none
	errs := make([]error, len(sockets))
	room := make(chan struct{}, maxAsked)
	answered := make(chan int, len(sockets))
	for i, socket := range sockets {
		go func() {
			room <- struct{}{}
			found[i], errs[i] = question[T](ctx, socket, program)
			<-room
			answered <- i
		}()
	}
	var kept []int
	early := time.After(moment)
	for left := len(sockets); left > 0; {
		select {
		case i := <-answered:
			left--
			kept = append(kept, i)
		case <-early:
			early = nil
		}
		if early != nil && left > 0 {
			continue
		}
		slices.Sort(kept)
		for _, i := range kept {
			if found[i] != nil {
				heard(*found[i])
			}
			errs[i] = unanswered(p, sockets[i], errs[i])
		}
		kept = nil
	}
	return errors.Join(errs...)
}

// unanswered returns what is wrong at the socket if question returned err.
func unanswered(p *Place, socket string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errNBD) && !p.one:
		return nil // somebody listens in the directory of the control sockets
	case !errors.Is(err, errGone):
		return fmt.Errorf("%s does not answer: %w", socket, err)
	case p.one:
		// It may be between bind and listen. In a directory a socket gets its name only once
		// its process accepts (Place.listen).
		return nil
	}
	if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("nobody accepts on the socket, and it cannot be removed: %w", err)
	}
	return nil
}

// Find returns what Ask hears, ordered by the names of the sockets. If some processes did not
// answer, it returns an error beside the documents of the others.
func Find[T any](ctx context.Context, p *Place, program string) ([]Found[T], error) {
	var found []Found[T]
	err := Ask(ctx, p, program, func(f Found[T]) { found = append(found, f) })
	slices.SortFunc(found, func(a, b Found[T]) int { return strings.Compare(a.Socket, b.Socket) })
	return found, err
}

// question asks the process at socket for its document. It returns nil if the process runs
// another program.
func question[T any](ctx context.Context, socket, program string) (*Found[T], error) {
	raw, err := ask(ctx, socket)
	text := raw
	if err == nil {
		text, err = plainTexts(raw)
	}
	var header Header
	if err == nil {
		err = json.Unmarshal(text, &header)
	}
	if err != nil || header.Program != program {
		return nil, err
	}
	f := &Found[T]{Raw: raw, Socket: socket}
	if err := json.Unmarshal(text, &f.Document); err != nil {
		return nil, err
	}
	return f, nil
}

// plainTexts makes all texts of a document plain. The process behind the socket may say
// anything, and it repeats what its own peers said.
func plainTexts(raw json.RawMessage) (json.RawMessage, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber() // to write numbers as they came
	var document any
	if err := d.Decode(&document); err != nil {
		return nil, err
	}
	return json.Marshal(plainly(document))
}

func plainly(v any) any {
	switch v := v.(type) {
	case string:
		return plain.Text(v)
	case []any:
		for i := range v {
			v[i] = plainly(v[i])
		}
	case map[string]any:
		for key := range v {
			v[key] = plainly(v[key])
		}
	}
	return v
}

// Nobody is the error for a place where Find, without an error, found no process of program.
func Nobody(p *Place, program string) error {
	_, err := os.ReadDir(rootDir)
	return nobody(p, program, DefaultPlace(), err)
}

// nobody is Nobody for a user whose processes are at own. hidden is the error, if any, of
// reading rootDir.
func nobody(p *Place, program string, own Place, hidden error) error {
	if *p == own && errors.Is(hidden, os.ErrPermission) {
		return fmt.Errorf("no %s of this user is running: looked at %v; those of root and of the system's services are in %s, which this user cannot read: ask as root", program, p, rootDir)
	}
	return fmt.Errorf("no %s is running: looked at %v", program, p)
}

// ask fetches the document at socket. The error is errGone if no process is behind it.
func ask(ctx context.Context, socket string) (json.RawMessage, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	b, err := fetch(ctx, socket)
	switch {
	case errors.Is(err, os.ErrNotExist), errors.Is(err, unix.ECONNREFUSED) && sockio.Abandoned(socket):
		return nil, errGone
	case errors.Is(err, context.DeadlineExceeded):
		return nil, fmt.Errorf("no answer in %d s: its process hangs, or was stopped", timeout/time.Second)
	}
	return b, err
}

func fetch(ctx context.Context, socket string) (json.RawMessage, error) {
	var nbd atomic.Bool
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			c, err := d.DialContext(ctx, "unix", socket)
			if err != nil {
				return nil, err
			}
			return &answer{Conn: c, nbd: &nbd}, nil
		},
	}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://control"+Path, nil)
	if err != nil {
		return nil, err
	}
	res, err := client.Do(req)
	switch {
	case nbd.Load():
		return nil, errNBD // err can be that the request was not sent
	case err != nil:
		return nil, errors.Unwrap(err) // the url.Error around it names a URL that we made up
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		return nil, errors.New(plain.Text(res.Status))
	}
	b, err := io.ReadAll(io.LimitReader(res.Body, maxDocument+1))
	if err == nil && len(b) > maxDocument {
		err = fmt.Errorf("a document of more than %d bytes", maxDocument)
	}
	return b, err
}

// WriteJSON writes documents as one array, as they came. It escapes what a terminal could take
// for commands; to a JSON parser that makes no difference.
func WriteJSON[T any](w io.Writer, found []Found[T]) error {
	all := make([]json.RawMessage, 0, len(found))
	for _, f := range found {
		all = append(all, f.Raw)
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetIndent("", "  ")
	if err := enc.Encode(all); err != nil {
		return err
	}
	_, err := w.Write(plain.JSON(b.Bytes()))
	return err
}

// An answer is a connection whose first bytes may be those of an NBD server (NBD spec, newstyle negotiation).
type answer struct {
	net.Conn
	begun bool
	nbd   *atomic.Bool // set if they are
}

func (a *answer) Read(b []byte) (int, error) {
	n, err := a.Conn.Read(b)
	if n > 0 && !a.begun {
		a.begun = true
		if bytes.HasPrefix(b[:n], []byte("NBDMAGIC")) {
			a.nbd.Store(true)
			return 0, errNBD
		}
	}
	return n, err
}
