package remote

import (
	"fmt"

	"pmnbd/backend"
	"pmnbd/persist/wire"
	"pmnbd/rdma"
)

// zeroCredits is how many of a lane's credits are for zeroes.
const zeroCredits = 8

// zeroes are the zeroes of a lane that the target has not acknowledged. The target's CPU stores
// zeroes, while it places the Writes behind them as they arrive. So a request that overlaps one
// waits for its ack, and everything behind it waits, too, barriers included. Else the zeroes would
// wipe newer data (design §4.7). The stream's mutex guards them.
type zeroes struct {
	out      [zeroCredits]wire.Zero // a ring
	head, n  int
	messages [zeroCredits][wire.ZeroSize]byte
	seq      uint64
}

// overlap reports whether a zero that is out touches n bytes at off.
func (z *zeroes) overlap(off, n uint64) bool {
	for i := range z.n {
		o := &z.out[(z.head+i)%zeroCredits]
		if off < o.Off+o.Len && o.Off < off+n {
			return true
		}
	}
	return false
}

// message makes the message for entry e, valid until the target acknowledges it. It
// reports false while there is no credit.
func (z *zeroes) message(e *backend.Entry) ([]byte, bool) {
	if z.n == zeroCredits {
		return nil, false
	}
	z.seq++
	i := (z.head + z.n) % zeroCredits
	z.n++
	z.out[i] = wire.Zero{Seq: z.seq, Off: e.Off, Len: uint64(e.Len)}
	return z.out[i].Append(z.messages[i][:0]), true
}

// due reports whether zero seq, or one before it, is not acknowledged.
func (z *zeroes) due(seq uint64) bool { return z.n > 0 && z.out[z.head].Seq <= seq }

// acked takes the ack of the oldest zero that is out.
func (z *zeroes) acked(ack wire.ZeroAck) error {
	if z.n == 0 || z.out[z.head].Seq != ack.Seq {
		return fmt.Errorf("%w: an ack of zeroes %d that are not due", rdma.ErrLost, ack.Seq)
	}
	z.head = (z.head + 1) % zeroCredits
	z.n--
	return nil
}
