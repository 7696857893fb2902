package wire

import (
	"bytes"
	"encoding/hex"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/persist"
)

var testKey = Key(bytes.Repeat([]byte{0x0b}, MinKey))

// TestProofVectors pins how proofs are made. Whoever changes it changes the version. The
// vectors come from another implementation of HKDF (RFC 5869) and HMAC (RFC 2104).
func TestProofVectors(t *testing.T) {
	s := NewSecret(testKey, Nonce{1}, Nonce{2})
	require.Equal(t, vectorSecret, hex.EncodeToString(s[:]))
	join := (&Join{Epoch: 7, Lane: 1, Nonce: [16]byte{3}}).Append(nil)
	s.SignRequest(join)
	require.Equal(t, vectorJoin, hex.EncodeToString(proofOf(join)))
	joined := (&Joined{Epoch: 7, Lane: 1, Credits: 16}).Append(nil)
	s.SignAnswer(joined, join)
	require.Equal(t, vectorJoined, hex.EncodeToString(proofOf(joined)))
	hint := JoinHint{Lane: 1, Epoch: 7, Region: [16]byte{4}}
	s.Sign(&hint)
	require.Equal(t, vectorHint, hex.EncodeToString(hint.Proof[:]))
}

const (
	vectorSecret = "b64c55a3ee5e777bf96a91fe0cdd40ceb86119a6806302b9f05f3409a46c3715"
	vectorJoin   = "b3292b294c32c36badeb5789f6eac85ebe7ee6d1922948575c23b43522177d02"
	vectorJoined = "8afad2aaed00a8d179cd0bc1056fc51118ffb37c0b9470a7a76e9585c27c8922"
	vectorHint   = "f30ba81bdbaaba9d27af1dfed2884224a5546f4831b014be"
)

// A proof covers every byte of its message, lies where the decoder expects it, and fits
// no other secret, role or request.
func TestProofs(t *testing.T) {
	secret := NewSecret(testKey, Nonce{1}, Nonce{2})
	others := map[string]Secret{
		"another key":               NewSecret(append(Key(nil), make([]byte, MinKey)...), Nonce{1}, Nonce{2}),
		"another initiator's nonce": NewSecret(testKey, Nonce{3}, Nonce{2}),
		"another target's nonce":    NewSecret(testKey, Nonce{1}, Nonce{3}),
		"nonces exchanged":          NewSecret(testKey, Nonce{2}, Nonce{1}),
	}
	open := (&Open{Owner: persist.Owner{ID: [16]byte{1}}, Epoch: 3, Region: "log"}).Append(nil)
	secret.SignRequest(open)
	for _, m := range samples() {
		b := m.Append(nil)
		typ, err := TypeOf(b)
		require.NoError(t, err)
		var signed func(s Secret, b []byte) bool
		switch typ {
		case TypeOpen, TypeResume, TypeJoin:
			secret.SignRequest(b)
			signed = func(s Secret, b []byte) bool { return s.SignedRequest(b) }
			require.False(t, secret.SignedAnswer(b, open), "a proof sent back as the other end's")
		case TypeOpened, TypeRefused, TypeJoined:
			secret.SignAnswer(b, open)
			signed = func(s Secret, b []byte) bool { return s.SignedAnswer(b, open) }
			other := bytes.Clone(open)
			other[55]++ // epoch
			secret.SignRequest(other)
			require.False(t, secret.SignedAnswer(b, other), "the proof of an answer to another request")
			require.False(t, secret.SignedRequest(b))
		default:
			continue
		}
		t.Run(typ.String(), func(t *testing.T) {
			require.True(t, signed(secret, b))
			got := messages()[typ]()
			require.NoError(t, got.Decode(b))
			require.Equal(t, b, got.Append(nil), "the proof must lie where the decoder looks for it")
			require.NotEqual(t, m, got)
			for name, other := range others {
				require.False(t, signed(other, b), name)
			}
			for i := range b {
				if i == 6 || i == 7 {
					continue // the type says where the proof is: see the next subtest
				}
				b[i] ^= 0x10
				require.False(t, signed(secret, b), "byte %d", i)
				b[i] ^= 0x10
			}
		})
	}
	t.Run("OPEN as RESUME", func(t *testing.T) {
		b := bytes.Clone(open)
		b[7] = byte(TypeResume)
		require.False(t, secret.SignedRequest(b))
	})
	t.Run("connection request", func(t *testing.T) {
		hint := JoinHint{Lane: 1, Epoch: 2, Region: [16]byte{3}}
		secret.Sign(&hint)
		require.True(t, secret.Signed(&hint))
		for name, spoil := range map[string]func(*JoinHint){
			"lane": func(m *JoinHint) { m.Lane++ }, "epoch": func(m *JoinHint) { m.Epoch++ },
			"region": func(m *JoinHint) { m.Region[0]++ }, "proof": func(m *JoinHint) { m.Proof[23]++ },
		} {
			other := hint
			spoil(&other)
			require.False(t, secret.Signed(&other), name)
		}
	})
}
