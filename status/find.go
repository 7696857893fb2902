package status

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"

	"golang.org/x/sys/unix"

	"pmnbd/sockio"
)

// maxDocument bounds a document, in bytes: a target with thousands of regions.
const maxDocument = 16 << 20

// errGone: nobody is behind the socket.
var errGone = errors.New("nobody accepts on the socket")

// A Found is the document of a process.
type Found[T any] struct {
	Document T
	// Raw is the document as it came, with what T does not know.
	Raw json.RawMessage
}

// Find asks every process at p, and returns the documents of those that are program,
// by the names of their sockets. It removes sockets that nobody accepts on. The
// error is about those that did not answer; what the others said is returned with it.
func Find[T any](ctx context.Context, p *Place, program string) ([]Found[T], error) {
	sockets, err := p.sockets()
	if err != nil {
		return nil, err
	}
	var found []Found[T]
	var errs []error
	for _, socket := range sockets {
		raw, err := ask(ctx, socket)
		if errors.Is(err, errGone) {
			continue
		}
		var header Header
		if err == nil {
			err = json.Unmarshal(raw, &header)
		}
		if err == nil && header.Program != program {
			continue
		}
		f := Found[T]{Raw: raw}
		if err == nil {
			err = json.Unmarshal(raw, &f.Document)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s does not answer: %w", socket, err))
			continue
		}
		found = append(found, f)
	}
	return found, errors.Join(errs...)
}

// ask fetches the document at socket. It is errGone if nobody is there; what is
// left of who was is removed.
func ask(ctx context.Context, socket string) (json.RawMessage, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", socket)
		},
	}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://control"+Path, nil)
	if err != nil {
		return nil, err
	}
	res, err := client.Do(req)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, errGone
	case errors.Is(err, unix.ECONNREFUSED) && sockio.Abandoned(socket):
		if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("nobody accepts on it, and it cannot be removed: %w", err)
		}
		return nil, errGone
	case err != nil:
		return nil, errors.Unwrap(err) // a url.Error tells only what ours tells better
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		return nil, errors.New(res.Status)
	}
	b, err := io.ReadAll(io.LimitReader(res.Body, maxDocument+1))
	if err == nil && len(b) > maxDocument {
		err = fmt.Errorf("a document of more than %d bytes", maxDocument)
	}
	return b, err
}

// WriteJSON writes documents as one array, as they came.
func WriteJSON[T any](w io.Writer, found []Found[T]) error {
	all := make([]json.RawMessage, 0, len(found))
	for _, f := range found {
		all = append(all, f.Raw)
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(all)
}
