package e2e

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/nbd/wire"
)

// Each slot of a verifiedLoad has slotSize bytes of its own and at most one request
// outstanding, so the test knows what a READ must return.
const (
	loadDepth = 16
	slotSize  = 1 << 20
	loadSize  = loadDepth * slotSize
	// maxLoad bounds a request. One goroutine sends and receives, so the READs of all slots
	// together must fit into what the server holds for a connection.
	maxLoad = 256 << 10
)

// A verifiedLoad is a connection that reads, writes and flushes at random within loadSize bytes
// of its own, and checks what it reads.
type verifiedLoad struct {
	n     *conn
	base  uint64
	rng   *rand.Rand
	noise []byte
	want  []byte
	slots [loadDepth]slotState
}

// A slotState is what a slot is waiting for.
type slotState struct {
	reads []byte // nil unless it is a READ
	want  []byte
	got   []byte // memory for reads
}

// newLoad connects and fills its part of the export, which begins at base.
func newLoad(t *testing.T, uri string, base uint64, seed uint64) *verifiedLoad {
	t.Helper()
	l := &verifiedLoad{
		n: dialDeep(t, uri, loadDepth), base: base, rng: rand.New(rand.NewPCG(seed, base)),
		noise: noise(t, 2*slotSize), want: make([]byte, loadSize),
	}
	for i := range l.slots {
		l.slots[i].got = make([]byte, maxLoad)
		part := l.want[i*slotSize : (i+1)*slotSize]
		copy(part, l.noise)
		require.NoError(t, l.n.write(base+uint64(i)*slotSize, part))
	}
	return l
}

// run carries out ops requests. Each must succeed, and each READ must return the right bytes.
func (l *verifiedLoad) run(ops int) error {
	c := l.n.c
	running := 0
	for ; running < min(loadDepth, ops); running++ {
		l.start(running)
	}
	for sent := running; running > 0; {
		if !c.Buffered() {
			if err := l.n.limit(); err != nil {
				return err
			}
			if err := c.Send(); err != nil {
				return err
			}
		}
		tag, errno, err := c.Recv()
		if err == nil && errno != 0 {
			err = syscall.Errno(errno)
		}
		if err != nil {
			return err
		}
		if s := &l.slots[tag]; !bytes.Equal(s.reads, s.want) {
			return fmt.Errorf("wrong data in slot %d of the part at %d", tag, l.base)
		}
		if sent == ops {
			running--
			continue
		}
		l.start(int(tag))
		sent++
	}
	return nil
}

// start queues one request of slot i. Half are writes, some of them with FUA or of zeroes; most
// of the rest are reads. Size and alignment are random, with more small requests than large
// ones.
func (l *verifiedLoad) start(i int) {
	s := &l.slots[i]
	size := 1 + l.rng.IntN(maxLoad>>l.rng.IntN(10)) // up to 256 KiB … up to 512 bytes
	at := l.rng.IntN(slotSize - size + 1)
	off := l.base + uint64(i)*slotSize + uint64(at)
	want := l.want[i*slotSize+at:][:size]
	s.reads, s.want = nil, nil
	switch kind := l.rng.IntN(100); {
	case kind < 5:
		clear(want)
		l.n.c.Request(wire.Request{Command: wire.CmdWriteZeroes, Cookie: uint64(i), Off: off, Len: uint64(size)})
	case kind < 50:
		copy(want, l.noise[l.rng.IntN(slotSize):])
		var flags wire.CommandFlags
		if kind < 10 {
			flags = wire.CmdFlagFUA
		}
		l.n.c.Write(uint32(i), off, want, flags)
	case kind < 95:
		s.reads, s.want = s.got[:size], want
		l.n.c.Read(uint32(i), off, s.reads)
	default:
		l.n.c.Flush(uint32(i))
	}
}
