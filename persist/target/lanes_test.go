package target

import (
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/persist/wire"
	"pmnbd/rdma"
)

// connectLane connects as lane n of session o. change may spoil the request.
func (s *site) connectLane(t *testing.T, o wire.Opened, n uint16, change func(*wire.JoinHint)) (*peer, error) {
	hint := wire.JoinHint{Lane: n, Epoch: o.Epoch, Region: o.UUID}
	o.Token.Sign(&hint)
	if change != nil {
		change(&hint)
	}
	return dialWith(t, s.p, s.addr, hint.Append(nil))
}

// A connection becomes a lane: its request names the session, and JOIN proves it. If the
// request fits no session, the target rejects it before it shares a protection domain.
func TestJoin(t *testing.T) {
	s := newSite(t)
	p := s.connect(t)
	o := p.open(alice)
	for name, spoil := range map[string]func(*wire.JoinHint){
		"another epoch":  func(h *wire.JoinHint) { h.Epoch-- },
		"another region": func(h *wire.JoinHint) { h.Region[0]++ },
		"another proof":  func(h *wire.JoinHint) { h.Proof[23]++ },
		"lane 0":         func(h *wire.JoinHint) { h.Lane = 0 },
		"too many lanes": func(h *wire.JoinHint) { h.Lane = maxLanes },
	} {
		t.Run(name, func(t *testing.T) {
			_, err := s.connectLane(t, o, 1, spoil)
			var rejected *rdma.RejectError
			require.ErrorAs(t, err, &rejected)
		})
	}

	l, err := s.connectLane(t, o, 1, nil)
	require.NoError(t, err)
	_, err = s.connectLane(t, o, 1, nil)
	require.Error(t, err, "the lane is taken")
	for name, m := range map[string]*wire.Join{
		"another lane":  {Epoch: o.Epoch, Lane: 2},
		"another epoch": {Epoch: o.Epoch + 1, Lane: 1},
	} {
		t.Run(name, func(t *testing.T) {
			var r wire.Refused
			l.t = t
			l.send(signed(&o.Token, m))
			require.NoError(t, l.decode(&r))
			require.Equal(t, wire.CodeNotOwner, r.Code)
		})
	}
	t.Run("another proof", func(t *testing.T) {
		var r wire.Refused
		l.t = t
		l.ask(&wire.Join{Epoch: o.Epoch, Lane: 1}, &r)
		require.Equal(t, wire.CodeNotOwner, r.Code)
	})
	l.t = t
	require.Equal(t, wire.CodeInvalid, l.refused(bob, o.Epoch).Code, "the connection was made to JOIN")
	join := signed(&o.Token, &wire.Join{Epoch: o.Epoch, Lane: 1})
	l.send(join)
	answer, err := l.receive()
	require.NoError(t, err)
	var joined wire.Joined
	require.NoError(t, joined.Decode(answer))
	require.True(t, o.Token.SignedAnswer(answer, join))
	require.Equal(t, wire.Joined{Epoch: o.Epoch, Lane: 1, Credits: credits, Proof: joined.Proof}, joined)
	require.NoError(t, l.write(o, 1, 4096, []byte("by lane 1")), "with the session's key")
	require.Equal(t, "by lane 1", string(s.region.Data()[4096:4105]))

	// Only lane 0 may send CLOSE, which ends the others.
	var closed wire.Closed
	p.ask(&wire.Close{Epoch: o.Epoch}, &closed)
	_, err = l.receive()
	require.ErrorIs(t, err, rdma.ErrLost)
	_, err = s.connectLane(t, o, 2, nil)
	require.Error(t, err, "the session is over")
}

// CLOSE on another lane breaks the protocol.
func TestCloseOnAnotherLane(t *testing.T) {
	s := newSite(t)
	p := s.connect(t)
	o := p.open(alice)
	l, err := s.connectLane(t, o, 3, nil)
	require.NoError(t, err)
	var joined wire.Joined
	l.send(signed(&o.Token, &wire.Join{Epoch: o.Epoch, Lane: 3}))
	require.NoError(t, l.decode(&joined))
	l.send((&wire.Close{Epoch: o.Epoch}).Append(nil))
	_, err = l.receive()
	require.ErrorIs(t, err, rdma.ErrLost)
	require.NoError(t, p.write(o, 1, 0, []byte("lane 0 goes on")))
}

// A grant also ends lanes that have not sent JOIN yet.
func TestGrantEndsLanesThatHaveNotJoined(t *testing.T) {
	s := newSite(t)
	o := s.connect(t).open(alice)
	l, err := s.connectLane(t, o, 1, nil)
	require.NoError(t, err)
	s.connect(t).open(alice)
	_, err = l.receive()
	require.ErrorIs(t, err, rdma.ErrLost)
	_, err = s.connectLane(t, o, 1, nil)
	require.Error(t, err)
}

// Somebody who plays back a lane's connection request after the lane is gone gets
// nothing: the connection would share the session's protection domain before it has
// proven anything.
func TestLaneIsTakenOnce(t *testing.T) {
	s := newSite(t)
	p := s.connect(t)
	o := p.open(alice)
	l, err := s.connectLane(t, o, 1, nil)
	require.NoError(t, err)
	session := s.server.served()["log"].session
	session.mu.Lock()
	lane := session.lanes[1]
	session.mu.Unlock()
	require.NoError(t, l.conn.Close())
	<-lane.done
	_, err = s.connectLane(t, o, 1, nil)
	var rejected *rdma.RejectError
	require.ErrorAs(t, err, &rejected)
	_, err = s.connectLane(t, o, 2, nil)
	require.NoError(t, err, "other lanes may still come")
}
