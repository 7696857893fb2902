package target

import (
	"crypto/sha256"

	"github.com/stretchr/testify/require"

	"pmnbd/persist"
	"pmnbd/persist/wire"
)

// granted checks whether msg of peer i deserved its grant.
func (m *model) granted(i int, msg, answer []byte) {
	require.NoError(m.t, m.opened.Decode(answer))
	require.Equal(m.t, m.log.UUID(), m.opened.UUID, "the other region has an owner")
	m.fills = 0
	var open wire.Open
	if open.Decode(msg) == nil {
		require.Equal(m.t, m.epoch, open.Epoch)
		if m.given && open.Owner.ID != m.by.ID {
			require.NotZero(m.t, open.Flags&wire.OpenTakeover, "the lease of another id")
		}
		if open.Life != 0 {
			require.Greater(m.t, open.Life, m.life)
			m.life = open.Life
		} else if m.record != (persist.Record{}) {
			require.NotZero(m.t, open.Flags&wire.OpenSingle, "a member, without a life")
		}
		if open.Life != 0 && m.record == (persist.Record{}) {
			require.NotZero(m.t, open.Flags&wire.OpenJoin, "no member, with a life")
		}
	} else {
		var resume wire.Resume
		require.NoError(m.t, resume.Decode(msg))
		open = wire.Open(resume)
		require.Equal(m.t, m.by, open.Owner)
		require.LessOrEqual(m.t, open.Epoch, m.epoch)
	}
	if m.keyed {
		require.True(m.t, i == 0 || (i == 1 && open.Owner.ID == bob.ID), "peer %d has no key of that id", i)
		secret := secretOf(keyOf(i, open.Owner.ID), open.Owner.ID, m.challenges[i])
		require.True(m.t, secret.SignedRequest(msg), "the proof must be for this connection")
		require.True(m.t, secret.SignedAnswer(answer, msg))
		require.Zero(m.t, m.opened.Token)
	}
	require.Equal(m.t, m.record, m.opened.Record)
	require.Equal(m.t, m.life, m.opened.Life)
	m.epoch++
	require.Equal(m.t, m.epoch, m.opened.Epoch)
	m.by, m.given = open.Owner, true
	m.holder, m.keys[i] = i, m.opened.Key
}

// send sends a message as peer i and learns from its answer. Every message gets an answer
// or ends the connection.
func (m *model) send(i int, msg []byte) {
	p := m.peers[i]
	p.send(msg)
	answer, err := p.receive()
	if err != nil {
		m.left(i)
		return
	}
	t, err := wire.TypeOf(answer)
	require.NoError(m.t, err)
	switch t {
	case wire.TypeOpened:
		m.granted(i, msg, answer)
	case wire.TypeChallenge:
		require.True(m.t, m.keyed)
		m.challenges[i] = new(wire.Challenge)
		require.NoError(m.t, m.challenges[i].Decode(answer))
	case wire.TypeRefused: // in a session only for a version that the target does not speak, which ends it
		m.refused(answer)
		if m.holder == i {
			m.ends(i)
		}
	case wire.TypeBarrierFail: // no range of a valid barrier leaves the region
		var fail wire.BarrierFail
		require.NoError(m.t, fail.Decode(answer))
		require.Equal(m.t, wire.CodeInvalid, fail.Code)
		m.ends(i)
	case wire.TypeClosed:
		require.Equal(m.t, m.holder, i)
		m.holder, m.given = -1, false
	case wire.TypeZeroAck:
		require.Equal(m.t, m.holder, i)
		var z wire.Zero
		require.NoError(m.t, z.Decode(msg))
		clear(m.want[z.Off : z.Off+z.Len])
	case wire.TypeRecorded:
		require.Equal(m.t, m.holder, i)
		m.took(msg)
	case wire.TypeBitmap:
		require.Equal(m.t, m.holder, i)
		var bits wire.Bitmap
		require.NoError(m.t, bits.Decode(answer))
		require.True(m.t, m.record.Present().Has(int(bits.Slot)))
		require.NotEqual(m.t, m.record.Slot, bits.Slot)
		require.Equal(m.t, m.lack.Has(int(bits.Slot)), bits.Bits[0] == 1)
	case wire.TypeDigested:
		require.Equal(m.t, m.holder, i)
		var d wire.Digest
		require.NoError(m.t, d.Decode(msg))
		var sum wire.Digested
		require.NoError(m.t, sum.Decode(answer))
		require.Equal(m.t, sha256.Sum256(m.want[d.Off:d.Off+d.Len]), sum.Sum)
	case wire.TypeBadPlaces: // the region has none
		require.Equal(m.t, m.holder, i)
		var bad wire.BadPlaces
		require.NoError(m.t, bad.Decode(answer))
		require.Empty(m.t, bad.Places)
	case wire.TypeBarrierAck:
		require.Equal(m.t, m.holder, i)
		m.acknowledged(msg)
	case wire.TypeHeartbeatAck:
		require.Equal(m.t, m.holder, i)
	default:
		require.Fail(m.t, "the target sent something that is no answer", "%v", t)
	}
}
