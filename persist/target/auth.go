package target

import (
	"crypto/rand"

	"github.com/google/uuid"

	"pmnbd/persist/wire"
)

// Keys are the keys of initiators by their id. Several are good at a time: a new one and
// the one that it takes the place of.
type Keys map[[16]byte][]wire.Key

// SetKeys replaces Config.Keys, which must not have been nil. Granted sessions go on; their
// initiators prove themselves by the new keys when they come back.
func (s *Server) SetKeys(keys Keys) { s.keys.Store(&keys) }

// authenticate checks the proof of m, decoded from msg, and from then on c signs its
// answers. If the proof does not hold, authenticate returns the answer to send. The answer
// is the same whatever is wrong: a peer without a key learns neither which ids have one nor
// which regions there are.
func (c *conn) authenticate(m *wire.Open, msg []byte) (challenge *wire.Challenge, refused *wire.Refused) {
	keys := c.s.keys.Load()
	if keys == nil {
		return nil, nil
	}
	c.secret = nil
	if c.challenge == nil {
		c.challenge = new(wire.Challenge)
		_, _ = rand.Read(c.challenge.Nonce[:]) // never fails (crypto/rand)
		return c.challenge, nil
	}
	its := (*keys)[m.Owner.ID]
	if len(its) == 0 {
		its = c.s.decoy // it takes as long
	}
	for _, key := range its {
		if secret := wire.NewSecret(key, m.Nonce, c.challenge.Nonce); secret.SignedRequest(msg) {
			c.secret = &secret
		}
	}
	if c.secret == nil {
		return nil, &wire.Refused{Code: wire.CodeAuth, Text: "it has no key for initiator " + uuid.UUID(m.Owner.ID).String() + ", or not this one"}
	}
	return nil, nil
}

// sign writes the target's proof into answer, if request was proven.
func (c *conn) sign(answer, request []byte) []byte {
	if c.secret != nil {
		c.secret.SignAnswer(answer, request)
	}
	return answer
}
