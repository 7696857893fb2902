package remote

import (
	"fmt"
	"sync/atomic"
	"time"

	"pmnbd/persist/wire"
	"pmnbd/rdma"
)

// A pulse shows that the target lives: when it last gave a sign of life, and what it said of itself
// in its acks of heartbeats.
type pulse struct {
	epoch time.Time     // when clock was 0; set once
	heard atomic.Int64  // when the target last said something, by clock
	acked atomic.Uint64 // the last heartbeat that it has answered
	waits atomic.Bool   // a heartbeat has not left the send queue of lane 0
	asked atomic.Pointer[beat]
	// The target kept this initiator's lease at that moment, by clock, or later: what was sent then has an
	// answer. That moment is earlier than heard, which dates an answer when it is handled.
	proven atomic.Int64
	// What the last ack said: the barrier in progress, since when the acks
	// have named that one, by clock, and the bytes of doubt left.
	barrier atomic.Uint64
	since   atomic.Int64
	doubt   atomic.Uint64
}

// A beat is a heartbeat, and when it was sent, by clock.
type beat struct {
	seq uint64
	at  int64
}

// clock is the time since the leg was made, in nanoseconds, whatever happens to the host's clock.
func (p *pulse) clock() int64 { return int64(time.Since(p.epoch)) }

// hear notes a sign of life.
func (p *pulse) hear() { p.heard.Store(p.clock()) }

// proves notes that the target has answered what was sent at that time, by clock.
func (p *pulse) proves(at int64) {
	for old := p.proven.Load(); at > old && !p.proven.CompareAndSwap(old, at); old = p.proven.Load() {
	}
}

// silence is how long ago the target gave the last sign of life.
func (p *pulse) silence() time.Duration { return time.Duration(p.clock() - p.heard.Load()) }

// left notes that the heartbeat has left the send queue. The target has a lease to
// answer it from now on.
func (p *pulse) left() {
	p.waits.Store(false)
	p.hear()
}

// moved notes that a request has completed. While a heartbeat waits behind such requests, each is a
// sign of life.
func (p *pulse) moved() {
	if p.waits.Load() {
		p.hear()
	}
}

// took takes the ack of a heartbeat.
func (p *pulse) took(ack *wire.HeartbeatAck) {
	p.acked.Store(ack.Seq)
	if b := p.asked.Load(); b != nil && b.seq == ack.Seq {
		p.proves(b.at)
	}
	if ack.Barrier != p.barrier.Load() {
		p.since.Store(p.clock())
		p.barrier.Store(ack.Barrier)
	}
	p.doubt.Store(ack.DoubtLeft)
}

// at is how long heartbeats have said that the target is at barrier seq; 0 if they do
// not.
func (p *pulse) at(seq uint64) time.Duration {
	if p.barrier.Load() != seq {
		return 0
	}
	return time.Duration(p.clock() - p.since.Load())
}

// arrived is how many bytes of answers to Reads have come on all lanes.
func (g *leg) arrived() (n uint64) {
	for _, l := range g.lanes {
		l.mu.Lock()
		n += l.conn.Arrived()
		l.mu.Unlock()
	}
	return n
}

// heartbeats tells the target that this initiator lives, and notices when the target does not: no
// transport says so in useful time (design §5). A slow network may have much to carry ahead of a
// heartbeat or its ack. So parts of answers to Reads are signs of life, too, and so are completions
// of requests ahead of a heartbeat that has not left.
func (g *leg) heartbeats(interval, lease time.Duration) {
	defer close(g.beatEnded)
	tick := time.NewTicker(interval)
	defer tick.Stop()
	var sent, generation uint64 // the last heartbeat, and on which connection
	var arrived uint64
	var stall stall
	var overdue overdue
	for {
		select {
		case <-g.beat:
			return
		case <-tick.C:
		}
		g.core.copies.lookAtFence()
		g.core.pull()
		if !g.up.Load() {
			overdue.none(g)
			continue // the keeper is at it
		}
		if now := g.arrived(); now != arrived {
			arrived = now
			g.pulse.hear()
		}
		if silence := g.pulse.silence(); silence > lease {
			g.lanes[0].abort(fmt.Errorf("%w: the target has said nothing for %v: %w", rdma.ErrLost, silence.Round(time.Millisecond), rdma.ErrTimeout))
			continue
		}
		unanswered := sent
		if g.pulse.acked.Load() == sent || g.pulse.waits.Load() {
			unanswered = 0 // the target does not have it yet
		}
		if l, err := stall.find(g, g.pulse.clock(), stallLeases*lease, unanswered); err != nil {
			l.abort(err)
			continue
		}
		if err := overdue.find(g, g.pulse.clock()); err != nil {
			g.lanes[0].abort(err)
			continue
		}
		if now := g.generation.Load(); g.pulse.acked.Load() != sent && generation == now {
			continue // there is one credit for heartbeats
		} else {
			generation = now
		}
		sent++
		m := wire.Heartbeat{Seq: sent}
		g.pulse.waits.Store(true)
		g.pulse.asked.Store(&beat{sent, g.pulse.clock()})
		g.lanes[0].send(tagBeat, m.Append(nil))
	}
}
