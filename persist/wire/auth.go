package wire

import (
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
)

// How the two ends of a session prove themselves. Both have the key of the initiator's
// id. Only nonces and proofs cross the wire. The secret behind the proofs is made of the
// key and both nonces.
//
//	initiator                           target
//	OPEN, epoch 0           ──►                   without a proof: it asks to be challenged
//	                        ◄──  CHALLENGE        the target's nonce
//	OPEN or RESUME          ──►                   the initiator's nonce and its proof
//	                        ◄──  OPENED, REFUSED  the target's proof
//	another connection, JOIN ─►                   proof by the same secret
//	                        ◄──  JOINED           likewise
//
// A proof covers the whole message. The proof of an answer also covers that of the
// request, which holds the region, the owner and the epoch. So a recorded message fits
// nowhere else. Each direction has its own label, so neither end's proof can be sent back
// as the other's.
//
// Without a key, the secret is the token of OPENED. It then only keeps the lanes of
// different sessions apart and protects nothing.

// A Key is what an operator gives both ends: at least MinKey bytes that nobody can guess.
type Key []byte

// MinKey is the length in bytes of the shortest key. HMAC-SHA256 gains little from more.
const MinKey = 32

// A Nonce is drawn for each connection.
type Nonce [32]byte

// A Secret is known to the two ends of a session and to nobody else.
type Secret [32]byte

// The labels with which the proofs of each end, and of a connection request, begin.
const (
	labelSecret    = "pmnbd 1 session"
	labelInitiator = "pmnbd 1 initiator"
	labelTarget    = "pmnbd 1 target"
	labelLane      = "pmnbd 1 lane"
)

const proofSize = sha256.Size

// NewSecret makes the secret of a connection from the key and both ends' nonces.
func NewSecret(key Key, initiator, target Nonce) (s Secret) {
	salt := append(initiator[:], target[:]...)
	b, err := hkdf.Key(sha256.New, key, salt, labelSecret, len(s))
	if err != nil {
		panic(err) // only if len(s) were more than HKDF can make
	}
	copy(s[:], b)
	return s
}

// SignRequest writes the initiator's proof into msg, an OPEN, RESUME or JOIN.
func (s *Secret) SignRequest(msg []byte) { copy(proofOf(msg), s.prove(labelInitiator, nil, msg)) }

// SignedRequest reports whether msg, a decoded OPEN, RESUME or JOIN, has the initiator's
// proof.
func (s *Secret) SignedRequest(msg []byte) bool {
	return hmac.Equal(proofOf(msg), s.prove(labelInitiator, nil, msg))
}

// SignAnswer writes the target's proof into msg, an OPENED, REFUSED or JOINED that
// answers request.
func (s *Secret) SignAnswer(msg, request []byte) {
	copy(proofOf(msg), s.prove(labelTarget, proofOf(request), msg))
}

// SignedAnswer reports whether msg, a decoded OPENED, REFUSED or JOINED, has the target's
// proof as an answer to request.
func (s *Secret) SignedAnswer(msg, request []byte) bool {
	return hmac.Equal(proofOf(msg), s.prove(labelTarget, proofOf(request), msg))
}

// prove returns the proof of msg. It covers everything except the place of the proof.
func (s *Secret) prove(label string, request, msg []byte) []byte {
	h := hmac.New(sha256.New, s[:])
	at := proofAt(msg)
	h.Write([]byte(label))
	h.Write(request)
	h.Write(msg[:at])
	h.Write(msg[at+proofSize:])
	return h.Sum(nil)
}

// Sign writes the initiator's proof into m. The proof has no nonce, because the RDMA CM
// carries no more bytes. Therefore a session takes each lane number only once.
func (s *Secret) Sign(m *JoinHint) { copy(m.Proof[:], s.hint(m)) }

// Signed reports whether m has the initiator's proof.
func (s *Secret) Signed(m *JoinHint) bool { return hmac.Equal(m.Proof[:], s.hint(m)) }

func (s *Secret) hint(m *JoinHint) []byte {
	h := hmac.New(sha256.New, s[:])
	h.Write([]byte(labelLane))
	h.Write(m.Append(nil)[:joinHintSize-len(m.Proof)])
	return h.Sum(nil)[:len(m.Proof)]
}

// proofAt returns the offset of the proof in a message.
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

// A Challenge answers an Open or Resume if the target asks for keys and has not yet
// challenged this connection.
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
