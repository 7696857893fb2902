package backendtest

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/backend"
)

// Run tests a Device against its contract. open makes a new device of at least 4 MiB, all
// zero. The suite closes it.
func Run(t *testing.T, open func(t *testing.T) backend.Device) {
	tests := []struct {
		name string
		run  func(t *testing.T, dev backend.Device)
	}{
		{"info", testInfo},
		{"reads what was written", testReadYourWrites},
		{"spans across chunks", testSpans},
		{"the largest request", testLargest},
		{"overlapping writes of a batch in order", testOverlapInBatch},
		{"overlapping writes of batches in order", testOverlapAcrossBatches},
		{"a read behind writes of its batch", testReadBehindWrites},
		{"write, FLUSH and FUA in a batch", testFlush},
		{"FLUSH with nothing written", testFlushNothing},
		{"zeroes", testZeroes},
		{"everything is given back", testAllBack},
		{"more than fits into the arenas", testBackPressure},
		{"an empty batch", testEmptyBatch},
		{"concurrent clients on ranges of their own", testDisjoint},
		{"concurrent clients on the same blocks", testContended},
		{"a client that hung up", testGone},
		{"hanging up hurts nobody else", testGoneBystander},
		{"Close with ops outstanding", testCloseOutstanding},
		{"Submit after Close", testClosed},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dev := open(t)
			t.Cleanup(func() { require.NoError(t, dev.Close(), "Close is idempotent and loses nothing") })
			tt.run(t, dev)
		})
	}
}

func testInfo(t *testing.T, dev backend.Device) {
	in := dev.Info()
	require.Equal(t, in, dev.Info())
	require.GreaterOrEqual(t, in.Size, uint64(4<<20))
	for _, n := range []uint32{in.BlockMin, in.BlockPreferred} {
		require.NotZero(t, n)
		require.Zero(t, n&(n-1), "a power of two")
	}
	require.LessOrEqual(t, in.BlockMin, uint32(64<<10))
	require.GreaterOrEqual(t, in.BlockPreferred, max(in.BlockMin, 512))
	require.GreaterOrEqual(t, in.MaxRequest, in.BlockPreferred)
	require.LessOrEqual(t, int(in.MaxRequest)/backend.ChunkSize+2, dev.Arenas().Write.Budget().Total())
	require.LessOrEqual(t, int(in.MaxRequest)/backend.ChunkSize+2, dev.Arenas().Read.Budget().Total())
	require.NotEmpty(t, in.Description)
	require.NotContains(t, in.Description, "\n")
	require.GreaterOrEqual(t, dev.Arenas().MaxZero(), uint64(backend.ChunkSize))
}

// expect reads at off and compares the data with want.
func expect(t *testing.T, c *Client, off uint64, want []byte) {
	t.Helper()
	r := c.Read(off, len(want), 0)
	require.NoError(t, c.Do(r))
	if !bytes.Equal(want, r.Got) { // not require.Equal: its message would be megabytes
		i := 0
		for i < len(want) && want[i] == r.Got[i] {
			i++
		}
		require.Failf(t, "wrong data", "at %d, byte %d of %d: %q, not %q", off, i, len(want),
			r.Got[i:min(i+16, len(want))], want[i:min(i+16, len(want))])
	}
}

func testReadYourWrites(t *testing.T, dev backend.Device) {
	c := NewClient(t, dev)
	expect(t, c, 0, make([]byte, 64<<10))
	size := dev.Info().Size
	for i, at := range []struct {
		off uint64
		n   int
	}{{0, 1}, {4095, 2}, {4096, 4096}, {1<<20 - 3, 7}, {size - 1, 1}, {size - 70_001, 70_001}, {123_457, 333_333}} {
		data := Pattern(at.n, uint32(i))
		require.NoError(t, c.Do(c.Write(at.off, data, 0)))
		expect(t, c, at.off, data)
		require.NoError(t, c.Do(c.Flush()))
		expect(t, c, at.off, data)
	}
}

func testSpans(t *testing.T, dev backend.Device) {
	c := NewClient(t, dev)
	n := 2*backend.ChunkSize + 999
	for i, lead := range []int{1, 511, 4096, backend.ChunkSize - 1, backend.ChunkSize} {
		data := Pattern(n, uint32(i))
		off := uint64(100_003 * i)
		require.NoError(t, c.Do(c.Write(off, data, lead)))
		r := c.Read(off, n, backend.ChunkSize+1-lead)
		require.NoError(t, c.Do(r))
		require.True(t, bytes.Equal(data, r.Got), "lead %d", lead)
	}
}

func testLargest(t *testing.T, dev backend.Device) {
	c := NewClient(t, dev)
	n := int(min(uint64(dev.Info().MaxRequest), dev.Info().Size))
	data := Pattern(n, 1)
	require.NoError(t, c.Do(c.Write(0, data, 17)))
	require.NoError(t, c.Do(c.Flush()))
	expect(t, c, 0, data)
}

func testOverlapInBatch(t *testing.T, dev backend.Device) {
	c := NewClient(t, dev)
	const n = 64 << 10
	want := make([]byte, n)
	var batch []*Request
	for i := range 24 {
		off, data := i*1777, Pattern(n/3, uint32(i))
		data = data[:min(len(data), n-off)]
		copy(want[off:], data)
		batch = append(batch, c.Write(uint64(off), data, 5))
	}
	require.NoError(t, c.Do(batch...))
	expect(t, c, 0, want)
	require.NoError(t, c.Do(c.Flush()))
	expect(t, c, 0, want)
}

func testOverlapAcrossBatches(t *testing.T, dev backend.Device) {
	c := NewClient(t, dev)
	const n = 32 << 10
	want := make([]byte, n)
	for i := range 40 {
		off, data := (i*7919)%(n/2), Pattern(n/2, uint32(i))
		copy(want[off:], data)
		c.Submit(c.Write(uint64(off), data, 0)) // without waiting
		if i%8 == 7 {
			c.Submit(c.Flush())
		}
	}
	require.NoError(t, c.Wait())
	expect(t, c, 0, want)
}

func testReadBehindWrites(t *testing.T, dev backend.Device) {
	c := NewClient(t, dev)
	old, now := Pattern(8192, 1), Pattern(4096, 2)
	require.NoError(t, c.Do(c.Write(0, old, 0)))
	// NBD orders a READ only behind writes that are completed. The design promises more:
	// an op sees those that were submitted before it (design §4.5).
	r := c.Read(0, 8192, 3)
	require.NoError(t, c.Do(c.Write(2048, now, 0), r))
	require.Equal(t, slices.Concat(old[:2048], now, old[6144:]), r.Got)
}

func testFlush(t *testing.T, dev backend.Device) {
	c := NewClient(t, dev)
	a, b, d := Pattern(4096, 1), Pattern(4096, 2), Pattern(4096, 3)
	fua := c.Write(4096, b, 0)
	fua.FUA = true
	require.NoError(t, c.Do(c.Write(0, a, 0), c.Flush(), fua, c.Write(8192, d, 0), c.Flush()))
	expect(t, c, 0, slices.Concat(a, b, d))
}

func testFlushNothing(t *testing.T, dev backend.Device) {
	c := NewClient(t, dev)
	for range 3 {
		require.NoError(t, c.Do(c.Flush()))
	}
	require.NoError(t, c.Do(c.Flush(), c.Flush(), c.Flush()))
}

func testZeroes(t *testing.T, dev backend.Device) {
	if !dev.Info().CanZero {
		t.Skip("the device does not serve WRITE_ZEROES")
	}
	c := NewClient(t, dev)
	data := Pattern(1<<20, 1)
	require.NoError(t, c.Do(c.Write(0, data, 0)))
	zero := c.Zero(1000, 500_000)
	again := Pattern(100, 2)
	require.NoError(t, c.Do(zero, c.Write(2000, again, 0)))
	clear(data[1000:501_000])
	copy(data[2000:], again)
	expect(t, c, 0, data)
	fua := c.Zero(0, 1)
	fua.FUA = true
	require.NoError(t, c.Do(fua))
	data[0] = 0
	expect(t, c, 0, data)
}

func testAllBack(t *testing.T, dev backend.Device) {
	c := NewClient(t, dev)
	for i := range 8 {
		var batch []*Request
		for j := range 16 {
			batch = append(batch, c.Write(uint64(i*16+j)*4096, Pattern(4096, uint32(j)), j))
		}
		batch = append(batch, c.Flush(), c.Read(uint64(i)*65536, 65536, 100))
		require.NoError(t, c.Do(batch...))
	}
	require.NoError(t, c.Do(c.Flush()))
	AllBack(t, dev)
}

// testBackPressure writes more than the arena holds, without a FLUSH. The device must make
// room for a client that waits.
func testBackPressure(t *testing.T, dev backend.Device) {
	c := NewClient(t, dev)
	size := dev.Info().Size
	data := Pattern(4096, 9)
	var last *Request
	for i := range dev.Arenas().Write.Budget().Total() + 64 {
		last = c.Write(uint64(i)*backend.ChunkSize%(size-4096), data, 0) // pins a chunk
		c.Submit(last)
	}
	require.NoError(t, c.Wait(last))
	require.NoError(t, c.Wait())
	require.NoError(t, c.Do(c.Flush()))
	AllBack(t, dev)
}

func testEmptyBatch(t *testing.T, dev backend.Device) {
	dev.Submit(nil)
	dev.Post()
	c := NewClient(t, dev)
	require.NoError(t, c.Do(c.Flush()))
}

func testDisjoint(t *testing.T, dev backend.Device) {
	const clients, share = 4, 512 << 10
	var wg sync.WaitGroup
	for w := range clients {
		wg.Go(func() {
			c := NewClient(t, dev)
			rnd := rand.New(rand.NewPCG(uint64(w), 1))
			base := uint64(w) * share
			model := make([]byte, share)
			for i := range 60 {
				off := rnd.IntN(share - 1)
				data := Pattern(1+rnd.IntN(min(share-off, 40_000)), uint32(w*60+i))
				op := c.Write(base+uint64(off), data, rnd.IntN(len(data)+1))
				op.FUA = i%7 == 0
				copy(model[off:], data)
				batch := []*Request{op}
				if i%5 == 0 {
					batch = append(batch, c.Flush())
				}
				if err := c.Do(batch...); err != nil {
					t.Errorf("client %d: %v", w, err)
					return
				}
				r := c.Read(base, share, 0)
				if err := c.Do(r); err != nil || !bytes.Equal(model, r.Got) {
					t.Errorf("client %d, step %d: wrong data, error %v", w, i, err)
					return
				}
			}
		})
	}
	wg.Wait()
	c := NewClient(t, dev)
	require.NoError(t, c.Do(c.Flush()))
	AllBack(t, dev)
}

// testContended has several clients write the same blocks. Each block must end as one of
// the writes, whole: overlapping ops share a lane, which orders them (design §4.5).
func testContended(t *testing.T, dev backend.Device) {
	const clients, blocks, size = 4, 8, 4096
	var wg sync.WaitGroup
	for w := range clients {
		wg.Go(func() {
			c := NewClient(t, dev)
			for i := range 40 {
				var batch []*Request
				for b := range blocks {
					batch = append(batch, c.Write(uint64(b)*size, bytes.Repeat([]byte{byte(1 + w)}, size), 0))
				}
				if i%10 == 9 {
					batch = append(batch, c.Flush())
				}
				if err := c.Do(batch...); err != nil {
					t.Errorf("client %d: %v", w, err)
				}
			}
		})
	}
	wg.Wait()
	c := NewClient(t, dev)
	r := c.Read(0, blocks*size, 0)
	require.NoError(t, c.Do(r))
	for b := range blocks {
		block := r.Got[b*size:][:size]
		require.Contains(t, []byte{1, 2, 3, 4}, block[0])
		require.Equal(t, bytes.Repeat(block[:1], size), block, "block %d is torn", b)
	}
}

func testGone(t *testing.T, dev backend.Device) {
	c, other := NewClient(t, dev), NewClient(t, dev)
	old := Pattern(4096, 1)
	require.NoError(t, c.Do(c.Write(0, old, 0)))
	batch := []*Request{c.Write(0, Pattern(4096, 2), 7), c.Read(0, 4096, 0)}
	fua := c.Write(100, Pattern(100, 3), 0)
	fua.FUA = true
	batch = append(batch, fua)
	if dev.Info().CanZero {
		batch = append(batch, c.Zero(0, 4096))
	}
	flush := c.Flush() // the device may serve it or drop it
	c.HangUp()
	c.Submit(append(batch, flush)...)
	_ = c.Wait(flush)
	for _, r := range batch {
		require.ErrorIs(t, c.Wait(r), backend.ErrGone, r.Cmd)
	}
	expect(t, other, 0, old)
	require.NoError(t, other.Do(other.Flush()))
	expect(t, other, 0, old)
	AllBack(t, dev)
}

func testGoneBystander(t *testing.T, dev backend.Device) {
	c, other := NewClient(t, dev), NewClient(t, dev)
	data := Pattern(4096, 5)
	w := other.Write(0, data, 0)
	c.HangUp()
	c.Submit(c.Write(0, Pattern(4096, 6), 0))
	require.NoError(t, other.Do(w, other.Flush()))
	require.NoError(t, c.Wait()) // its write is completed with an error
	expect(t, other, 0, data)
}

func testCloseOutstanding(t *testing.T, dev backend.Device) {
	clients := make([]*Client, 3)
	for i := range clients {
		c := NewClient(t, dev)
		clients[i] = c
		var batch []*Request
		for j := range 32 {
			batch = append(batch, c.Write(uint64(j)*8192, Pattern(8192, uint32(j)), 0), c.Read(uint64(j)*4096, 4096, 0))
		}
		c.Submit(append(batch, c.Flush())...)
	}
	require.NoError(t, dev.Close())
	for _, c := range clients {
		// Close has returned: there is nothing to wait for.
		c.mu.Lock()
		require.Zero(t, c.open)
		c.mu.Unlock()
	}
}

func testClosed(t *testing.T, dev backend.Device) {
	c := NewClient(t, dev)
	require.NoError(t, c.Do(c.Write(0, Pattern(512, 1), 0), c.Flush()))
	require.NoError(t, dev.Close())
	require.NoError(t, dev.Close())
	for range 2 {
		err := c.Do(c.Flush())
		require.True(t, errors.Is(err, backend.ErrClosed), fmt.Sprint(err))
	}
}
