package target

import (
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pmnbd/persist"
	"pmnbd/persist/region/regiontest"
	"pmnbd/persist/wire"
)

// The owner that resumes a session learns what became durable on each lane, and in which
// session: what the target acknowledged, and what a sync made durable after its lane was
// gone. A part of a barrier does not count. Nobody else learns of it.
func TestResumeTellsWhatIsDurable(t *testing.T) {
	join := func(t *testing.T, s *site, o wire.Opened) (l *peer, joined wire.Joined) {
		l, err := s.connectLane(t, o, 1, nil)
		require.NoError(t, err)
		l.send(signed(&o.Token, &wire.Join{Epoch: o.Epoch, Lane: 1}))
		require.NoError(t, l.decode(&joined))
		return l, joined
	}
	barrier := func(seq uint64, last bool) []byte {
		return (&wire.Barrier{Seq: seq, Last: last, Ranges: []persist.Range{{Len: 8}}}).Append(nil)
	}
	acked := func(p *peer) {
		var ack wire.BarrierAck
		require.NoError(p.t, p.decode(&ack))
	}
	for _, tt := range []struct {
		name string
		do   func(s *slowSite, o wire.Opened, p, l *peer)
		want [2]uint64 // by lane
		by   persist.Owner
		anew bool // the target restarts
	}{
		{name: "nothing", do: func(*slowSite, wire.Opened, *peer, *peer) {}, by: alice},
		{name: "acknowledged barriers", by: alice, want: [2]uint64{5, 6}, do: func(s *slowSite, o wire.Opened, p, l *peer) {
			for seq := uint64(4); seq <= 5; seq++ {
				p.send(barrier(seq, true))
				acked(p)
			}
			l.send(barrier(6, true))
			acked(l)
		}},
		{name: "a barrier that was being synced", by: alice, want: [2]uint64{0, 7}, do: func(s *slowSite, o wire.Opened, p, l *peer) {
			release := s.slow()
			l.send(barrier(7, true))
			<-s.began
			require.NoError(t, p.conn.Close())
			require.NoError(t, l.conn.Close())
			release()
		}},
		{name: "not a barrier that waited for the next sync", by: alice, want: [2]uint64{0, 7}, do: func(s *slowSite, o wire.Opened, p, l *peer) {
			release := s.slow()
			l.send(barrier(7, true))
			<-s.began
			p.send(barrier(7, true))
			c := s.server.served()["log"].session.conn
			require.NoError(t, p.conn.Close())
			<-c.done
			release()
			acked(l)
		}},
		{name: "not a part of a barrier", by: alice, do: func(s *slowSite, o wire.Opened, p, l *peer) {
			p.send(barrier(5, false))
			acked(p)
		}},
		{name: "not to another run of the initiator", by: persist.Owner{ID: alice.ID, Nonce: [16]byte{9}}, do: func(s *slowSite, o wire.Opened, p, l *peer) {
			p.send(barrier(5, true))
			acked(p)
		}},
		{name: "not after a restart of the target", by: alice, anew: true, do: func(s *slowSite, o wire.Opened, p, l *peer) {
			p.send(barrier(5, true))
			acked(p)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newSlowSite(t)
			p := s.connect(t)
			o := p.open(alice)
			require.Zero(t, o.Durable)
			l, joined := join(t, s.site, o)
			require.Zero(t, joined.Durable, "the session is new")
			tt.do(s, o, p, l)
			site := s.site
			if tt.anew {
				s.stop()
				site = serveRegion(t, s.path, nil, Config{})
			}
			for range 2 { // a session that is granted and not used changes nothing
				q := site.connect(t)
				var again wire.Opened
				if tt.by == alice {
					q.ask(&wire.Resume{Methods: everyMethod, Owner: alice, Epoch: o.Epoch, Region: "log"}, &again)
				} else {
					again = q.open(tt.by)
				}
				require.Equal(t, durable(o, tt.want[0]), again.Durable)
				_, joined := join(t, site, again)
				require.Equal(t, durable(o, tt.want[1]), joined.Durable)
			}
		})
	}
}

func durable(o wire.Opened, seq uint64) wire.Durable {
	if seq == 0 {
		return wire.Durable{}
	}
	return wire.Durable{Epoch: o.Epoch, Barrier: seq}
}

// A slowSite can hold the syncs of data.
type slowSite struct {
	*site
	watch regiontest.Watch
	hold  atomic.Pointer[chan struct{}]
	began chan struct{}
}

func newSlowSite(t *testing.T) *slowSite {
	s := &slowSite{began: make(chan struct{}, 1)}
	s.site = serveRegion(t, onDisk(t), func(fd int) error {
		if ofData, hold := s.watch.Data(fd), s.hold.Load(); ofData && hold != nil {
			s.began <- struct{}{}
			<-*hold
		}
		return unix.Fdatasync(fd)
	}, Config{})
	return s
}

// slow holds the next syncs until release is called.
func (s *slowSite) slow() (release func()) {
	hold := make(chan struct{})
	s.hold.Store(&hold)
	return func() {
		s.hold.Store(nil)
		close(hold)
	}
}
