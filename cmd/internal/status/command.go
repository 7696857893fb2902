package status

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"pmnbd/internal/plain"
)

// A Command is something that a process does when somebody asks for it on the control socket, and
// that takes time. It is not offered at the address of the metrics.
type Command struct {
	// Path is that of the URL, such as /verify.
	Path string
	// Run does it. say sends a line to whoever asked. ctx ends when they leave.
	Run func(ctx context.Context, query url.Values, say func(any) error) error
}

// A said is a line of an answer to a Command. The last one has either Done or Error.
type said struct {
	Says  json.RawMessage `json:"says,omitempty"`
	Error string          `json:"error,omitempty"`
	Done  bool            `json:"done,omitempty"`
}

// maxLine bounds a line of an answer, in bytes.
const maxLine = 4 << 20

// ServeHTTP answers with a line of JSON for each thing that Run says, and one for its end.
func (c *Command) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	out := http.NewResponseController(w)
	_ = out.SetReadDeadline(time.Time{}) // else the request's context ends with it
	w.Header().Set("Content-Type", "application/x-ndjson")
	send := func(line said) error {
		_ = out.SetWriteDeadline(time.Now().Add(timeout))
		if err := json.NewEncoder(w).Encode(line); err != nil {
			return err
		}
		return out.Flush()
	}
	err := c.Run(r.Context(), r.URL.Query(), func(v any) error {
		b, err := json.Marshal(v)
		if err != nil {
			return err
		}
		return send(said{Says: b})
	})
	if err != nil {
		_ = send(said{Error: err.Error()}) // fails if the client has left
		return
	}
	_ = send(said{Done: true})
}

// Do has the process at socket run the command at path, and calls heard with each thing that it says.
// If ctx ends the process ends the command.
func Do(ctx context.Context, socket, path string, query url.Values, heard func(json.RawMessage) error) error {
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", socket)
		},
	}}
	at := url.URL{Scheme: "http", Host: "control", Path: path, RawQuery: query.Encode()}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, at.String(), nil)
	if err != nil {
		return err
	}
	res, err := client.Do(req)
	if err != nil {
		return errors.Unwrap(err) // the url.Error around it names a URL that we made up
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode == http.StatusNotFound {
		return fmt.Errorf("the process at %s is of a release that cannot do this", socket)
	}
	if res.StatusCode != http.StatusOK {
		return errors.New(plain.Text(res.Status))
	}
	body := &io.LimitedReader{R: res.Body}
	lines := json.NewDecoder(body)
	for {
		body.N = maxLine
		var raw json.RawMessage
		if err := lines.Decode(&raw); err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return fmt.Errorf("the process at %s ended before it was through: %w", socket, err)
		}
		text, err := plainTexts(raw)
		if err != nil {
			return err
		}
		var line said
		if err := json.Unmarshal(text, &line); err != nil {
			return fmt.Errorf("the process at %s: %w", socket, err)
		}
		switch {
		case line.Error != "":
			return errors.New(line.Error)
		case line.Done:
			return nil
		}
		if err := heard(line.Says); err != nil {
			return err
		}
	}
}
