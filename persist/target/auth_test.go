package target

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/persist"
	"pmnbd/persist/region"
	"pmnbd/persist/wire"
	"pmnbd/rdma"
)

var (
	aliceKey = wire.Key(bytes.Repeat([]byte("alice's."), 4))
	bobKey   = wire.Key(bytes.Repeat([]byte("bob's..."), 4))
)

func keyed(t *testing.T, keys Keys) *site {
	return serveRegion(t, onDisk(t), nil, Config{Keys: keys})
}

// challenged asks for a challenge and returns the secret that initiator id makes with key.
func (p *peer) challenged(key wire.Key, id [16]byte) *wire.Secret {
	p.t.Helper()
	var c wire.Challenge
	p.ask(&wire.Open{Methods: everyMethod, Owner: alice, Region: "log"}, &c)
	require.Equal(p.t, testName, c.Target)
	s := wire.NewSecret(key, wire.Ends{Initiator: id, Target: testName}, wire.Nonce{}, c.Nonce, p.conn.Caps().Channel.Bound())
	return &s
}

// testName is the name of the targets.
const testName = "pm1"

// secretOf is the secret that initiator id makes with key, for this target.
func secretOf(key wire.Key, id [16]byte, c *wire.Challenge) *wire.Secret {
	s := wire.NewSecret(key, wire.Ends{Initiator: id, Target: testName}, wire.Nonce{}, c.Nonce, nil)
	return &s
}

// prove sends m with a proof and returns the answer, which must have a valid proof.
func (p *peer) prove(s *wire.Secret, m, answer message) {
	p.t.Helper()
	request := signed(s, m)
	p.send(request)
	msg, err := p.receive()
	require.NoError(p.t, err)
	require.NoError(p.t, answer.Decode(msg))
	require.True(p.t, s.SignedAnswer(msg, request))
}

// unproven sends a message and returns the refusal, which must have no proof.
func (p *peer) unproven(request []byte) (r wire.Refused) {
	p.t.Helper()
	p.send(request)
	require.NoError(p.t, p.decode(&r))
	require.Equal(p.t, wire.CodeAuth, r.Code)
	require.Zero(p.t, r.Proof)
	return r
}

func (s *site) openKeyed(t *testing.T, key wire.Key, owner persist.Owner) (p *peer, secret *wire.Secret, o wire.Opened) {
	p = s.connect(t)
	secret = p.challenged(key, owner.ID)
	var r wire.Refused
	m := wire.Open{Methods: everyMethod, Owner: owner, Region: "log"}
	p.prove(secret, &m, &r)
	require.Equal(t, wire.CodeEpoch, r.Code)
	m.Epoch = r.Epoch
	p.prove(secret, &m, &o)
	return p, secret, o
}

func TestKeys(t *testing.T) {
	s := keyed(t, Keys{alice.ID: {aliceKey}, bob.ID: {bobKey}})
	p, secret, o := s.openKeyed(t, aliceKey, alice)
	require.Zero(t, o.Token, "the lanes' secret does not cross the wire")
	require.NoError(t, p.write(o, 1, 0, []byte("proven")))

	t.Run("lanes", func(t *testing.T) {
		hint := wire.JoinHint{Lane: 1, Epoch: o.Epoch, Region: o.UUID}
		_, err := dialWith(t, s.p, s.addr, hint.Append(nil))
		var rejected *rdma.RejectError
		require.ErrorAs(t, err, &rejected, "without a proof")
		o.Token.Sign(&hint)
		_, err = dialWith(t, s.p, s.addr, hint.Append(nil))
		require.ErrorAs(t, err, &rejected, "by the token, which is 0")
		secret.Sign(&hint)
		l, err := dialWith(t, s.p, s.addr, hint.Append(nil))
		require.NoError(t, err)
		l.send((&wire.Join{Epoch: o.Epoch, Lane: 1}).Append(nil))
		var r wire.Refused
		require.NoError(t, l.decode(&r))
		require.Equal(t, wire.CodeNotOwner, r.Code, "the proof of the connection request must not count for JOIN")
		var joined wire.Joined
		l.prove(secret, &wire.Join{Epoch: o.Epoch, Lane: 1, Nonce: [16]byte{1}}, &joined)
		require.NoError(t, l.write(o, 2, 4096, []byte("by lane 1")))
	})
	t.Run("refusals are proven", func(t *testing.T) {
		p := s.connect(t)
		var r wire.Refused
		p.prove(p.challenged(bobKey, bob.ID), &wire.Open{Methods: everyMethod, Owner: bob, Region: "log"}, &r)
		require.Equal(t, wire.CodeBusy, r.Code)
		p = s.connect(t)
		p.prove(p.challenged(bobKey, bob.ID), &wire.Open{Methods: everyMethod, Owner: bob, Region: "other"}, &r)
		require.Equal(t, wire.CodeUnknownRegion, r.Code)
	})
	t.Run("RESUME", func(t *testing.T) {
		p := s.connect(t)
		secret := p.challenged(aliceKey, alice.ID)
		var n wire.Opened
		p.prove(secret, &wire.Resume{Methods: everyMethod, Owner: alice, Epoch: o.Epoch, Region: "log"}, &n)
		require.Equal(t, o.Epoch+1, n.Epoch)
		require.NoError(t, p.write(n, 1, 0, []byte("resumed")))
	})
}

// A peer that proves nothing learns nothing and destroys nothing.
func TestWithoutProof(t *testing.T) {
	s := keyed(t, Keys{alice.ID: {aliceKey}, bob.ID: {bobKey}})
	owner, _, o := s.openKeyed(t, aliceKey, alice)
	good := wire.Open{Methods: everyMethod, Owner: alice, Epoch: o.Epoch, Region: "log"}
	var first *wire.Refused
	for name, request := range map[string]func(p *peer) []byte{
		"no proof":   func(p *peer) []byte { p.challenged(aliceKey, alice.ID); return good.Append(nil) },
		"wrong key":  func(p *peer) []byte { return signed(p.challenged(bobKey, alice.ID), &good) },
		"no RESUME":  func(p *peer) []byte { p.challenged(aliceKey, alice.ID); return (*wire.Resume)(&good).Append(nil) },
		"empty key":  func(p *peer) []byte { return signed(p.challenged(nil, alice.ID), &good) },
		"0 for both": func(p *peer) []byte { p.challenged(nil, alice.ID); return signed(&wire.Secret{}, &good) },
		"an id that has no key, and alice's": func(p *peer) []byte {
			m := good
			m.Owner.ID = [16]byte{9}
			return signed(p.challenged(aliceKey, m.Owner.ID), &m)
		},
		"a region that is not served, by a wrong key": func(p *peer) []byte {
			m := good
			m.Region = "other"
			return signed(p.challenged(bobKey, alice.ID), &m)
		},
		"the key, as of another target": func(p *peer) []byte {
			var c wire.Challenge
			p.ask(&good, &c)
			secret := wire.NewSecret(aliceKey, wire.Ends{Initiator: alice.ID, Target: "pm2"}, wire.Nonce{}, c.Nonce, nil)
			return signed(&secret, &good)
		},
		"the key, as of another initiator": func(p *peer) []byte { return signed(p.challenged(aliceKey, bob.ID), &good) },
		"another epoch than the one that was proven": func(p *peer) []byte {
			b := signed(p.challenged(aliceKey, alice.ID), &wire.Open{Methods: everyMethod, Owner: alice, Epoch: o.Epoch - 1, Region: "log"})
			b[55] = byte(o.Epoch)
			return b
		},
		"OPEN made of RESUME": func(p *peer) []byte {
			b := signed(p.challenged(aliceKey, alice.ID), (*wire.Resume)(&good))
			b[7] = byte(wire.TypeOpen)
			return b
		},
		"a takeover that was not asked for": func(p *peer) []byte {
			b := signed(p.challenged(bobKey, bob.ID), &wire.Open{Methods: everyMethod, Owner: bob, Epoch: o.Epoch, Region: "log"})
			b[57] |= byte(wire.OpenTakeover)
			return b
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := s.connect(t)
			r := p.unproven(request(p))
			r.Text = "" // contains what the request asked for
			if first == nil {
				first = &r
			}
			require.Equal(t, *first, r, "every refusal must be the same")
			require.Equal(t, wire.Refused{Code: wire.CodeAuth}, r)
		})
	}
	t.Run("what was recorded, on another connection", func(t *testing.T) {
		p := s.connect(t)
		secret := p.challenged(aliceKey, alice.ID)
		resume := wire.Resume(good)
		recorded := signed(secret, &resume)
		q := s.connect(t)
		q.challenged(aliceKey, alice.ID)
		q.unproven(recorded)
		fresh := s.connect(t)
		var c wire.Challenge
		fresh.send(recorded)
		require.NoError(t, fresh.decode(&c), "as a first message it only asks for a challenge")
	})
	t.Run("after a proof", func(t *testing.T) {
		p := s.connect(t)
		var r wire.Refused
		p.prove(p.challenged(aliceKey, alice.ID), &wire.Open{Methods: everyMethod, Owner: alice, Region: "log"}, &r)
		p.unproven(good.Append(nil))
	})
	t.Run("JOIN after a proof of another request", func(t *testing.T) {
		p := s.connect(t)
		secret := p.challenged(aliceKey, alice.ID)
		var r wire.Refused
		m := wire.Open{Methods: everyMethod, Owner: alice, Region: "log"}
		p.prove(secret, &m, &r)
		// Somebody in between puts the proof of a request that is on its way into a JOIN. The answer
		// would have a proof for that request.
		resume := signed(secret, (*wire.Resume)(&good))
		join := (&wire.Join{Epoch: o.Epoch, Lane: 1, Proof: [32]byte(resume[96:128])}).Append(nil)
		p.send(join)
		require.NoError(t, p.decode(&r))
		require.Equal(t, wire.CodeNotOwner, r.Code)
		require.Zero(t, r.Proof)
	})
	require.Equal(t, o.Epoch, s.region.Superblock().Epoch)
	require.NoError(t, owner.write(o, 1, 0, []byte("fine")))
}

// During a rotation both keys are valid. A session continues whatever happens to its key.
func TestRotation(t *testing.T) {
	next := wire.Key(bytes.Repeat([]byte("alice's next key"), 3))
	s := keyed(t, Keys{alice.ID: {aliceKey}})
	try := func(key wire.Key) bool {
		p := s.connect(t)
		p.send(signed(p.challenged(key, alice.ID), &wire.Open{Methods: everyMethod, Owner: alice, Region: "log"}))
		var r wire.Refused
		require.NoError(t, p.decode(&r))
		return r.Code != wire.CodeAuth
	}
	change := func(keys Keys) {
		t.Helper()
		require.NoError(t, s.server.Change(Offer{Regions: []*region.Region{s.region}, Keys: keys}, nothing))
	}
	p, _, o := s.openKeyed(t, aliceKey, alice)
	require.True(t, try(aliceKey))
	require.False(t, try(next))
	change(Keys{alice.ID: {aliceKey, next}})
	require.True(t, try(aliceKey))
	require.True(t, try(next))
	change(Keys{alice.ID: {next}})
	require.False(t, try(aliceKey))
	require.True(t, try(next))
	change(Keys{})
	require.False(t, try(next))
	require.ErrorIs(t, s.server.Change(Offer{Regions: []*region.Region{s.region}}, nothing), errKeys, "or everybody could have it")
	require.False(t, try(next))
	require.NoError(t, p.write(o, 1, 0, []byte("goes on")))
}
