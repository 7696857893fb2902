package target

import (
	"crypto/rand"

	"github.com/google/uuid"

	"pmnbd/persist/wire"
)

// Keys are the keys of initiators by their id. Several are good at a time: a new one and
// the one that it takes the place of.
type Keys map[[16]byte][]wire.Key

// SetKeys takes the place of Config.Keys, which was not nil. Sessions that were granted
// go on, and prove themselves by the new keys when they come back.
func (s *Server) SetKeys(keys Keys) { s.keys.Store(&keys) }

// authenticate tells whether m, decoded from msg, is proven, and makes c's answers be
// so. If it is not, it returns what to answer. That says the same whatever is wrong: who
// has no key learns neither which ids have one nor which regions there are.
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
