package target

import (
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/persist"
	"pmnbd/persist/wire"
	"pmnbd/rdma"
)

// A stranger or an initiator that breaks the rules loses its connection, and nobody else
// loses anything.
func TestHostileMessages(t *testing.T) {
	open := (&wire.Open{Methods: everyMethod, Owner: alice, Epoch: 1, Region: "log"}).Append(nil)
	other := append([]byte(nil), open...)
	other[5] = 9 // version
	barrier := func(r ...persist.Range) []byte { return (&wire.Barrier{Seq: 1, Last: true, Ranges: r}).Append(nil) }
	for name, c := range map[string]struct {
		session bool
		send    []byte
		code    wire.Code // of a REFUSED that comes first
		failed  bool      // a BARRIER_FAIL comes first
		alive   bool
	}{
		"garbage":                     {send: []byte("GET / HTTP/1.1\r\n\r\n")},
		"empty message":               {send: []byte{}},
		"cut off OPEN":                {send: open[:100]},
		"another version":             {send: other, code: wire.CodeVersion},
		"barrier without session":     {send: barrier()},
		"heartbeat without session":   {send: (&wire.Heartbeat{}).Append(nil)},
		"an answer":                   {send: (&wire.Closed{}).Append(nil)},
		"RESUME of another's session": {send: (&wire.Resume{Methods: everyMethod, Owner: alice, Region: "log"}).Append(nil), code: wire.CodeNotOwner, alive: true},
		"JOIN":                        {send: (&wire.Join{Epoch: 1, Lane: 1}).Append(nil), code: wire.CodeNotOwner, alive: true},
		"owner without id":            {send: (&wire.Open{Methods: everyMethod, Epoch: 1, Region: "log"}).Append(nil), code: wire.CodeInvalid, alive: true},
		"RESUME that takes over":      {send: (&wire.Resume{Methods: everyMethod, Owner: alice, Epoch: 1, Region: "log", Flags: wire.OpenTakeover}).Append(nil), code: wire.CodeInvalid, alive: true},
		"CHALLENGE":                   {send: (&wire.Challenge{}).Append(nil)},
		"unknown region":              {send: (&wire.Open{Methods: everyMethod, Owner: alice, Epoch: 1, Region: "../log"}).Append(nil), code: wire.CodeUnknownRegion, alive: true},
		"OPEN in a session":           {session: true, send: open},
		"garbage in a session":        {session: true, send: []byte("hello")},
		"CLOSE of another epoch":      {session: true, send: (&wire.Close{Epoch: 1}).Append(nil)},
		"zeroes past the end":         {session: true, send: (&wire.Zero{Off: size - 1, Len: 2}).Append(nil)},
		"zeroes that overflow":        {session: true, send: (&wire.Zero{Off: ^uint64(0), Len: 2}).Append(nil)},
		"too many zeroes":             {session: true, send: (&wire.Zero{Len: wire.MaxZero + 1}).Append(nil)},
		"zeroes without session":      {send: (&wire.Zero{Len: 1}).Append(nil)},
		"barrier past the end":        {session: true, send: barrier(persist.Range{Off: size, Len: 1}), failed: true},
		"barrier that overflows":      {session: true, send: barrier(persist.Range{Off: 4096, Len: ^uint64(0) - 100}), failed: true},
		"barrier far out":             {session: true, send: barrier(persist.Range{Off: 1 << 63, Len: 1 << 63}), failed: true},
		"second of two ranges is bad": {session: true, send: barrier(persist.Range{Off: 0, Len: 1}, persist.Range{Off: size + 1}), failed: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			bystander := s.connect(t)
			p := s.connect(t)
			if c.session {
				p.open(bob)
			}
			p.send(c.send)
			if c.code != 0 {
				var r wire.Refused
				msg, err := p.receive()
				require.NoError(t, err)
				require.NoError(t, r.Decode(msg))
				require.Equal(t, c.code, r.Code)
			}
			if c.failed {
				var f wire.BarrierFail
				msg, err := p.receive()
				require.NoError(t, err)
				require.NoError(t, f.Decode(msg))
				require.Equal(t, wire.CodeInvalid, f.Code)
			}
			if c.alive {
				p.open(bob)
			} else {
				_, err := p.receive()
				require.ErrorIs(t, err, rdma.ErrLost)
			}
			if !c.session && !c.alive {
				o := bystander.open(alice)
				require.NoError(t, bystander.write(o, 1, 0, []byte("fine")))
			}
			require.NoError(t, s.region.Failed())
		})
	}
}

// The target cuts off an initiator that exceeds its credits.
func TestCreditsAreKept(t *testing.T) {
	for name, last := range map[string]bool{"barriers": true, "parts of them": false} {
		t.Run(name, func(t *testing.T) {
			s, p, release := heldSync(t)
			for seq := uint64(2); seq <= credits+1; seq++ {
				p.send((&wire.Barrier{Seq: seq, Last: last}).Append(nil))
			}
			_, err := p.receive()
			require.ErrorIs(t, err, rdma.ErrLost, "cut off without an answer")
			release()
			s.connect(t).open(alice)
		})
	}
}
