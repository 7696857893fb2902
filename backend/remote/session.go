package remote

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"pmnbd/backend"
	"pmnbd/persist"
	"pmnbd/persist/wire"
	"pmnbd/rdma"
)

// A RefusedError is the target's refusal of a session.
type RefusedError struct {
	Region string
	wire.Refused
}

func (e *RefusedError) Error() string {
	s := fmt.Sprintf("the target refuses region %s: %v", e.Region, e.Code)
	if e.Code == wire.CodeBusy {
		s += fmt.Sprintf(", held by %s for %d more seconds", uuid.UUID(e.Holder), e.Seconds)
	}
	if e.Text != "" {
		s += ": " + e.Text
	}
	return s
}

// errSessionClosed ends a lane whose session was given back.
var errSessionClosed = errors.New("session closed")

const (
	// openTries is how often OPEN is sent: once to learn the epoch, once knowingly,
	// and once more if somebody else was faster.
	openTries = 3
	// closeTimeout bounds the wait for CLOSED: everything is durable already, and
	// the lease ends by itself.
	closeTimeout = 5 * time.Second
)

// receiveInto is the receive into message buffer i of mem.
func (d *Device) receiveInto(mem *rdma.MemoryRegion, i uint64) rdma.WorkRequest {
	return rdma.WorkRequest{
		ID: tagRecv | i, Op: rdma.OpRecv,
		Local: rdma.SGE{Region: mem, Off: i * wire.MaxMessage, Len: wire.MaxMessage},
	}
}

// open connects lane 0 and obtains the session.
func (d *Device) open(ctx context.Context) (err error) {
	half := len(d.control) / 2
	recvs, err := d.domain.Register(d.control[:half:half], rdma.LocalWrite)
	if err != nil {
		return fmt.Errorf("register control memory: %w", err)
	}
	sends, err := d.domain.Register(d.control[half:], 0)
	if err != nil {
		return fmt.Errorf("register control memory: %w", err)
	}
	var wrs []rdma.WorkRequest
	for i := range uint64(maxMessages) {
		wrs = append(wrs, d.receiveInto(recvs, i))
	}
	conn, err := d.domain.Dial(ctx, d.cfg.Addr, rdma.ConnConfig{MaxRecvWR: maxMessages}, wrs)
	if err != nil {
		return fmt.Errorf("connect to the target at %s: %w", d.cfg.Addr, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, conn.Close())
		}
	}()
	if !conn.Caps().OrderedPlacement {
		return fmt.Errorf("the RDMA device does not place overlapping Writes in order: %w yet", rdma.ErrNotSupported)
	}
	if d.granted, err = d.handshake(ctx, conn, recvs, sends); err != nil {
		return err
	}
	g := &d.granted
	if err := check(g); err != nil {
		return err
	}
	class := persist.Class(g.Class)
	if class == persist.ClassVolatile && !d.cfg.AllowVolatile {
		return errors.New("the region is volatile: --allow-volatile permits that")
	}
	credits := int(min(g.Credits, maxMessages)) - reservedCredits
	l := &lane{
		d: d, index: 0, conn: conn, ring: d.window.Ring(0), recvs: recvs, done: make(chan struct{}),
		barrier: persist.NewGPSPM(sends, credits, g.MaxMessage, tagBarrier),
		batch:   make([]rdma.WorkRequest, 0, batchMax),
	}
	d.lanes = []*lane{l}
	d.barriers.inherits = g.Flags&wire.OpenedDoubt != 0
	d.info.Size, d.info.BlockMin, d.info.BlockPreferred = g.Size, 1, 4096
	d.info.Description = describe(d.cfg.Region, class)
	if g.Flags&wire.OpenedUnclean != 0 {
		d.log.Warn("the region's former session did not close: what it had acknowledged and not flushed is lost", zap.String("region", d.cfg.Region))
	}
	if class == persist.ClassVolatile {
		d.log.Warn("the region is volatile: FLUSH means visible at the target, not durable", zap.String("region", d.cfg.Region))
	}
	d.log.Info("session opened", zap.String("region", d.cfg.Region), zap.String("target", d.cfg.Addr),
		zap.Stringer("class", class), zap.Uint64("size", g.Size), zap.Uint64("epoch", g.Epoch),
		zap.Stringer("method", persist.MethodGPSPM), zap.String("why", "the method that is sound for every class"))
	return nil
}

// check tells whether a session can be held on what the target granted.
func check(g *wire.Opened) error {
	switch {
	case g.Size == 0 || g.Size > math.MaxInt64 || g.Base > math.MaxUint64-g.Size:
		return fmt.Errorf("the target grants %d bytes at %#x: %w", g.Size, g.Base, wire.ErrMalformed)
	case g.Methods&(1<<persist.MethodGPSPM) == 0:
		return fmt.Errorf("the target offers methods %#x, gpspm not among them: %w", g.Methods, rdma.ErrNotSupported)
	case g.Credits <= reservedCredits || wire.MaxRanges(g.MaxMessage) == 0:
		return fmt.Errorf("the target takes %d messages of %d bytes, too few to send barriers: %w", g.Credits, g.MaxMessage, wire.ErrMalformed)
	case g.Heartbeat == 0 || g.Lease <= g.Heartbeat:
		return fmt.Errorf("the target wants heartbeats every %d ms and a lease of %d ms: %w", g.Heartbeat, g.Lease, wire.ErrMalformed)
	}
	return nil
}

// handshake sends OPEN until it is granted. The first one asks for the epoch; a
// refusal tells the region's UUID, too, so that its lock is taken before anything
// that the grant would end.
func (d *Device) handshake(ctx context.Context, conn rdma.Conn, recvs, sends *rdma.MemoryRegion) (wire.Opened, error) {
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() }) // wakes Wait
	defer stop()
	msg := wire.Open{Owner: wire.Owner{ID: d.cfg.ID}, Credits: maxMessages, Lanes: 1, Region: d.cfg.Region}
	if _, err := rand.Read(msg.Owner.Nonce[:]); err != nil {
		return wire.Opened{}, fmt.Errorf("draw a nonce: %w", err)
	}
	if d.cfg.AllowVolatile {
		msg.Flags |= wire.OpenAllowVolatile
	}
	var refused wire.Refused
	for range openTries {
		b := msg.Append(sends.Mem[:0])
		wr := rdma.WorkRequest{ID: tagControl, Op: rdma.OpSend, Signaled: true, Local: rdma.SGE{Region: sends, Len: uint32(len(b))}}
		if _, err := conn.Post([]rdma.WorkRequest{wr}); err != nil {
			return wire.Opened{}, fmt.Errorf("send OPEN: %w", err)
		}
		answer, again, err := d.answer(conn, recvs)
		if err != nil {
			if ctx.Err() != nil {
				err = fmt.Errorf("%w: %w", rdma.ErrTimeout, ctx.Err())
			}
			return wire.Opened{}, fmt.Errorf("wait for OPENED: %w", err)
		}
		t, err := wire.TypeOf(answer)
		if err != nil {
			return wire.Opened{}, fmt.Errorf("the target answers OPEN: %w", err)
		}
		if t == wire.TypeOpened {
			var opened wire.Opened
			if err := opened.Decode(answer); err != nil {
				return opened, err
			}
			return opened, conn.PostRecv([]rdma.WorkRequest{again})
		}
		if err := refused.Decode(answer); err != nil {
			return wire.Opened{}, err
		}
		if err := conn.PostRecv([]rdma.WorkRequest{again}); err != nil {
			return wire.Opened{}, err
		}
		if refused.Code != wire.CodeEpoch {
			break
		}
		if d.claim == nil {
			if d.claim, err = claimRegion(d.cfg.StateDir, d.cfg.ID, refused.UUID); err != nil {
				return wire.Opened{}, err
			}
		}
		msg.Epoch = refused.Epoch
	}
	return wire.Opened{}, &RefusedError{Region: d.cfg.Region, Refused: refused}
}

// answer waits until what was sent has left its slot and one message came, and
// returns that with the receive to post again.
func (d *Device) answer(conn rdma.Conn, recvs *rdma.MemoryRegion) (msg []byte, again rdma.WorkRequest, err error) {
	var c [1]rdma.Completion
	for sent := false; !sent || msg == nil; {
		n, err := conn.Poll(c[:])
		switch {
		case err != nil:
			return nil, again, err
		case n == 0:
			if err := conn.Wait(); err != nil {
				return nil, again, err
			}
		case c[0].Op == rdma.OpSend:
			sent = true
		case c[0].Op == rdma.OpRecv:
			i := c[0].ID &^ tagMask
			off := i * wire.MaxMessage
			msg, again = recvs.Mem[off:off+uint64(c[0].Len)], d.receiveInto(recvs, i)
		}
	}
	return msg, again, nil
}

// serve starts the goroutines of the session; leave ends them.
func (d *Device) serve() {
	d.heard.Store(d.clock())
	for _, l := range d.lanes {
		go l.complete()
	}
	go d.heartbeats()
}

// heartbeats tells the target that we live, and notices that it does not: no
// transport says so in useful time (design §5).
func (d *Device) heartbeats() {
	defer close(d.beatEnded)
	interval := time.Duration(d.granted.Heartbeat) * time.Millisecond
	lease := time.Duration(d.granted.Lease) * time.Millisecond
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-d.beat:
			return
		case <-tick.C:
		}
		if silence := time.Duration(d.clock() - d.heard.Load()); silence > lease {
			d.lanes[0].abort(fmt.Errorf("%w: the target has said nothing for %v: %w", rdma.ErrLost, silence.Round(time.Millisecond), rdma.ErrTimeout))
			continue
		}
		if d.beatAcked.Load() != d.beatSent {
			continue // there is one credit for heartbeats
		}
		d.beatSent++
		m := wire.Heartbeat{Seq: d.beatSent}
		d.lanes[0].send(m.Append(nil))
	}
}

// leave gives the session back, with CLOSE if the region is clean, and ends the
// goroutines.
func (d *Device) leave(clean bool) (err error) {
	close(d.beat)
	<-d.beatEnded
	d.closing.Store(true)
	l := d.lanes[0]
	if clean {
		m := wire.Close{Epoch: d.granted.Epoch}
		l.send(m.Append(nil))
		timeout := time.AfterFunc(closeTimeout, func() { l.abort(rdma.ErrTimeout) })
		<-l.done
		timeout.Stop()
		if !errors.Is(l.broken, errSessionClosed) {
			err = fmt.Errorf("give the lease back: %w", l.broken)
		}
	}
	for _, l := range d.lanes {
		l.abort(backend.ErrClosed)
		<-l.done
	}
	d.log.Info("session closed", zap.String("region", d.cfg.Region), zap.Error(err))
	return err
}
