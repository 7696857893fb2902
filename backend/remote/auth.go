package remote

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"pmnbd/persist"
	"pmnbd/persist/wire"
)

var (
	// ErrWantsKey means that the target asks for a key and this initiator has none.
	// Config.Key can give it.
	ErrWantsKey = errors.New("the target asks for a key")
	// ErrNoProof means that the peer has not proven that it has this initiator's key. It may not
	// be the target, so nothing that it says counts.
	ErrNoProof = errors.New("the target does not prove that it has this initiator's key: it serves without keys, or is not the target")
	// ErrWrongTarget means that another target answers at the address than the one that Config names.
	ErrWrongTarget = errors.New("the wrong target")
	// ErrNoKey means that connections to the target are encrypted, and this initiator has no key.
	// Then nobody knows who is at the other end of what is encrypted. Config.Key gives a key.
	ErrNoKey = errors.New("an encrypted connection without a key: anybody in between could decrypt it")
	// errClear: Config.Encrypted, and a provider that does not encrypt.
	errClear = errors.New("the connection is not encrypted, and has to be")
	// ErrVolatile means that the region is of class volatile, and Config.AllowVolatile is not set.
	ErrVolatile = errors.New("the region is volatile")
)

// petition sends an OPEN or a RESUME on a new connection. With a key it proves the message, and
// demands a proof of the answer. Then c has the secret by which other lanes JOIN.
func (g *leg) petition(ctx context.Context, c *dialed, m *wire.Open, resume bool, opened *wire.Opened, refused *wire.Refused) (t wire.Type, err error) {
	if g.cfg.Key != nil && c.secret == nil {
		if err := g.beChallenged(ctx, c, m); err != nil {
			return 0, err
		}
	}
	m.Nonce = c.nonce
	msg := m.Append(nil)
	if resume {
		msg = (*wire.Resume)(m).Append(nil)
	}
	if c.secret != nil {
		c.secret.SignRequest(msg)
	}
	t, err = g.ask(ctx, c, msg, opened, refused)
	if err == nil && t == wire.TypeOpened && c.secret == nil {
		c.secret = &opened.Token
	}
	return t, err
}

// beChallenged makes the target draw its nonce, and makes the secret. It asks with epoch
// 0, so that a target that wants no key grants nothing either.
func (g *leg) beChallenged(ctx context.Context, c *dialed, m *wire.Open) error {
	hello := *m
	hello.Epoch = 0
	var challenge wire.Challenge
	var refused wire.Refused
	t, err := g.ask(ctx, c, hello.Append(nil), &challenge, &refused)
	if err != nil {
		return err
	}
	if t == wire.TypeRefused {
		return fmt.Errorf("%w (it says: %v)", ErrNoProof, refused.Code)
	}
	if _, err := rand.Read(c.nonce[:]); err != nil {
		return fmt.Errorf("draw a nonce: %w", err)
	}
	if challenge.Target != g.cfg.Target {
		return g.strange(ctx, c, &challenge)
	}
	return c.share(g, &challenge)
}

// share makes the secret of c of the key that this initiator shares with the target that sent
// challenge.
func (c *dialed) share(g *leg, challenge *wire.Challenge) error {
	key := wire.Key(g.cfg.Key(challenge.Target))
	if len(key) == 0 {
		return fmt.Errorf("there is no key that initiator %s shares with target %q", uuid.UUID(g.cfg.ID), challenge.Target)
	}
	ends := wire.Ends{Initiator: g.cfg.ID, Target: challenge.Target}
	secret := wire.NewSecret(key, ends, c.nonce, challenge.Nonce, c.conn.Caps().Channel.Bound())
	c.secret, c.key = &secret, key.Fingerprint(ends)
	return nil
}

// strange returns what to say of a target that has another name than g's. The name alone proves
// nothing. If this initiator shares a key with that target, too, strange has the target refuse a
// request that names no region: that has a proof. Either way nothing that g's target said is
// revoked, and the keeper asks again.
func (g *leg) strange(ctx context.Context, c *dialed, challenge *wire.Challenge) error {
	says := fmt.Sprintf("at %s answers target %q, not %q", g.cfg.Addr, challenge.Target, g.cfg.Target)
	if err := c.share(g, challenge); err != nil {
		return fmt.Errorf("%w: %s, as it says without a proof", ErrWrongTarget, says)
	}
	probe := wire.Open{Owner: persist.Owner{ID: g.cfg.ID}, Nonce: c.nonce}
	msg := probe.Append(nil)
	c.secret.SignRequest(msg)
	var opened wire.Opened
	var refused wire.Refused
	t, err := g.ask(ctx, c, msg, &opened, &refused)
	switch {
	case err != nil:
		return fmt.Errorf("%w: %s, as it says without a proof: %w", ErrWrongTarget, says, err)
	case t == wire.TypeRefused && refused.Code == wire.CodeAuth:
		return fmt.Errorf("%w: %s, as it says, but it refuses the key that this initiator shares with that target", ErrWrongTarget, says)
	}
	return fmt.Errorf("%w: %s, which proves that", ErrWrongTarget, says)
}

// proven returns an error unless answer, which is to msg, can be believed. A refusal of the proof
// itself carries no proof.
func (c *dialed) proven(msg, answer []byte, t wire.Type, refused *wire.Refused) error {
	if c.secret == nil || c.secret.SignedAnswer(answer, msg) || (t == wire.TypeRefused && refused.Code == wire.CodeAuth) {
		return nil
	}
	return ErrNoProof
}
