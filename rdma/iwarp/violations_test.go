package iwarp

import (
	"io"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/rdma"
)

// An env is the part of a rawPeer that an entry of violations needs.
type env struct {
	t    testing.TB
	key  uint32
	base uint64
}

// damaged is u framed, with a wrong CRC.
func damaged(u []byte) []byte {
	b := fpdu(u)
	b[len(b)-1] ^= 1
	return b
}

var violations = []struct {
	name string
	sent func(e env) [][]byte // FPDUs
	want *violation
}{
	{"CRC", func(e env) [][]byte { return [][]byte{damaged(tagged(opWrite, true, e.key, e.base, "evil"))} }, &badCRC},
	{"too short for a header", func(env) [][]byte { return [][]byte{fpdu([]byte{0xc1, 0x40, 0})} }, &badLength},
	{"no ULPDU", func(env) [][]byte { return [][]byte{fpdu(nil)} }, &badLength},
	{"DDP version", func(e env) [][]byte { return [][]byte{fpdu(unhex(e.t, "c2 40 01020304 1112131415161718"))} }, &badVersionTagged},
	{"opcode", func(e env) [][]byte { return [][]byte{fpdu(unhex(e.t, "41 4b 00000000 00000000 00000001 00000000"))} }, &badOpcode},
	{"DDP version, untagged", func(e env) [][]byte { return [][]byte{fpdu(unhex(e.t, "43 43 00000000 00000000 00000001 00000000"))} }, &badVersionUntagged},
	{"RDMAP version", func(e env) [][]byte { return [][]byte{fpdu(unhex(e.t, "41 83 00000000 00000000 00000001 00000000"))} }, &badRDMAPVersion},
	{"untagged Write", func(env) [][]byte { return [][]byte{fpdu(appendUntagged(nil, opWrite, true, queueSend, 1, 0))} }, &badOpcode},
	{"tagged Send", func(e env) [][]byte { return [][]byte{fpdu(tagged(opSend, true, e.key, e.base, "evil"))} }, &badOpcode},
	{"tagged Read Request", func(e env) [][]byte { return [][]byte{fpdu(tagged(opReadRequest, true, e.key, e.base, "evil"))} }, &badOpcode},
	{"tagged Terminate", func(e env) [][]byte { return [][]byte{fpdu(tagged(opTerminate, true, e.key, e.base, "evil"))} }, &badOpcode},
	{"Send on the Read queue", func(env) [][]byte { return [][]byte{fpdu(appendUntagged(nil, opSend, true, queueRead, 1, 0))} }, &badOpcode},
	{"Read Request on the Send queue", func(env) [][]byte {
		return [][]byte{fpdu(appendUntagged(nil, opReadRequest, true, queueSend, 1, 0))}
	}, &badOpcode},
	{"untagged header cut", func(env) [][]byte { return [][]byte{fpdu(send(true, 1, 0, "")[:untaggedLen-1])} }, &badLength},
	{"length field damaged", func(e env) [][]byte {
		b := fpdu(tagged(opWrite, true, e.key, e.base, "evil evil evil evil"))
		b[1] -= 4
		return [][]byte{b}
	}, &badCRC},
	{"random bytes", func(env) [][]byte {
		b := make([]byte, 2*maxFPDU)                // enough for whatever the length field says
		_, _ = rand.NewChaCha8([32]byte{1}).Read(b) // never fails
		return [][]byte{b}
	}, &badCRC},
	{"good Write, then past the end", func(e env) [][]byte {
		return [][]byte{append(fpdu(tagged(opWrite, true, e.key, e.base, "good")), fpdu(tagged(opWrite, true, e.key, e.base+peerSize, "evil"))...)}
	}, &badBounds},
	{"longest offset", func(e env) [][]byte { return [][]byte{fpdu(tagged(opWrite, true, e.key, math.MaxUint64, "evil"))} }, &badWrap},
	{"queue", func(e env) [][]byte { return [][]byte{fpdu(unhex(e.t, "41 43 00000000 00000009 00000001 00000000"))} }, &badQueue},
	{"STag", func(e env) [][]byte { return [][]byte{fpdu(tagged(opWrite, true, e.key+256, e.base, "evil"))} }, &badSTag},
	{"right index, wrong key part", func(e env) [][]byte { return [][]byte{fpdu(tagged(opWrite, true, e.key^1, e.base, "evil"))} }, &badSTag},
	{"before the base", func(e env) [][]byte { return [][]byte{fpdu(tagged(opWrite, true, e.key, e.base-1, "evil"))} }, &badBounds},
	{"at 0", func(e env) [][]byte { return [][]byte{fpdu(tagged(opWrite, true, e.key, 0, "evil"))} }, &badBounds},
	{"past the end", func(e env) [][]byte { return [][]byte{fpdu(tagged(opWrite, true, e.key, e.base+peerSize-3, "evil"))} }, &badBounds},
	{"wrap", func(e env) [][]byte { return [][]byte{fpdu(tagged(opWrite, true, e.key, math.MaxUint64-2, "evil"))} }, &badWrap},
	{"response to no Read", func(e env) [][]byte { return [][]byte{fpdu(tagged(opReadResponse, true, e.key, e.base, "evil"))} }, &badOpcode},
	{"no receive", func(env) [][]byte {
		return [][]byte{fpdu(send(true, 1, 0, "1")), fpdu(send(true, 2, 0, "2")), fpdu(send(true, 3, 0, "3"))}
	}, &noBuffer},
	{"MSN 0", func(env) [][]byte { return [][]byte{fpdu(send(true, 0, 0, ""))} }, &badMSN},
	{"MSN left out", func(env) [][]byte { return [][]byte{fpdu(send(true, 2, 0, ""))} }, &badMSN},
	{"MSN repeated", func(env) [][]byte { return [][]byte{fpdu(send(true, 1, 0, "")), fpdu(send(true, 1, 0, ""))} }, &badMSN},
	{"first MO", func(env) [][]byte { return [][]byte{fpdu(send(true, 1, 4, "1"))} }, &badMO},
	{"MO left out", func(env) [][]byte { return [][]byte{fpdu(send(false, 1, 0, "1234")), fpdu(send(true, 1, 5, "1"))} }, &badMO},
	{"MO backwards", func(env) [][]byte { return [][]byte{fpdu(send(false, 1, 0, "1234")), fpdu(send(true, 1, 0, "1"))} }, &badMO},
	{"another message in between", func(env) [][]byte { return [][]byte{fpdu(send(false, 1, 0, "1234")), fpdu(send(true, 2, 0, "1"))} }, &badMSN},
	{"too long", func(env) [][]byte { return [][]byte{fpdu(send(true, 1, 0, "123456789"))} }, &tooLong},
	{"too long in parts", func(env) [][]byte { return [][]byte{fpdu(send(false, 1, 0, "12345")), fpdu(send(true, 1, 5, "6789"))} }, &tooLong},
	{"read of an STag", func(e env) [][]byte { return [][]byte{fpdu(read(1, readRequest{1, 2, 4, e.key + 256, e.base}))} }, &badReadSTag},
	{"read past the end", func(e env) [][]byte { return [][]byte{fpdu(read(1, readRequest{1, 2, peerSize + 1, e.key, e.base}))} }, &badReadBounds},
	{"read of the most", func(e env) [][]byte { return [][]byte{fpdu(read(1, readRequest{1, 2, math.MaxUint32, e.key, e.base}))} }, &badReadBounds},
	{"read that wraps", func(e env) [][]byte { return [][]byte{fpdu(read(1, readRequest{1, 2, 4, e.key, math.MaxUint64}))} }, &badReadWrap},
	{"read MSN", func(e env) [][]byte { return [][]byte{fpdu(read(2, readRequest{1, 2, 4, e.key, e.base}))} }, &badMSN},
	{"read request cut", func(e env) [][]byte {
		b := read(1, readRequest{1, 2, 4, e.key, e.base})
		return [][]byte{fpdu(b[:len(b)-1])}
	}, &badReadRequest},
	{"read request too long", func(e env) [][]byte {
		return [][]byte{fpdu(append(read(1, readRequest{1, 2, 4, e.key, e.base}), 0))}
	}, &tooLong},
	{"read request not last", func(e env) [][]byte {
		b := read(1, readRequest{1, 2, 4, e.key, e.base})
		b[0] &^= ddpLast
		return [][]byte{fpdu(b)}
	}, &badReadRequest},
	{"read request with MO", func(e env) [][]byte {
		b := read(1, readRequest{1, 2, 4, e.key, e.base})
		b[untaggedLen-1] = 4
		return [][]byte{fpdu(b)}
	}, &badMO},
	{"more Reads than IRD", func(e env) [][]byte {
		var bs []byte // in one piece, so that all arrive before the first is answered
		for i := range uint32(20) {
			bs = append(bs, fpdu(read(i+1, readRequest{1, 2, 4, e.key, e.base}))...)
		}
		return [][]byte{bs}
	}, &noBuffer},
	{"invalidate an unknown STag", func(e env) [][]byte {
		return [][]byte{fpdu(invalidate(1, e.key+256))}
	}, &badInvalidate},
}

// A peer that breaks the protocol gets the Terminate that the RFCs name, and changes no
// memory.
func TestViolations(t *testing.T) {
	for _, tt := range violations {
		t.Run(tt.name, func(t *testing.T) {
			p := newRawPeer(t, rdma.ConnConfig{}, hello)
			recv := rdma.WorkRequest{Local: rdma.SGE{Region: p.r, Off: 32, Len: 8}}
			require.NoError(t, p.c.PostRecv([]rdma.WorkRequest{recv, recv}))
			failed := make(chan error, 1)
			go func() {
				var cs [4]rdma.Completion
				for {
					_, err := p.c.Poll(cs[:])
					if err == nil {
						err = p.c.Wait()
					}
					if err != nil {
						failed <- err
						return
					}
				}
			}()
			for _, b := range tt.sent(env{t, p.r.Key, p.r.Base}) {
				_, err := p.Write(b)
				require.NoError(t, err)
			}
			s := p.next()
			for s.Op == opReadResponse { // to the Reads before the one too many
				s = p.next()
			}
			require.Equal(t, opTerminate, s.Op)
			require.True(t, s.Last)
			require.EqualValues(t, 1, s.MSN)
			require.Equal(t, []byte{tt.want.Layer<<4 | tt.want.Type, tt.want.Code}, s.Payload[:2])
			_, err := p.Read(make([]byte, 1))
			require.ErrorIs(t, err, io.EOF, "nothing behind a Terminate")
			require.NoError(t, p.Close())
			err = <-failed
			require.ErrorIs(t, err, rdma.ErrLost)
			require.ErrorIs(t, err, tt.want)
			require.NotContains(t, string(p.r.Mem), "evil")
		})
	}
}
