package wire

import (
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
)

// How a session is proven. Both ends have the key of the initiator's id; what crosses
// the wire are nonces, and proofs by a secret that is made of the key and both nonces.
//
//	initiator                           target
//	OPEN, epoch 0           ──►                   without a proof: it asks to be challenged
//	                        ◄──  CHALLENGE        the target's nonce
//	OPEN or RESUME          ──►                   the initiator's nonce and its proof
//	                        ◄──  OPENED, REFUSED  the target's proof
//	another connection, JOIN ─►                   proof by the same secret
//	                        ◄──  JOINED           likewise
//
// A proof covers the whole message, and an answer's also the proof of the request: the
// region, the owner and the epoch are in there, so nothing that was recorded fits
// elsewhere. The two directions have labels of their own, so neither's proof can be
// sent back as the other's.
//
// Without a key the secret is the token of OPENED. It then keeps lanes of sessions
// apart and protects nothing.

// A Key is what an operator gives both ends, at least MinKey bytes that nobody can guess.
type Key []byte

// MinKey is the length in bytes of the shortest key: what HMAC-SHA256 makes full use of.
const MinKey = 32

// A Nonce is drawn for one connection.
type Nonce [32]byte

// A Secret is what both ends of a session know and no one else does.
type Secret [32]byte

// What the proofs of each end, and a lane's connection request, begin with.
const (
	labelSecret    = "pmnbd 1 session"
	labelInitiator = "pmnbd 1 initiator"
	labelTarget    = "pmnbd 1 target"
	labelLane      = "pmnbd 1 lane"
)

const proofSize = sha256.Size

// NewSecret makes the secret of a connection.
func NewSecret(key Key, initiator, target Nonce) (s Secret) {
	salt := append(initiator[:], target[:]...)
	b, err := hkdf.Key(sha256.New, key, salt, labelSecret, len(s))
	if err != nil {
		panic(err) // only for more bytes than HKDF makes
	}
	copy(s[:], b)
	return s
}

// SignRequest writes the initiator's proof into msg, an OPEN, RESUME or JOIN.
func (s *Secret) SignRequest(msg []byte) { copy(proofOf(msg), s.prove(labelInitiator, nil, msg)) }

// SignedRequest reports whether msg, an OPEN, RESUME or JOIN that was decoded, has the
// initiator's proof.
func (s *Secret) SignedRequest(msg []byte) bool {
	return hmac.Equal(proofOf(msg), s.prove(labelInitiator, nil, msg))
}

// SignAnswer writes the target's proof into msg, an OPENED, REFUSED or JOINED that
// answers request.
func (s *Secret) SignAnswer(msg, request []byte) {
	copy(proofOf(msg), s.prove(labelTarget, proofOf(request), msg))
}

// SignedAnswer reports whether msg, an OPENED, REFUSED or JOINED that was decoded, has
// the target's proof, as an answer to request.
func (s *Secret) SignedAnswer(msg, request []byte) bool {
	return hmac.Equal(proofOf(msg), s.prove(labelTarget, proofOf(request), msg))
}

// prove is the proof of msg, which covers all of it but the place of the proof.
func (s *Secret) prove(label string, request, msg []byte) []byte {
	h := hmac.New(sha256.New, s[:])
	at := proofAt(msg)
	h.Write([]byte(label))
	h.Write(request)
	h.Write(msg[:at])
	h.Write(msg[at+proofSize:])
	return h.Sum(nil)
}

// Sign writes the initiator's proof into m. It has no nonce, for the RDMA CM carries no
// more bytes: so a session takes a lane's number once.
func (s *Secret) Sign(m *JoinHint) { copy(m.Proof[:], s.hint(m)) }

// Signed reports whether m has the initiator's proof.
func (s *Secret) Signed(m *JoinHint) bool { return hmac.Equal(m.Proof[:], s.hint(m)) }

func (s *Secret) hint(m *JoinHint) []byte {
	h := hmac.New(sha256.New, s[:])
	h.Write([]byte(labelLane))
	h.Write(m.Append(nil)[:joinHintSize-len(m.Proof)])
	return h.Sum(nil)[:len(m.Proof)]
}

// proofAt is where the proof of a message is, which begins with its header.
func proofAt(msg []byte) int {
	switch Type(binary.BigEndian.Uint16(msg[6:])) {
	case TypeOpen, TypeResume:
		return 96
	case TypeOpened:
		return 136
	case TypeRefused:
		return 320
	case TypeJoin:
		return 48
	default: // JOINED
		return 32
	}
}

func proofOf(msg []byte) []byte { return msg[proofAt(msg):][:proofSize] }

// A Challenge answers an Open or Resume of a connection that was not challenged yet, if
// the target asks for keys.
//
//	 16      48
//	+-------+
//	| nonce |
//	+-------+
type Challenge struct{ Nonce Nonce }

const challengeSize = 48

// Append appends the message to b.
func (m *Challenge) Append(b []byte) []byte {
	return append(appendHeader(b, TypeChallenge, challengeSize), m.Nonce[:]...)
}

// Decode reads the message from b.
func (m *Challenge) Decode(b []byte) error {
	if err := expect(b, TypeChallenge, challengeSize); err != nil {
		return err
	}
	copy(m.Nonce[:], b[16:])
	return nil
}
