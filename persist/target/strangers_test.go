package target

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"pmnbd/internal/logtest"
	"pmnbd/internal/source"
	"pmnbd/persist/region"
	"pmnbd/persist/wire"
	"pmnbd/rdma"
	"pmnbd/rdma/rdmafake"
)

// crowd lists the connections with a place of that standing.
func (s *strangers) crowd(at standing) (names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.places[at] {
		names = append(names, c.peer)
	}
	return names
}

// crowd waits until n connections have a place of that standing. They take it when they
// have got their answer.
func (s *site) crowd(t *testing.T, at standing, n int) {
	t.Helper()
	require.Eventually(t, func() bool { return len(s.server.strangers.crowd(at)) == n }, patience, tick)
}

// patient configures a target on which strangers stay until they lose their places.
func patient(keys Keys) Config {
	return Config{Keys: keys, OpenTimeout: time.Hour, ProofTimeout: time.Hour}
}

// A newcomer takes the place of the oldest connection of the address that has most places
// of its standing, and of nobody else.
func TestWhoLosesItsPlace(t *testing.T) {
	type step struct {
		from string // HOST:PORT
		at   standing
		away string // loses its place
	}
	// fill makes n connections from an address.
	fill := func(at standing, host string, n int) (all []step) {
		for i := range n {
			all = append(all, step{fmt.Sprintf("%s:%d", host, i), at, ""})
		}
		return all
	}
	for name, steps := range map[string][]step{
		"the oldest": append(fill(silent, "192.0.2.1", maxStrangers),
			step{"192.0.2.1:100", silent, "192.0.2.1:0"}, step{"192.0.2.1:101", silent, "192.0.2.1:1"}),
		"not an older one from another address": append(append(fill(silent, "192.0.2.9", 1), fill(silent, "192.0.2.1", maxStrangers-1)...),
			step{"192.0.2.1:100", silent, "192.0.2.1:0"}, step{"192.0.2.2:100", silent, "192.0.2.1:1"}),
		"not one that has said more": append(fill(spoken, "192.0.2.1", maxStrangers), fill(silent, "192.0.2.1", maxStrangers)...),
		"nor one that has said less": append(append(fill(silent, "192.0.2.1", maxStrangers), fill(spoken, "192.0.2.1", maxStrangers)...),
			step{"192.0.2.1:100", spoken, "192.0.2.1:0"}),
		"nor one with a key": append(append(fill(proven, "192.0.2.1", maxStrangers), fill(spoken, "192.0.2.1", maxStrangers)...),
			step{"192.0.2.1:100", spoken, "192.0.2.1:0"}),
		"hosts of an IPv6 network are one": append(append(fill(silent, "192.0.2.1", 2), fill(silent, "[2001:db8:1:2::1]", maxStrangers/2-1)...), append(fill(silent, "[2001:db8:1:2:3::1]", maxStrangers/2-1),
			step{"192.0.2.2:100", silent, "[2001:db8:1:2::1]:0"})...),
		"IPv4 in IPv6 is IPv4": append(append(fill(silent, "192.0.2.1", 1), fill(silent, "[::ffff:192.0.2.2]", maxStrangers-1)...),
			step{"192.0.2.3:100", silent, "[::ffff:192.0.2.2]:0"}),
	} {
		t.Run(name, func(t *testing.T) {
			var s strangers
			s.fewer.L = &s.mu
			for _, step := range steps {
				away := s.enter(&conn{peer: step.from, source: source.Of(step.from)}, step.at)
				if step.away == "" {
					require.Nil(t, away)
					continue
				}
				require.NotNil(t, away)
				require.Equal(t, step.away, away.peer)
				require.False(t, s.leave(away))
				require.NotContains(t, s.crowd(step.at), step.away)
			}
		})
	}
}

// No number of connections that stay keeps a newcomer out. Each newcomer ends the oldest
// connection that has shown no more. Sessions and their lanes do not count.
func TestStrangersKeepNobodyOut(t *testing.T) {
	for name, keys := range map[string]Keys{"without keys": nil, "with keys": {alice.ID: {aliceKey}, bob.ID: {bobKey}}} {
		t.Run(name, func(t *testing.T) {
			s := serveRegion(t, onDisk(t), nil, patient(keys))
			open := func() (*peer, *wire.Secret, wire.Opened) {
				if keys != nil {
					return s.openKeyed(t, aliceKey, alice)
				}
				p := s.connect(t)
				o := p.open(alice)
				return p, &o.Token, o
			}
			owner, secret, o := open()
			require.Empty(t, s.server.strangers.crowd(silent))
			hint := wire.JoinHint{Lane: 1, Epoch: o.Epoch, Region: o.UUID}
			secret.Sign(&hint)
			lane, err := dialWith(t, s.p, s.addr, hint.Append(nil))
			require.NoError(t, err)
			require.Empty(t, s.server.strangers.crowd(silent), "a lane's request is proven")

			var all []*peer
			for range maxStrangers {
				all = append(all, s.connect(t))
			}
			talker := s.connect(t)
			_, err = all[0].receive()
			require.ErrorIs(t, err, rdma.ErrLost, "the oldest has lost its place")
			talker.send((&wire.Open{Methods: everyMethod, Owner: bob, Region: "log"}).Append(nil))
			_, err = talker.receive()
			require.NoError(t, err)
			s.crowd(t, spoken, 1)
			for range 2 * maxStrangers {
				all = append(all, s.connect(t))
			}
			_, err = all[len(all)-maxStrangers-1].receive()
			require.ErrorIs(t, err, rdma.ErrLost)
			s.crowd(t, silent, maxStrangers)
			s.crowd(t, spoken, 1) // silent connections end none that has spoken

			lane.send(signed(secret, &wire.Join{Epoch: o.Epoch, Lane: 1}))
			var joined wire.Joined
			require.NoError(t, lane.decode(&joined))
			require.NoError(t, owner.write(o, 1, 0, []byte("fine")))
			_, _, next := open() // the initiator comes back
			require.Equal(t, o.Epoch+1, next.Epoch)
		})
	}
}

// With a key, a connection is safe from those without one. It may not stay for ever.
func TestProvenStrangers(t *testing.T) {
	s := serveRegion(t, onDisk(t), nil, patient(Keys{alice.ID: {aliceKey}, bob.ID: {bobKey}}))
	_, _, o := s.openKeyed(t, aliceKey, alice)
	refused := func() *peer {
		p := s.connect(t)
		var r wire.Refused
		p.prove(p.challenged(bobKey, bob.ID), &wire.Open{Methods: everyMethod, Owner: bob, Region: "log"}, &r)
		require.Equal(t, wire.CodeBusy, r.Code)
		return p
	}
	first := refused()
	for range maxStrangers + 1 {
		s.connect(t).challenged(bobKey, bob.ID)
	}
	s.crowd(t, spoken, maxStrangers)
	s.crowd(t, proven, 1)
	for range maxStrangers {
		refused()
	}
	_, err := first.receive()
	require.ErrorIs(t, err, rdma.ErrLost, "the oldest one with a key has lost its place")
	s.crowd(t, proven, maxStrangers)
	require.Equal(t, o.Epoch, s.region.Superblock().Epoch)
}

// A connection that has closed its session is a stranger again.
func TestClosedIsAStranger(t *testing.T) {
	s := serveRegion(t, onDisk(t), nil, patient(nil))
	p := s.connect(t)
	o := p.open(alice)
	require.Empty(t, s.server.strangers.crowd(spoken))
	var closed wire.Closed
	p.ask(&wire.Close{Epoch: o.Epoch}, &closed)
	s.crowd(t, spoken, 1)
	require.NoError(t, p.conn.Close())
	s.crowd(t, spoken, 0)
}

// The requests of a stuck listener are accepted only when they are abandoned, as on an
// adapter whose peer confirms nothing.
type stuckListener struct {
	rdma.Listener
	stuck      atomic.Bool
	abandoned  atomic.Int64
	acceptings atomic.Int64
}

func (l *stuckListener) Accept() (rdma.Request, error) {
	req, err := l.Listener.Accept()
	if err != nil || !l.stuck.Load() {
		return req, err
	}
	return &stuckRequest{Request: req, l: l, over: make(chan struct{})}, nil
}

type stuckRequest struct {
	rdma.Request
	l    *stuckListener
	once sync.Once
	over chan struct{}
}

func (r *stuckRequest) Accept(rdma.Domain, rdma.ConnConfig, []rdma.WorkRequest) (rdma.Conn, error) {
	r.l.acceptings.Add(1)
	<-r.over
	_ = r.Reject(nil)
	return nil, fmt.Errorf("abandoned: %w", rdma.ErrLost)
}

func (r *stuckRequest) Abandon() {
	r.once.Do(func() {
		r.l.abandoned.Add(1)
		close(r.over)
	})
}

// Connections that their peers do not confirm keep nobody out either. A server that
// closes does not wait for them.
func TestUnconfirmedStrangers(t *testing.T) {
	r, err := region.Open(onDisk(t), region.OpenOptions{Name: "log", CreateSize: size, AllowVolatile: true})
	require.NoError(t, err)
	s := &site{p: rdmafake.New(rdmafake.Config{}), region: r, server: New(Config{Log: logtest.New(t)}, []*region.Region{r})}
	fake, err := s.p.Listen(context.Background(), "")
	require.NoError(t, err)
	s.addr = fake.Addr()
	l := &stuckListener{Listener: fake}
	served := make(chan error, 1)
	go func() { served <- s.server.Serve(l) }()

	l.stuck.Store(true)
	var dialing sync.WaitGroup
	for range 3 * maxStrangers {
		dialing.Go(func() {
			d, err := s.p.OpenDomain(context.Background(), s.addr)
			if err == nil {
				_, _ = d.Dial(context.Background(), s.addr, rdma.ConnConfig{}, nil) // the target refuses
				_ = d.Close()
			}
		})
	}
	require.Eventually(t, func() bool { return l.abandoned.Load() == 2*maxStrangers && l.acceptings.Load() == 3*maxStrangers }, patience, tick)
	l.stuck.Store(false)
	s.connect(t).open(alice)
	require.NoError(t, s.server.Close())
	require.NoError(t, <-served)
	dialing.Wait()
	require.NoError(t, r.Close())
}

// Before others come, all but a few of those that lost their places must have ended.
func TestLeavingIsBounded(t *testing.T) {
	var s strangers
	s.fewer.L = &s.mu
	var away []*conn
	for i := range 2 * maxStrangers {
		if c := s.enter(&conn{peer: strconv.Itoa(i)}, silent); c != nil {
			away = append(away, c)
		}
	}
	require.Len(t, away, maxStrangers)
	var left atomic.Bool
	go func() {
		left.Store(true)
		s.gone(away[0])
	}()
	s.wait()
	require.True(t, left.Load(), "the newcomer must wait")
	require.False(t, s.gone(&conn{}))
}

// The target ends a connection sooner if it says nothing or, with keys, proves nothing,
// than one that has shown what it can.
func TestStrangersTime(t *testing.T) {
	lost := func(t *testing.T, p *peer) {
		t.Helper()
		_, err := p.receive()
		require.ErrorIs(t, err, rdma.ErrLost)
	}
	soon := Config{OpenTimeout: time.Hour, ProofTimeout: tick}
	later := Config{OpenTimeout: tick, ProofTimeout: time.Hour}
	serve := func(t *testing.T, cfg Config, keys Keys) *site {
		cfg.Keys = keys
		return serveRegion(t, onDisk(t), nil, cfg)
	}
	keys := Keys{alice.ID: {aliceKey}, bob.ID: {bobKey}}
	t.Run("silent", func(t *testing.T) { lost(t, serve(t, soon, nil).connect(t)) })
	t.Run("challenged", func(t *testing.T) {
		p := serve(t, soon, keys).connect(t)
		p.send((&wire.Open{Methods: everyMethod, Owner: alice, Region: "log"}).Append(nil))
		for range 2 { // the challenge may still come
			if _, err := p.receive(); err != nil {
				return
			}
		}
		t.Fatal("the connection is still alive")
	})
	t.Run("refused, without keys", func(t *testing.T) {
		s := serve(t, later, nil)
		quiet, p := s.connect(t), s.connect(t)
		p.refused(alice, 0)
		lost(t, p)
		require.Equal(t, wire.CodeEpoch, quiet.refused(alice, 0).Code)
	})
	t.Run("refused, with a key", func(t *testing.T) {
		s := serve(t, later, keys)
		quiet, p := s.connect(t), s.connect(t)
		secret := quiet.challenged(aliceKey, alice.ID)
		var r wire.Refused
		p.prove(p.challenged(aliceKey, alice.ID), &wire.Open{Methods: everyMethod, Owner: alice, Region: "log"}, &r)
		lost(t, p)
		quiet.prove(secret, &wire.Open{Methods: everyMethod, Owner: alice, Region: "log"}, &r)
		require.Equal(t, wire.CodeEpoch, r.Code)
	})
}
