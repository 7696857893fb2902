package remote

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"pmnbd/backend/backendtest"
	"pmnbd/internal/logtest"
	"pmnbd/persist"
	"pmnbd/persist/target"
	"pmnbd/rdma"
	"pmnbd/rdma/rdmafake"
)

// A sync of the target that takes long is waited for, however long: the session stays, for
// another one would make all of it dirty again. Status says so, and READs go on.
func TestSlowSyncIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, rdmafake.New(rdmafake.Config{}), "", "", target.Config{Heartbeat: 2 * time.Second, Lease: 10 * time.Second})
		cfg := p.config(t)
		cfg.Lanes, cfg.LossTimeout = 2, 0
		core, warnings := observer.New(zap.WarnLevel)
		cfg.Log = logtest.On(core)
		d, err := Dial(t.Context(), cfg)
		require.NoError(t, err)
		c := backendtest.NewClient(t, d)
		require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0), c.Flush()))
		require.Zero(t, d.Snapshot().Barriers.AtTarget)
		release := p.sync.block()
		defer release()
		flush := c.Flush()
		c.Submit(c.Write(0, backendtest.Pattern(block, 2), 0), flush)
		<-p.sync.began
		time.Sleep(time.Hour)
		s := d.Snapshot()
		require.Equal(t, StateOpen, s.State)
		require.Zero(t, s.Recoveries)
		require.InDelta(t, time.Hour.Seconds(), s.Barriers.AtTarget, 10)
		require.Equal(t, 1, warnings.FilterMessageSnippet("its disk is slow").Len(), "once for a barrier")
		require.Positive(t, p.server.Snapshot()[0].Syncing)
		r := c.Read(0, block, 0)
		require.NoError(t, c.Do(r))
		require.Equal(t, backendtest.Pattern(block, 2), r.Got)
		require.False(t, flush.Completed())
		syncs := p.region.Syncs()
		release()
		require.NoError(t, c.Wait(flush))
		require.Equal(t, syncs, p.region.Syncs(), "the one that took long was enough")
		require.Zero(t, d.Snapshot().Recoveries)
		require.Zero(t, d.Snapshot().Barriers.AtTarget)
		require.Zero(t, p.server.Snapshot()[0].Syncing)
		require.NoError(t, d.Close())
	})
}

// --loss-timeout bounds the wait for a barrier that the target is at, together with the
// outage before it. It ends the device, not the session before.
func TestSlowSyncAndLossTimeout(t *testing.T) {
	const timeout = 5 * time.Minute
	for name, away := range map[string]time.Duration{"nothing before": 0, "an outage before": 2 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				network := rdmafake.New(rdmafake.Config{})
				p := newPair(t, network, "", "", target.Config{Heartbeat: 2 * time.Second, Lease: 10 * time.Second})
				cfg := p.config(t)
				cfg.LossTimeout = timeout
				d, err := Dial(t.Context(), cfg)
				require.NoError(t, err)
				c := backendtest.NewClient(t, d)
				began := time.Now()
				release := p.sync.blockData()
				defer release()
				if away > 0 {
					network.Down()
				}
				flush := c.Flush()
				c.Submit(c.Write(0, backendtest.Pattern(block, 1), 0), flush)
				if away > 0 {
					time.Sleep(away)
					network.Up()
				}
				<-p.sync.began
				time.Sleep(timeout - time.Since(began) - 10*time.Second)
				s := d.Snapshot()
				require.Equal(t, StateOpen, s.State)
				require.EqualValues(t, min(away, 1), s.Recoveries)
				time.Sleep(20 * time.Second)
				require.ErrorContains(t, c.Wait(flush), "has been at barrier")
				s = d.Snapshot()
				require.Equal(t, StateFailed, s.State)
				require.Contains(t, s.Cause, "the loss timeout is 5m0s")
				require.EqualValues(t, min(away, 1), s.Recoveries)
				release()
				require.Error(t, d.Close())
			})
		})
	}
}

// An outage in which nothing waited for the target ends with the session's return. It does not
// count against a barrier long after it.
func TestIdleOutageIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := rdmafake.New(rdmafake.Config{})
		p := newPair(t, network, "", "", target.Config{Heartbeat: 2 * time.Second, Lease: 10 * time.Second})
		cfg := p.config(t)
		cfg.LossTimeout = 5 * time.Minute
		d, err := Dial(t.Context(), cfg)
		require.NoError(t, err)
		c := backendtest.NewClient(t, d)
		network.Down()
		time.Sleep(4 * time.Minute)
		network.Up()
		time.Sleep(time.Hour)
		require.EqualValues(t, 1, d.Snapshot().Recoveries)

		release := p.sync.blockData()
		defer release()
		flush := c.Flush()
		c.Submit(c.Write(0, backendtest.Pattern(block, 1), 0), flush)
		<-p.sync.began
		time.Sleep(2 * time.Minute)
		s := d.Snapshot()
		require.Equal(t, StateOpen, s.State, s.Cause)
		release()
		require.NoError(t, c.Wait(flush))
		require.NoError(t, d.Close())
	})
}

const stallPatience = 10

// A stallCase is how something moves, or does not, from one look to the next.
type stallCase struct {
	name string
	step func(i uint64)
	says string // what is found; nothing if empty
	lane int
	ends bool // the device
}

// stallCases are those of a leg with two lanes. unanswered is the heartbeat that waits for its ack.
func stallCases(g *leg, unanswered *uint64) []stallCase {
	const patience = stallPatience
	current := func(seq uint64, remaining int) {
		b := &barrier{seq: seq, remaining: remaining}
		for range remaining {
			b.shares = append(b.shares, share{owes: persist.Member(0)})
		}
		g.core.commit.current = b
	}
	return []stallCase{
		{name: "nothing is waited for", step: func(uint64) { g.core.commit.current = nil }},
		{name: "barriers come and go", step: func(i uint64) { current(i+1, 1) }},
		{name: "lanes answer", step: func(i uint64) { current(1, int(i)+1) }},
		{name: "doubt is settled", step: func(i uint64) { current(1, 1); g.pulse.barrier.Store(1); g.pulse.doubt.Store(1000 - i) }},
		{name: "data goes out ahead of it", step: func(i uint64) { current(1, 1); g.lanes[1].moved++ }},
		{name: "the target is slow", step: func(uint64) { current(1, 1); g.pulse.barrier.Store(1) }},
		{name: "the target is too slow", step: func(uint64) { current(1, 1); g.pulse.barrier.Store(1); g.cfg.LossTimeout = patience }, says: "has been at barrier 1", ends: true},
		{name: "the target is too slow, READs go on", step: func(uint64) {
			current(1, 1)
			g.pulse.barrier.Store(1)
			g.cfg.LossTimeout = patience
			g.lanes[1].moved++
		}, says: "has been at barrier 1", ends: true},
		{name: "the target is slow, and was away before", step: func(uint64) {
			current(1, 1)
			g.pulse.barrier.Store(1)
			g.cfg.LossTimeout, g.core.commit.lost = 3*patience, 2*patience
		}, says: "has been at barrier 1", ends: true},
		{name: "doubt is settled, with a timeout", step: func(i uint64) {
			current(1, 1)
			g.pulse.barrier.Store(1)
			g.pulse.doubt.Store(1000 - i)
			g.cfg.LossTimeout = patience
		}},
		{name: "the target was at it, and answers no heartbeat", step: func(uint64) { current(1, 1); g.pulse.barrier.Store(1); *unanswered = 7 }, says: "has not answered a heartbeat"},
		{name: "heartbeats are answered", step: func(i uint64) { *unanswered = i }},
		{name: "the target never got it", step: func(uint64) { current(2, 1); g.pulse.barrier.Store(0) }, says: "knows nothing of it"},
		{name: "it got another only", step: func(uint64) { current(2, 1); g.pulse.barrier.Store(1) }, says: "knows nothing of it"},
		{name: "a lane is dead", step: func(uint64) {
			g.lanes[0].moved++
			if g.lanes[1].signaled.empty() {
				g.lanes[1].signaled.push(position{requests: 1})
			}
		}, says: "lane 1 has carried nothing", lane: 1},
		{name: "sessions come and go", step: func(uint64) {
			g.generation.Add(1)
			if g.lanes[1].signaled.empty() {
				g.lanes[1].signaled.push(position{requests: 1})
			}
		}},
		{name: "a READ is slow", step: func(uint64) {
			g.lanes[1].conn.(*slowConn).arrived++
			if g.lanes[1].signaled.empty() {
				g.lanes[1].signaled.push(position{requests: 1})
			}
		}},
		{name: "a lane is slow", step: func(uint64) {
			g.lanes[1].moved++
			if g.lanes[1].signaled.empty() {
				g.lanes[1].signaled.push(position{requests: 1})
			}
		}},
	}
}

// What moves is waited for, such as the flush that settles doubt; what does not is found.
func TestStall(t *testing.T) {
	const patience = stallPatience
	var unanswered uint64
	g := &leg{log: slog.New(slog.DiscardHandler), core: &core{}}
	for i := range 2 {
		g.lanes = append(g.lanes, &lane{stream: &stream{index: i}, conn: &slowConn{}})
	}
	for _, tt := range stallCases(g, &unanswered) {
		t.Run(tt.name, func(t *testing.T) {
			g.core.commit.current, g.core.commit.lost, g.cfg.LossTimeout, unanswered = nil, 0, 0, 0
			g.pulse.barrier.Store(0)
			g.pulse.doubt.Store(0)
			for _, l := range g.lanes {
				l.moved = 0
				l.signaled.clear()
			}
			var s stall
			for i := range uint64(patience + 1) {
				tt.step(i)
				_, err := s.find(g, int64(i), patience, unanswered)
				require.NoError(t, err)
			}
			tt.step(patience + 1)
			l, err := s.find(g, patience+1, patience, unanswered)
			if tt.says == "" {
				require.NoError(t, err)
				return
			}
			if tt.ends {
				require.Error(t, g.lasting(err))
			} else {
				require.ErrorIs(t, err, rdma.ErrLost)
				require.NoError(t, g.lasting(err))
			}
			require.ErrorIs(t, err, rdma.ErrTimeout)
			require.ErrorContains(t, err, tt.says)
			require.Equal(t, g.lanes[tt.lane], l)
		})
	}
}

// A slowConn is a connection on which bytes arrive.
type slowConn struct {
	rdma.Conn
	arrived uint64
}

func (c *slowConn) Arrived() uint64 { return c.arrived }
