package target

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/persist/region"
	"pmnbd/persist/wire"
	"pmnbd/rdma"
	"pmnbd/rdma/iwarp"
)

// A door is a listener of a site, and the provider that reaches it.
type door struct {
	provider rdma.Provider
	addr     string
}

// door listens by p for s.
func (s *site) door(t *testing.T, cfg iwarp.Config) door {
	p := iwarp.New(cfg)
	l, err := p.Listen(context.Background(), "127.0.0.1:0")
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- s.server.Serve(l) }()
	t.Cleanup(func() {
		s.stop()
		require.NoError(t, <-served)
	})
	return door{p, l.Addr()}
}

// openAt gets a session of alice through d.
func (s *site) openAt(t *testing.T, d door) (p *peer, secret *wire.Secret, o wire.Opened) {
	p = dial(t, d.provider, d.addr)
	secret = p.challenged(aliceKey, alice.ID)
	var r wire.Refused
	m := wire.Open{Methods: everyMethod, Owner: alice, Region: "log"}
	p.prove(secret, &m, &r)
	require.Equal(t, wire.CodeEpoch, r.Code, r.Text)
	m.Epoch = r.Epoch
	p.prove(secret, &m, &o)
	return p, secret, o
}

// A lane is proven for its own channel, by its connection request, by JOIN and by the answer. What
// proves it on another channel, or on none, proves nothing.
func TestLanesProveTheirChannels(t *testing.T) {
	s := serveRegion(t, onDisk(t), nil, Config{Keys: Keys{alice.ID: {aliceKey}}})
	secure, clear := s.door(t, iwarp.Config{Encrypt: true}), s.door(t, iwarp.Config{})
	first, secret, o := s.openAt(t, secure)
	own := first.conn.Caps().Channel
	require.NotNil(t, own)

	// hint is the private data of lane n, proven with what on returns for the lane's channel.
	hint := func(n uint16, on func(channel *rdma.Channel) []byte) rdma.ConnConfig {
		make := func(channel *rdma.Channel) []byte {
			m := wire.JoinHint{Lane: n, Epoch: o.Epoch, Region: o.UUID}
			lane := secret.On(on(channel))
			lane.Sign(&m)
			return m.Append(nil)
		}
		return rdma.ConnConfig{PrivateData: make(nil), Private: make}
	}
	bound := func(channel *rdma.Channel) []byte { return channel.Bound() }
	for name, c := range map[string]struct {
		door door
		on   func(*rdma.Channel) []byte
	}{
		"no channel":          {secure, func(*rdma.Channel) []byte { return nil }},
		"lane 0's channel":    {secure, func(*rdma.Channel) []byte { return own.Bound() }},
		"a zero channel":      {secure, func(*rdma.Channel) []byte { return make([]byte, 32) }},
		"a clear lane":        {clear, bound},
		"clear, as of lane 0": {clear, func(*rdma.Channel) []byte { return own.Bound() }},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := dialAs(t, c.door.provider, c.door.addr, hint(1, c.on))
			var rejected *rdma.RejectError
			require.ErrorAs(t, err, &rejected)
		})
	}
	lane, err := dialAs(t, secure.provider, secure.addr, hint(1, bound))
	require.NoError(t, err, "and none of these took the lane's number")
	var r wire.Refused
	lane.send(signed(secret, &wire.Join{Epoch: o.Epoch, Lane: 1}))
	require.NoError(t, lane.decode(&r))
	require.Equal(t, wire.CodeNotOwner, r.Code, "the session's secret does not prove the lane's channel")
	var joined wire.Joined
	on := secret.On(lane.conn.Caps().Channel.Bound())
	lane.prove(&on, &wire.Join{Epoch: o.Epoch, Lane: 1, Nonce: [16]byte{1}}, &joined)
	require.NoError(t, lane.write(o, 1, 0, []byte("by lane 1")))

	t.Run("a lane of a clear session is clear", func(t *testing.T) {
		_, secret, o = s.openAt(t, clear)
		_, err := dialAs(t, secure.provider, secure.addr, hint(1, bound))
		var rejected *rdma.RejectError
		require.ErrorAs(t, err, &rejected)
		_, err = dialAs(t, clear.provider, clear.addr, hint(1, bound))
		require.NoError(t, err)
	})
}

// An OPEN is proven for the channel that it came by.
func TestOpenProvesItsChannel(t *testing.T) {
	s := serveRegion(t, onDisk(t), nil, Config{Keys: Keys{alice.ID: {aliceKey}}})
	secure, clear := s.door(t, iwarp.Config{Encrypt: true}), s.door(t, iwarp.Config{})
	for name, c := range map[string]struct {
		door    door
		binding []byte
	}{
		"without its channel":      {secure, nil},
		"with another channel":     {secure, make([]byte, 32)},
		"with a channel, in clear": {clear, make([]byte, 32)},
	} {
		t.Run(name, func(t *testing.T) {
			p := dial(t, c.door.provider, c.door.addr)
			var challenge wire.Challenge
			p.ask(&wire.Open{Methods: everyMethod, Owner: alice, Region: "log"}, &challenge)
			secret := wire.NewSecret(aliceKey, wire.Ends{Initiator: alice.ID, Target: testName}, wire.Nonce{}, challenge.Nonce, c.binding)
			p.unproven(signed(&secret, &wire.Open{Methods: everyMethod, Owner: alice, Epoch: 1, Region: "log"}))
		})
	}
	require.EqualValues(t, 1, s.region.Superblock().Epoch)
}

// A region can demand that connections are encrypted. The refusal is proven, and grants nothing.
func TestEncryptedRegion(t *testing.T) {
	s := serveRegion(t, onDisk(t), nil, Config{Keys: Keys{alice.ID: {aliceKey}}, Encrypted: map[string]bool{"log": true}})
	secure, clear := s.door(t, iwarp.Config{Encrypt: true}), s.door(t, iwarp.Config{})
	p := dial(t, clear.provider, clear.addr)
	secret := p.challenged(aliceKey, alice.ID)
	var r wire.Refused
	for _, m := range []message{
		&wire.Open{Methods: everyMethod, Owner: alice, Region: "log"},
		&wire.Open{Methods: everyMethod, Owner: alice, Epoch: 1, Region: "log", Flags: wire.OpenTakeover},
		&wire.Resume{Methods: everyMethod, Owner: alice, Epoch: 1, Region: "log"},
	} {
		p.prove(secret, m, &r)
		require.Equal(t, wire.CodeClear, r.Code)
		require.Zero(t, r.UUID)
	}
	require.Equal(t, region.Superblock{}.Owner, s.region.Superblock().Owner)
	owner, _, o := s.openAt(t, secure)
	require.NoError(t, owner.write(o, 1, 0, []byte("encrypted")))
}
