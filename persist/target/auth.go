package target

import (
	"crypto/rand"
	"fmt"

	"github.com/google/uuid"

	"pmnbd/persist/wire"
)

// Keys has the keys that initiators share with this target, by their ids. During a rotation
// an id has several valid keys: the old and the new one.
type Keys map[[16]byte][]wire.Key

// authenticate checks the proof of m, decoded from msg, by keys. From then on c signs its answers.
// If the proof is wrong or missing, authenticate returns the answer to send. All refusals
// are alike, so a peer without a key learns neither which ids have a key nor which
// regions exist.
func (c *conn) authenticate(keys Keys, m *wire.Open, msg []byte) (challenge *wire.Challenge, refused *wire.Refused) {
	if keys == nil {
		return nil, nil
	}
	c.secret, c.key = nil, ""
	if c.challenge == nil {
		c.challenge = &wire.Challenge{Target: c.s.cfg.Name}
		_, _ = rand.Read(c.challenge.Nonce[:]) // never fails (crypto/rand)
		return c.challenge, nil
	}
	its := keys[m.Owner.ID]
	if len(its) == 0 {
		its = c.s.decoy // so the check takes as long
	}
	ends := wire.Ends{Initiator: m.Owner.ID, Target: c.s.cfg.Name}
	for _, key := range its {
		if secret := wire.NewSecret(key, ends, m.Nonce, c.challenge.Nonce, c.Caps().Channel.Bound()); secret.SignedRequest(msg) {
			c.secret, c.key = &secret, key.Fingerprint(ends)
		}
	}
	if c.secret == nil {
		return nil, &wire.Refused{Code: wire.CodeAuth, Text: fmt.Sprintf("target %s has no key of initiator %s, or another one", c.s.cfg.Name, uuid.UUID(m.Owner.ID))}
	}
	return nil, nil
}

// sign writes the target's proof into answer if request was proven.
func (c *conn) sign(answer, request []byte) []byte {
	if c.secret != nil {
		c.secret.SignAnswer(answer, request)
	}
	return answer
}
