package iwarp

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/rdma"
)

// What FuzzConn's connection has. Its key and tagged offsets can be guessed, because
// otherwise no input would find the memory. It has two receives and a Read of its own, each
// of a few bytes of the region.
const (
	fuzzKey   = 0x0100_0007
	fuzzSize  = 4096
	fuzzReads = 4 // IRD
	fuzzPart  = 16
	fuzzSink  = 64 // where its own Read goes
	fuzzRecv  = 128
)

// The ID of its Read. Its receives have 1 and 2.
const fuzzReadID = 3

func fuzzRecvOff(i int) int { return fuzzRecv + 2*fuzzPart*i }

// A fuzzModel says, from the RFCs, what a stream of FPDUs without CRCs has to do. It has a
// decoder of its own.
type fuzzModel struct {
	region []byte
	gone   bool // its key was invalidated

	completed []rdma.Completion // receives
	inSend    bool
	sendMO    uint32

	reads  []readRequest // the peer's, to be answered
	readMO int           // bytes of its own Read that have come
	read   bool          // all of them have come

	end outcome
}

// An outcome is how the connection ended.
type outcome int

const (
	hungUp      outcome = iota
	refused             // the peer broke a rule, and got a Terminate
	endedByPeer         // the peer sent a Terminate
)

// take carries out the stream b.
func (m *fuzzModel) take(b []byte) {
	for m.end == hungUp && len(b) >= 2 {
		n := int(binary.BigEndian.Uint16(b))
		whole := (2+n+3)/4*4 + 4 // with pad and CRC
		if len(b) < whole {
			return
		}
		m.end = m.segment(b[2 : 2+n])
		b = b[whole:]
	}
}

// segment carries out the ULPDU u (RFC 5040 §4, RFC 5041 §4).
func (m *fuzzModel) segment(u []byte) outcome {
	const taggedHeader, untaggedHeader = 14, 18
	if len(u) < taggedHeader || u[0]&3 != 1 || u[1]>>6 != 1 {
		return refused
	}
	tagged, last, op := u[0]>>7 == 1, u[0]>>6&1 == 1, opcode(u[1]&0xf)
	word := func(at int) uint32 { return binary.BigEndian.Uint32(u[at:]) }
	ok := false
	if tagged {
		stag, to, p := word(2), binary.BigEndian.Uint64(u[6:]), u[taggedHeader:]
		switch op {
		case opWrite:
			ok = m.write(stag, to, p)
		case opReadResponse:
			ok = m.response(stag, to, p, last)
		}
	} else if len(u) >= untaggedHeader {
		queue, msn, mo, p := word(6), word(10), word(14), u[untaggedHeader:]
		switch {
		case op == opTerminate && queue == 2:
			return endedByPeer
		case op == opReadRequest && queue == 1:
			ok = last && m.request(msn, mo, p)
		case op >= opSend && op <= opSendSEInvalidate && queue == 0:
			ok = m.send(msn, mo, p, last)
			if ok && last {
				ok = m.delivered(op == opSendInvalidate || op == opSendSEInvalidate, word(2))
			}
		}
	}
	if ok {
		return hungUp // so far
	}
	return refused
}

// at finds n bytes of the region, n > 0.
func (m *fuzzModel) at(stag uint32, to, n uint64) []byte {
	if stag != fuzzKey || m.gone || to < regionBase || to-regionBase > fuzzSize || n > fuzzSize-(to-regionBase) {
		return nil
	}
	return m.region[to-regionBase:][:n]
}

func (m *fuzzModel) write(stag uint32, to uint64, p []byte) bool {
	if len(p) == 0 {
		return true // whatever memory it names
	}
	place := m.at(stag, to, uint64(len(p)))
	copy(place, p)
	return place != nil
}

func (m *fuzzModel) response(stag uint32, to uint64, p []byte, last bool) bool {
	left := fuzzPart - m.readMO
	if m.read || m.gone || stag != fuzzKey || to != uint64(regionBase+fuzzSink+m.readMO) || len(p) > left || last != (len(p) == left) {
		return false
	}
	copy(m.region[fuzzSink+m.readMO:], p)
	m.readMO += len(p)
	m.read = last
	return true
}

func (m *fuzzModel) request(msn, mo uint32, p []byte) bool {
	if msn != uint32(len(m.reads)+1) || mo != 0 || len(p) != 28 || len(m.reads) == fuzzReads {
		return false
	}
	be := binary.BigEndian
	r := readRequest{be.Uint32(p), be.Uint64(p[4:]), be.Uint32(p[12:]), be.Uint32(p[16:]), be.Uint64(p[20:])}
	if r.Size > 0 && m.at(r.SourceSTag, r.SourceTO, uint64(r.Size)) == nil {
		return false
	}
	m.reads = append(m.reads, r)
	return true
}

func (m *fuzzModel) send(msn, mo uint32, p []byte, last bool) bool {
	i := len(m.completed)
	if !m.inSend {
		m.sendMO = 0
	}
	if msn != uint32(i+1) || i == 2 || mo != m.sendMO || uint64(mo)+uint64(len(p)) > fuzzPart || m.gone && len(p) > 0 {
		return false
	}
	copy(m.region[fuzzRecvOff(i)+int(mo):], p)
	m.inSend = !last
	m.sendMO += uint32(len(p))
	return true
}

// delivered completes a Send, which ends the key stag if it invalidates.
func (m *fuzzModel) delivered(invalidates bool, stag uint32) bool {
	if invalidates {
		if stag != fuzzKey || m.gone {
			return false
		}
		m.gone = true
	}
	m.completed = append(m.completed, rdma.Completion{ID: uint64(len(m.completed) + 1), Op: rdma.OpRecv, Len: m.sendMO})
	return true
}

// completions returns what can be polled. Everything that is sent at once arrives at once,
// and a Read completes after it.
func (m *fuzzModel) completions() []rdma.Completion {
	if m.read {
		return append(m.completed, rdma.Completion{ID: fuzzReadID, Op: rdma.OpRead})
	}
	return m.completed
}

// A reply is the Read Response to a Read Request.
type reply struct {
	stag uint32
	to   uint64
	data string
}

// replies returns what the peer receives. The connection answers Reads once it has placed
// everything that arrived. If the key is gone by then, it sends a Terminate instead.
func (m *fuzzModel) replies() (rs []reply, terminate bool) {
	for _, r := range m.reads {
		var data []byte
		if r.Size > 0 {
			if data = m.at(r.SourceSTag, r.SourceTO, uint64(r.Size)); data == nil {
				return rs, true
			}
		}
		rs = append(rs, reply{r.SinkSTag, r.SinkTO, string(data)})
	}
	return rs, m.end == refused
}

// replied decodes what the peer received: the Read Request, replies, perhaps a Terminate.
func replied(t *testing.T, b []byte) (rs []reply, terminate bool) {
	whole := true
	for first := true; len(b) > 0; first = false {
		require.False(t, terminate, "something behind a Terminate")
		u, n, bad := nextFPDU(b, false)
		require.Nil(t, bad)
		require.NotZero(t, n, "half an FPDU")
		b = b[n:]
		var s segment
		require.Nil(t, decodeSegment(u, &s))
		switch {
		case first:
			require.Equal(t, read(1, readRequest{fuzzKey, regionBase + fuzzSink, fuzzPart, 0, 0}), u)
			continue
		case s.Op == opTerminate:
			require.True(t, s.Last)
			terminate = true
			continue
		}
		require.Equal(t, opReadResponse, s.Op)
		if whole {
			rs = append(rs, reply{stag: s.STag, to: s.TO})
		}
		r := &rs[len(rs)-1]
		require.Equal(t, r.stag, s.STag)
		require.Equal(t, r.to+uint64(len(r.data)), s.TO)
		r.data += string(s.Payload)
		whole = s.Last
	}
	require.True(t, whole, "half a Read Response")
	return rs, terminate
}
