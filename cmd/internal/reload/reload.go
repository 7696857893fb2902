// Package reload has a daemon read its configuration file and its keys again while it serves: at
// SIGHUP, and when the command reload asks for it on the control socket.
//
// It exists so that both daemons do it alike: one reload at a time, everything in it or nothing, and
// whoever asked hears what came of it. What a daemon changes, it says itself (New). The
// package imports command, daemon and status.
package reload

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"

	"go.uber.org/zap"

	"pmnbd/cmd/internal/command"
	"pmnbd/cmd/internal/daemon"
	"pmnbd/cmd/internal/flags"
	"pmnbd/cmd/internal/status"
)

// Path is where the control socket takes the request.
const Path = "/reload"

// Changes say what a reload has changed.
type Changes struct {
	// Added, Removed and Changed name regions or exports.
	Added   []string `json:"added,omitempty"`
	Removed []string `json:"removed,omitempty"`
	Changed []string `json:"changed,omitempty"`
	// Keys: the key file was read again.
	Keys bool `json:"keys,omitempty"`
	// Later: the process starts. What else has changed counts when it serves.
	Later bool `json:"later,omitempty"`
	// Wrong says what did not end in order, though everything has changed.
	Wrong string `json:"wrong,omitempty"`
}

// String is what the command prints.
func (c *Changes) String() string {
	var parts []string
	for _, p := range []struct {
		did   string
		names []string
	}{{"added", c.Added}, {"removed", c.Removed}, {"changed", c.Changed}} {
		if len(p.names) > 0 {
			parts = append(parts, p.did+" "+strings.Join(p.names, ", "))
		}
	}
	if c.Keys {
		parts = append(parts, "keys read again: they count from the next handshake")
	}
	if c.Later {
		parts = append(parts, later)
	}
	return cmp.Or(strings.Join(parts, "; "), "nothing has changed")
}

// later says what becomes of changes that a start does not take.
const later = "what else has changed counts when this process serves"

// A Reloader reloads one daemon. Close ends it.
type Reloader struct {
	log *zap.Logger
	do  func(context.Context) (*Changes, error)
	// Nothing: the daemon has neither a file nor keys to read again.
	Nothing bool
	// Starting is what a reload does until Serve is called, while the start may wait for long. nil: the
	// daemon calls neither OnHangup nor Command before it serves.
	Starting func(context.Context) (*Changes, error)

	living context.Context //nolint:containedctx // ends with Close
	cancel context.CancelFunc
	deafen func()         // ends OnHangup, and waits for what that has begun
	rest   sync.WaitGroup // of what Serve has begun

	turn   chan struct{} // has one while a reload goes on, which may use what follows
	serves bool
	later  bool // the last reload has left something
}

// New returns a Reloader. do reads everything again and changes what is to be changed, all or nothing:
// if it fails, nothing has changed.
func New(log *zap.Logger, do func(context.Context) (*Changes, error)) *Reloader {
	r := &Reloader{log: log, do: do, turn: make(chan struct{}, 1), deafen: func() {}}
	r.living, r.cancel = context.WithCancel(context.Background())
	return r
}

// Close lets no reload begin any more, and ends the context of one that is under way. ended is closed
// when that one has ended; it is nil if there is none. Close may be called several times.
func (r *Reloader) Close() (ended <-chan struct{}) {
	r.cancel()
	select {
	case r.turn <- struct{}{}:
		<-r.turn
		r.ended()
		return nil
	default:
	}
	c := make(chan struct{})
	go func() {
		defer close(c)
		r.turn <- struct{}{}
		<-r.turn
		r.ended()
	}()
	return c
}

// ended waits for the goroutines of r.
func (r *Reloader) ended() {
	r.deafen()
	r.rest.Wait()
}

// Serve says that the daemon serves: from now on a reload changes everything. What reloads left during the
// start is reloaded at once, and nobody waits for that.
func (r *Reloader) Serve() {
	r.turn <- struct{}{}
	defer func() { <-r.turn }()
	r.serves = true
	if r.later {
		r.rest.Go(func() { _, _ = r.run(r.living) }) // run logs what came of it
	}
}

var (
	errNothing = errors.New("there is nothing to read again: the process was started without --config and without --key-file")
	errEnding  = errors.New("the process is ending")
)

func (r *Reloader) run(ctx context.Context) (*Changes, error) {
	if r.Nothing {
		return nil, errNothing
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(r.living, cancel)()
	select {
	case r.turn <- struct{}{}:
		defer func() { <-r.turn }()
	case <-ctx.Done():
	}
	if r.living.Err() != nil {
		return nil, errEnding
	}
	if err := ctx.Err(); err != nil { // the caller has given up
		return nil, err
	}
	do := r.do
	if r.Starting != nil && !r.serves {
		do = r.Starting
	}
	c, err := do(ctx)
	if err != nil {
		r.log.Error("reload: nothing changed", zap.Error(err))
		return nil, err
	}
	said := "read again"
	if r.later = c.Later; r.later {
		said += "; " + later
	}
	r.log.Info(said, zap.Strings("added", c.Added), zap.Strings("removed", c.Removed), zap.Strings("changed", c.Changed), zap.Bool("keys", c.Keys))
	if c.Wrong != "" {
		r.log.Error("reload: what was removed did not end in order", zap.String("error", c.Wrong))
	}
	return c, nil
}

// OnHangup reloads at each SIGHUP. A daemon that has nothing to read says so and goes on: the same
// command must not reload one daemon and end another. Close ends it.
func (r *Reloader) OnHangup() {
	r.deafen = daemon.OnHangup(func(ctx context.Context) {
		if _, err := r.run(ctx); errors.Is(err, errNothing) { // run has logged everything else
			r.log.Info("SIGHUP: " + err.Error() + "; SIGTERM would end it")
		}
	})
}

// Command reloads when the control socket is asked.
func (r *Reloader) Command() status.Command {
	return status.Command{Path: Path, Run: func(ctx context.Context, _ url.Values, say func(any) error) error {
		c, err := r.run(ctx)
		if err != nil {
			return err
		}
		return say(c)
	}}
}

// A Document is what a daemon says of itself. Its header tells its process.
type Document struct{ status.Header }

// Run runs the command reload: every process of program at --control reads again, or the one of --pid.
func Run(call *command.Call, program string) error {
	control := status.DefaultPlace()
	call.Flags.Var(&control, "control", "the control socket to ask, or, with a / at its end, where to look for them")
	pid := call.Flags.Int("pid", 0, "only the process with this `PID`, as systemd's $MAINPID (default all)")
	if err := call.Parse(); err != nil {
		return err
	}
	if call.Flags.Changed("pid") && *pid < 1 {
		return flags.Usagef("--pid %d: use the number of a process", *pid)
	}
	ctx := context.Background()
	found, unheard := status.Find[Document](ctx, &control, program)
	asked := 0
	err := unheard
	if *pid != 0 {
		err = nil // another process that does not answer is no failure of this one
	}
	for _, f := range found {
		if *pid != 0 && f.Document.PID != *pid {
			continue
		}
		asked++
		var c Changes
		failed := status.Do(ctx, f.Socket, Path, nil, func(line json.RawMessage) error { return json.Unmarshal(line, &c) })
		if failed != nil {
			err = errors.Join(err, fmt.Errorf("process %d: %w", f.Document.PID, failed))
			continue
		}
		_, failed = fmt.Fprintf(call.Stdout, "process %d: %s\n", f.Document.PID, c.String())
		if c.Wrong != "" {
			failed = errors.Join(failed, fmt.Errorf("process %d: %s", f.Document.PID, c.Wrong))
		}
		err = errors.Join(err, failed)
	}
	switch {
	case asked > 0 || *pid == 0 && err != nil:
		return err
	case *pid != 0:
		return errors.Join(fmt.Errorf("no %s has process id %d: looked at %v", program, *pid, &control), unheard)
	}
	return status.Nobody(&control, program)
}
