package wire

import (
	"bytes"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/persist"
)

var (
	testKey  = Key(bytes.Repeat([]byte{0x0b}, MinKey))
	testEnds = Ends{Initiator: [16]byte{9}, Target: "pm1"}
)

// TestProofVectors pins how proofs are made. Whoever changes it changes the version. The
// vectors come from another implementation of HKDF (RFC 5869) and HMAC (RFC 2104).
func TestProofVectors(t *testing.T) {
	s := NewSecret(testKey, testEnds, Nonce{1}, Nonce{2}, nil)
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
	var binding [32]byte
	for i := range binding {
		binding[i] = byte(i)
	}
	s = NewSecret(testKey, testEnds, Nonce{1}, Nonce{2}, binding[:])
	require.Equal(t, "8d6b0191e8a18c92458840ec6cc830e93294afea4e29084bb38a4c384e30b755", hex.EncodeToString(s[:]))
	lane := s.On(binding[:])
	require.Equal(t, "ba870aadce5df554958c04f47385e24f5dd2d4b7cc0be497c32827f2141f84a8", hex.EncodeToString(lane[:]))
	require.Equal(t, s, s.On(nil))
	require.Equal(t, "330b8fefc38ca1ed", testKey.Fingerprint(testEnds))
}

const (
	vectorSecret = "894df3c64ad8bea4bef3610a3f5ba587fa3441ffefb66ff23b18b1e8e12f2b21"
	vectorJoin   = "0bf2036078c442ea63ba5c85c714bcf1468285a1d75fbc6edec33a2dd1f6d751"
	vectorJoined = "28afe26a301bff8a5295b251aa7e3edfc7aed433a7cd6859d28d95eeaf1ede6a"
	vectorHint   = "f4cc9acbd1f0608dfbaef71be4211a01c0515645ac1b45ba"
)

// A proof covers every byte of its message, lies where the decoder expects it, and fits
// no other secret, role or request.
func TestProofs(t *testing.T) {
	secret := NewSecret(testKey, testEnds, Nonce{1}, Nonce{2}, nil)
	others := map[string]Secret{
		"another key":               NewSecret(append(Key(nil), make([]byte, MinKey)...), testEnds, Nonce{1}, Nonce{2}, nil),
		"another initiator's nonce": NewSecret(testKey, testEnds, Nonce{3}, Nonce{2}, nil),
		"another target's nonce":    NewSecret(testKey, testEnds, Nonce{1}, Nonce{3}, nil),
		"another initiator":         NewSecret(testKey, Ends{[16]byte{8}, "pm1"}, Nonce{1}, Nonce{2}, nil),
		"another target":            NewSecret(testKey, Ends{[16]byte{9}, "pm2"}, Nonce{1}, Nonce{2}, nil),
		"a target without a name":   NewSecret(testKey, Ends{[16]byte{9}, ""}, Nonce{1}, Nonce{2}, nil),
		"a channel":                 NewSecret(testKey, testEnds, Nonce{1}, Nonce{2}, make([]byte, 32)),
		"a lane's channel":          (&secret).On(make([]byte, 32)),
		"nonces exchanged":          NewSecret(testKey, testEnds, Nonce{2}, Nonce{1}, nil),
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

// A fingerprint tells keys apart, and the ends that share them.
func TestFingerprint(t *testing.T) {
	seen := map[string]bool{}
	for _, f := range []string{
		testKey.Fingerprint(testEnds),
		testKey.Fingerprint(Ends{testEnds.Initiator, "pm2"}),
		testKey.Fingerprint(Ends{[16]byte{8}, "pm1"}),
		testKey[1:].Fingerprint(testEnds),
	} {
		require.Len(t, f, 16)
		require.False(t, seen[f])
		seen[f] = true
	}
}

func TestCheckTarget(t *testing.T) {
	for _, good := range []string{"pm1", "PM-1.example.org", "192.0.2.1", "_", strings.Repeat("n", MaxTarget)} {
		require.NoError(t, CheckTarget(good), good)
	}
	for _, bad := range []string{"", strings.Repeat("n", MaxTarget+1), "a b", "pm1\n", "a/b", "a@b", "[::1]", "gr\u00f6\u00dfer", "\x1b"} {
		require.Error(t, CheckTarget(bad), bad)
	}
}
