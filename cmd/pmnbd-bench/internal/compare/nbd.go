package compare

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"pmnbd/cmd/pmnbd-bench/internal/storage"
	"pmnbd/nbd/client"
	"pmnbd/nbd/wire"
)

// A connection to an NBD server is the lane of several writers, as with Linux's client. An operation is
// what an fsync becomes there: all writes, and when they were answered a FLUSH.
type connection struct {
	c       *client.Client
	payload []byte
}

// dialTimeout bounds connecting and negotiating.
const dialTimeout = 5 * time.Second

// maxWriters is how many writers a connection has at most.
const maxWriters = 64

func dial(ctx context.Context, o Operand, payload []byte) (*connection, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	nc, err := new(net.Dialer).DialContext(ctx, o.Network, o.Address)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = nc.SetDeadline(time.Unix(1, 0)) })
	c, err := client.New(nc, client.Config{Export: o.Export, Depth: maxWriters * most})
	stop()
	if err != nil {
		return nil, err
	}
	return &connection{c: c, payload: payload}, nil
}

func (w *connection) commit(op []extent) error {
	for i, e := range op {
		w.c.Write(uint32(i), uint64(e.off), w.payload[:e.len], 0)
	}
	if err := w.replies(len(op)); err != nil {
		return err
	}
	w.c.Flush(0)
	return w.replies(1)
}

// replies sends what is queued, and waits for n replies.
func (w *connection) replies(n int) error {
	if err := w.c.Send(); err != nil {
		return err
	}
	for range n {
		if _, err := w.reply(); err != nil {
			return err
		}
	}
	return nil
}

// A slot is a worker's place on a connection. Its tags are most, one for each of its writes.
type slot struct {
	*worker
	began    time.Time
	counts   bool
	waiting  int // replies
	flushing bool
}

// run has an operation of each worker under way all the time. What becomes ready together is sent
// together.
func (w *connection) run(workers []*worker, s span) error {
	slots := make([]slot, len(workers))
	now := time.Now()
	for i := range slots {
		slots[i].worker = workers[i]
		w.start(i, &slots[i], now)
	}
	for running := len(slots); running > 0; {
		if !w.c.Buffered() {
			if err := w.c.Send(); err != nil {
				return err
			}
		}
		i, err := w.reply()
		if err != nil {
			return err
		}
		x := &slots[i/most]
		if x.waiting--; x.waiting > 0 {
			continue
		}
		if !x.flushing {
			x.flushing, x.waiting = true, 1
			w.c.Flush(uint32(i / most * most))
			continue
		}
		now := time.Now()
		if err := x.count(s, x.began, now, x.counts); err != nil {
			return err
		}
		switch {
		case s.stop.Load():
			return errInterrupted
		case x.goesOn(s, now):
			w.start(i/most, x, now)
		default:
			running--
		}
	}
	return nil
}

// start queues the writes of the next operation of slot i.
func (w *connection) start(i int, x *slot, now time.Time) {
	op, counts := x.stream.next()
	for n, e := range op {
		w.c.Write(uint32(i*most+n), uint64(e.off), w.payload[:e.len], 0)
	}
	x.began, x.counts, x.waiting, x.flushing = now, counts, len(op), false
}

// reply waits for the next reply, and returns its tag.
func (w *connection) reply() (int, error) {
	tag, errno, err := w.c.Recv()
	if err == nil && errno != 0 {
		err = fmt.Errorf("the server answered: %w", syscall.Errno(errno)) // NBD's numbers are Linux's
	}
	return int(tag), err
}

func (w *connection) bound(t time.Time) error { return w.c.Socket().SetDeadline(t) }

func (w *connection) close() error {
	if w.bound(time.Now().Add(time.Second)) == nil {
		_ = w.c.Disc() // fails if the server is gone
	}
	return w.c.Close()
}

// looked is how much of an export openExport looks at, for signatures: nearly all are there.
const looked = 1 << 20

// openExport connects as often as it shall.
func openExport(ctx context.Context, o Operand, cfg *Config, payload []byte) (p *place, err error) {
	p = &place{Subject: Subject{Label: o.Label, Given: o.Given, Form: FormExport, Kind: "NBD export"}}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.close())
		}
	}()
	w, err := dial(ctx, o, payload)
	if err != nil {
		return p, err
	}
	p.lanes = append(p.lanes, w)
	p.Size = int64(min(w.c.Export().Size, 1<<62))
	p.Says = w.c.Description()
	p.judgeExport(o)
	switch flags := w.c.Export().Flags; {
	case flags&wire.FlagReadOnly != 0:
		return p, errors.New("the export is read-only")
	case flags&wire.FlagSendFlush == 0:
		return p, errors.New("the server offers no FLUSH, so nothing there can be made durable")
	case w.c.BlockSizes().Min > block:
		return p, fmt.Errorf("the server takes no requests of less than %d bytes", w.c.BlockSizes().Min)
	}
	if !cfg.Force {
		if err := w.empty(ctx, p.Size); err != nil {
			return p, err
		}
	}
	for len(p.lanes) < cfg.Connections {
		w, err := dial(ctx, o, payload)
		if err != nil {
			return p, fmt.Errorf("connection %d of %d: %w", len(p.lanes)+1, cfg.Connections, err)
		}
		p.lanes = append(p.lanes, w)
	}
	return p, nil
}

// judgeExport says what a FLUSH means there, as far as the server's words go. They are those of
// backend/remote.
func (s *Subject) judgeExport(o Operand) {
	switch {
	case strings.Contains(s.Says, "VOLATILE"):
		s.Kind, s.Volatile = "NBD export, class volatile", true
		s.Meaning = "A FLUSH means visible in the target's memory. Everything is lost with the target's power."
	case strings.Contains(s.Says, "class pmem"):
		s.Kind, s.Meaning = "NBD export, class pmem", "A FLUSH means durable in the target's persistent memory."
	case strings.Contains(s.Says, "class file"):
		s.Kind = "NBD export, class file"
		s.Meaning = "A FLUSH means that the target's fdatasync has returned, so it costs at least what it costs on the target's disk."
	default:
		s.Meaning = "The server does not say what a FLUSH makes durable."
	}
	host, _, err := net.SplitHostPort(o.Address)
	ip := net.ParseIP(host)
	s.Local = o.Network == "unix" || err == nil && (host == "localhost" || ip.IsLoopback())
}

// empty fails if the export has something on it.
func (w *connection) empty(ctx context.Context, size int64) error {
	if err := w.bound(time.Now().Add(patience)); err != nil {
		return err
	}
	head := make([]byte, min(size, looked))
	const piece = 128 << 10
	for i := 0; i < len(head); i += piece {
		w.c.Read(0, uint64(i), head[i:min(i+piece, len(head))])
		if err := w.replies(1); err != nil {
			return fmt.Errorf("look what is on it: %w", err)
		}
	}
	f, err := os.CreateTemp("", "pmnbd-bench-head-")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }() // holds nothing that anybody misses
	_, err = f.Write(head)
	if err = errors.Join(err, f.Truncate(size), f.Close()); err != nil {
		return err
	}
	return refuseContents(storage.Contents(ctx, f.Name()))
}

// refuseContents makes an error of what storage.Contents returned, unless it found nothing.
func refuseContents(found []string, err error) error {
	if err != nil {
		return fmt.Errorf("%w: --force overwrites it without a look", err)
	}
	if len(found) > 0 {
		return fmt.Errorf("it has contents (%s), which would be overwritten: --force does so", strings.Join(slices.Compact(found), ", "))
	}
	return nil
}
