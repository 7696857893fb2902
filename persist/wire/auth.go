package wire

import (
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
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
// The secret also names both ends, so a target that has a key of the same initiator can
// neither answer for another target nor use there what it was told.
//
// A proof covers the whole message. The proof of an answer also covers that of the
// request, which holds the region, the owner and the epoch. So a recorded message fits
// nowhere else. Each direction has its own label, so neither end's proof can be sent back
// as the other's.
//
// Where the connections are encrypted, what proves a connection also covers the binding of its own
// channel (rdma.Channel). Somebody who decrypts and encrypts in between has one channel with each
// end, and no proof of the one holds for the other.
//
// Without a key, the secret is the token of OPENED. It then only keeps the lanes of
// different sessions apart and protects nothing.

// A Key is what an operator gives both ends: at least MinKey bytes that nobody can guess.
type Key []byte

// Ends are the two that share a key: an initiator, by its id, and a target, by its name.
type Ends struct {
	Initiator [16]byte
	Target    string
}

// MaxTarget is the length in bytes of the longest name of a target. In hexadecimal no key is that
// short, so a key in the place of a name does not pass for one.
const MaxTarget = 2*MinKey - 1

// CheckTarget returns an error unless name can be a target's name: 1 to MaxTarget letters,
// digits, dots, hyphens and underscores of ASCII. Host names are such names.
func CheckTarget(name string) error {
	if name == "" || len(name) > MaxTarget {
		return fmt.Errorf("%d bytes for a target's name: use 1 to %d", len(name), MaxTarget)
	}
	for _, c := range []byte(name) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '.', c == '-', c == '_':
		default:
			return fmt.Errorf("%q is no target's name: use letters, digits, dots, hyphens and underscores", name)
		}
	}
	return nil
}

// append appends what names the two ends in a proof. Its length tells where the name ends.
func (e *Ends) append(b []byte) []byte {
	b = append(b, e.Initiator[:]...)
	return append(append(b, byte(len(e.Target))), e.Target...)
}

// Fingerprint names the key of e to people. It is the same at both ends, and nobody can make
// the key from it.
func (k Key) Fingerprint(e Ends) string {
	h := hmac.New(sha256.New, k)
	h.Write(e.append([]byte(labelFingerprint)))
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// MinKey is the length in bytes of the shortest key. HMAC-SHA256 gains little from more.
const MinKey = 32

// A Nonce is drawn for each connection.
type Nonce [32]byte

// A Secret is known to the two ends of a session and to nobody else.
type Secret [32]byte

// The labels of what is made of a key or a secret: a session's secret, the proofs of each end
// and of a connection request, and a fingerprint.
const (
	labelSecret      = "pmnbd 3 session"
	labelInitiator   = "pmnbd 3 initiator"
	labelTarget      = "pmnbd 3 target"
	labelLane        = "pmnbd 3 lane"
	labelChannel     = "pmnbd 3 channel"
	labelFingerprint = "pmnbd 3 fingerprint"
)

const proofSize = sha256.Size

// NewSecret makes the secret of a connection from the key, the ends that share it, both ends'
// nonces, and the binding of the connection's channel, which is empty if nothing is encrypted.
// Ends.Target has at most MaxTarget bytes.
func NewSecret(key Key, ends Ends, initiator, target Nonce, binding []byte) (s Secret) {
	salt := append(initiator[:], target[:]...)
	info := append(ends.append([]byte(labelSecret)), binding...)
	b, err := hkdf.Key(sha256.New, key, salt, string(info), len(s))
	if err != nil {
		panic(err) // only if len(s) were more than HKDF can make
	}
	copy(s[:], b)
	return s
}

// On returns the secret that proves a further lane of the session, whose channel has binding. A
// lane that is not encrypted has none, and is proven by the session's secret itself.
func (s *Secret) On(binding []byte) Secret {
	if len(binding) == 0 {
		return *s
	}
	h := hmac.New(sha256.New, s[:])
	h.Write([]byte(labelChannel))
	h.Write(binding)
	return Secret(h.Sum(nil))
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
// challenged this connection. It proves nothing, not even the name.
//
//	 16      48       304
//	+-------+--------+
//	| nonce | target |
//	+-------+--------+
type Challenge struct {
	Nonce Nonce
	// Target is the target's name, so that an initiator can tell people which target it has met
	// in place of its own.
	Target string
}

const challengeSize = 48 + textSize

// Append appends the message to b.
func (m *Challenge) Append(b []byte) []byte {
	b = append(appendHeader(b, TypeChallenge, challengeSize), m.Nonce[:]...)
	return appendText(b, m.Target)
}

// Decode reads the message from b.
func (m *Challenge) Decode(b []byte) error {
	if err := expect(b, TypeChallenge, challengeSize); err != nil {
		return err
	}
	copy(m.Nonce[:], b[16:])
	m.Target = text(b[48:])
	return nil
}
