package remote

import (
	"bytes"
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"pmnbd/backend"
	"pmnbd/backend/backendtest"
	"pmnbd/internal/logtest"
	"pmnbd/persist"
	"pmnbd/persist/wire"
	"pmnbd/rdma"
	"pmnbd/rdma/rdmafake"
)

const chunkSize = 64 << 10 // that a bit of a region of the tests stands for

// A tapped connection shows each request before it is posted.
type tapped struct {
	rdma.Conn
	see func(wr *rdma.WorkRequest)
}

func (c tapped) Post(wrs []rdma.WorkRequest) (int, error) {
	for i := range wrs {
		c.see(&wrs[i])
	}
	return c.Conn.Post(wrs)
}

// tap shows see what is posted to leg i. It may be shown twice.
func (s pairs) tap(i int, see func(wr *rdma.WorkRequest)) {
	s[i].provider = wrapped{s[i].provider, func(c rdma.Conn) rdma.Conn { return &tapped{c, see} }}
}

// behind has leg 1 lack everything, and come back. It returns what the device then has.
func (s pairs) behind(t testing.TB, d *Device, network *rdmafake.Provider) (shadow []byte) {
	c := backendtest.NewClient(t, d)
	network.Down()
	shadow = backendtest.Pattern(regionSize, 7)
	for off := 0; off < regionSize; off += stripe {
		require.NoError(t, c.Do(c.Write(uint64(off), shadow[off:off+stripe], 0)))
	}
	require.NoError(t, c.Do(c.Flush()))
	require.EqualValues(t, regionSize/chunkSize, s[0].region.BitsSet(1))
	network.Up()
	require.Eventually(t, func() bool { return d.legs[1].resyncProgress().Total > 0 }, time.Minute, 10*time.Millisecond)
	return shadow
}

// die ends d as if its process were killed, and its window lost.
func (s pairs) die(t testing.TB, d *Device) {
	for i := range s {
		s.network(i).Pause()
	}
	c := backendtest.NewClient(t, d)
	require.NoError(t, c.Do(c.Write(0, []byte("never sent"), 0)))
	ctx, giveUp := context.WithCancel(t.Context())
	giveUp()
	require.ErrorIs(t, d.Shutdown(ctx), context.Canceled)
	for i := range s {
		s.network(i).Resume()
	}
}

// What is written to a chunk while it is copied stays behind the copy, at the leg, too (mirror §5.3).
func TestWriteBehindCopy(t *testing.T) { synctest.Test(t, testWriteBehindCopy) }

func testWriteBehindCopy(t *testing.T) {
	s := fakes(t, 2, rdmafake.Config{})
	network := s.network(1)
	var c *backendtest.Client
	var shadow []byte
	var mu sync.Mutex
	wrote := make(map[uint64]bool)
	s.tap(0, func(wr *rdma.WorkRequest) { // the source has not read yet
		if mu.Lock(); wr.Op == rdma.OpRead && wr.ID&tagMask == tagFetch && shadow != nil && !wrote[wr.Remote.Addr] {
			wrote[wr.Remote.Addr] = true
			off := int(wr.Remote.Addr)%regionSize + 1000
			data := backendtest.Pattern(2*block, uint32(len(wrote)+100))
			require.NoError(t, c.Do(c.Write(uint64(off), data, 0), c.Write(uint64(off+block), data, 0)))
			copy(shadow[off:], data)
			copy(shadow[off+block:], data)
		}
		mu.Unlock()
	})
	d := s.slowly(t, 1, chunkSize)
	c = backendtest.NewClient(t, d)
	base := d.legs[0].granted.Base
	require.Zero(t, base%regionSize, "else the places above are wrong")
	now := s.behind(t, d, network)
	mu.Lock()
	shadow = now
	mu.Unlock()
	s.inSync(t, d)
	mu.Lock()
	require.Greater(t, len(wrote), 100)
	require.True(t, bytes.Equal(shadow, s[1].region.Data()))
	mu.Unlock()
	backendtest.AllBack(t, d)
	require.NoError(t, d.Close())
}

// No READ comes from a leg before it is in F; READs wait for an equal leg (mirror §3.7, §5.2).
func TestReadsNeverComeFromResync(t *testing.T) { synctest.Test(t, testReadsNeverComeFromResync) }

func testReadsNeverComeFromResync(t *testing.T) {
	s := fakes(t, 2, rdmafake.Config{})
	source, network := s.network(0), s.network(1)
	var reads atomic.Int64
	s.tap(1, func(wr *rdma.WorkRequest) {
		if wr.Op == rdma.OpRead && wr.ID&tagMask == tagRead {
			reads.Add(1)
		}
	})
	d := s.slowly(t, 1, chunkSize)
	c := backendtest.NewClient(t, d)
	shadow := s.behind(t, d, network)
	for range 10 {
		read := c.Read(0, 10*block, 0)
		require.NoError(t, c.Do(read))
		require.Equal(t, shadow[:10*block], read.Got)
		time.Sleep(time.Second)
	}
	source.Down()
	read := c.Read(0, block, 0)
	c.Submit(read)
	time.Sleep(10 * time.Minute)
	require.False(t, read.Completed())
	require.NotNil(t, d.resyncing(1), "it waits for its source")
	require.EqualValues(t, 1, d.legs[1].generation.Load(), "its session stays")
	source.Up()
	require.NoError(t, c.Wait(read))
	require.Zero(t, reads.Load())
	s.inSync(t, d)
	source.Down()
	require.NoError(t, c.Do(c.Read(0, block, 0)))
	require.Positive(t, reads.Load())
	source.Up()
	time.Sleep(time.Minute)
	s.inSync(t, d)
	backendtest.AllBack(t, d)
	require.NoError(t, d.Close())
}

// A bit is cleared once the leg itself has made the copy durable, and not before (mirror §3.5). A FLUSH
// waits for the leg, too, while it is connected (mirror §5.4).
func TestBitsAreClearedBehindTheLegsAck(t *testing.T) {
	synctest.Test(t, testBitsAreClearedBehindTheLegsAck)
}

func testBitsAreClearedBehindTheLegsAck(t *testing.T) {
	s := fakes(t, 2, rdmafake.Config{})
	network := s.network(1)
	d := s.slowly(t, 2, chunkSize)
	c := backendtest.NewClient(t, d)
	s.behind(t, d, network)
	release := s[1].sync.blockData()
	defer release()
	time.Sleep(20 * time.Second)
	const all = regionSize / chunkSize
	require.Greater(t, s[0].region.BitsSet(1), uint64(all-5), "the leg has acknowledged no barrier")
	require.Greater(t, d.legs[1].resyncProgress().Done, uint64(15*chunkSize), "copies go on")
	flush := c.Flush()
	c.Submit(c.Write(0, backendtest.Pattern(block, 1), 0), flush)
	time.Sleep(time.Second)
	require.False(t, flush.Completed())
	release()
	require.NoError(t, c.Wait(flush))
	time.Sleep(20 * time.Second)
	require.InDelta(t, all-40, float64(s[0].region.BitsSet(1)), 5)

	// A session that ends in the middle costs what was not settled, and nothing else.
	network.Cut()
	time.Sleep(time.Millisecond) // it comes back at once
	require.InDelta(t, (all-40)*chunkSize, float64(d.legs[1].resyncProgress().Total), 6*chunkSize)
	began := time.Now()
	s.inSync(t, d)
	require.InDelta(t, all-40, time.Since(began).Seconds(), 10, "a chunk a second")
	backendtest.AllBack(t, d)
	require.NoError(t, d.Close())
}

// A resync that moves nothing for a minute is a lost leg: it starts again, and says so (mirror §5.6). A
// FLUSH that waited for the leg goes on without it.
func TestResyncStandsStill(t *testing.T) { synctest.Test(t, testResyncStandsStill) }

func testResyncStandsStill(t *testing.T) {
	s := fakes(t, 2, rdmafake.Config{})
	network := s.network(1)
	cfg := s.config(t)
	cfg.LegTimeout, cfg.ResyncRate = 1, chunkSize
	logs, said := observer.New(zap.WarnLevel)
	cfg.Log = logtest.On(logs)
	d, err := Dial(t.Context(), cfg)
	require.NoError(t, err)
	c := backendtest.NewClient(t, d)
	s.behind(t, d, network)
	network.Freeze()
	flush := c.Flush()
	c.Submit(c.Write(0, backendtest.Pattern(block, 1), 0), flush)
	time.Sleep(resyncPatience / 2)
	require.False(t, flush.Completed())
	time.Sleep(resyncPatience/2 + 2*time.Second)
	require.True(t, flush.Completed())
	require.NoError(t, c.Wait(flush))
	require.Equal(t, 1, said.FilterMessageSnippet("a resync stands still").Len())
	s.inSync(t, d)
	require.Equal(t, 1, said.FilterMessageSnippet("a resync stands still").Len())
	backendtest.AllBack(t, d)
	require.NoError(t, d.Close())
}

// After an unclean end members of F may differ. One is the source, the others are made equal, and a
// FLUSH waits for so many as the mirror must have (mirror §4.4). Writes go on meanwhile.
func TestEqualsAreMade(t *testing.T) { synctest.Test(t, testEqualsAreMade) }

func testEqualsAreMade(t *testing.T) {
	s := fakesOf(t, 2, 2, rdmafake.Config{})
	d := s.dialImpatient(t, 1)
	c := backendtest.NewClient(t, d)
	shadow := backendtest.Pattern(regionSize, 7)
	for off := 0; off < regionSize; off += stripe {
		require.NoError(t, c.Do(c.Write(uint64(off), shadow[off:off+stripe], 0)))
	}
	require.NoError(t, c.Do(c.Flush()))
	s.die(t, d)
	copy(s[1].region.Data()[3*stripe:], "what was not flushed")

	d = s.slowly(t, 1, chunkSize)
	c = backendtest.NewClient(t, d)
	require.Eventually(t, func() bool { return d.legs[1].resyncProgress().Total == regionSize }, time.Minute, 10*time.Millisecond)
	flush := c.Flush()
	c.Submit(flush)
	for i := range 40 { // more than the window has room for
		off := i % 8 * stripe
		data := backendtest.Pattern(stripe, uint32(i))
		require.NoError(t, c.Do(c.Write(uint64(off), data, 0)))
		copy(shadow[off:], data)
		time.Sleep(time.Second)
	}
	require.False(t, flush.Completed())
	require.Eventually(t, flush.Completed, 10*time.Minute, time.Second)
	require.NoError(t, c.Wait(flush))
	s.inSync(t, d)
	require.True(t, bytes.Equal(shadow, s[1].region.Data()))
	backendtest.AllBack(t, d)
	require.NoError(t, d.Close())
}

// A mirror that must have fewer copies than F has members does not wait for the last: the FLUSH is
// answered once enough are equal, and the rest come back as members outside F.
func TestEnoughEqualsAreMade(t *testing.T) {
	for name, later := range map[string]bool{"FLUSH comes first": false, "FLUSH comes later": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testEnoughEqualsAreMade(t, later) })
		})
	}
}

func testEnoughEqualsAreMade(t *testing.T, later bool) {
	s := fakesOf(t, 3, 2, rdmafake.Config{})
	d := s.dialImpatient(t, 1)
	c := backendtest.NewClient(t, d)
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(stripe, 1), 0), c.Flush()))
	s.die(t, d)

	cfg := s.config(t)
	cfg.ResyncRate = 4 * chunkSize
	d, err := Dial(t.Context(), cfg)
	require.NoError(t, err)
	c = backendtest.NewClient(t, d)
	require.Eventually(t, func() bool { return d.legs[2].resyncProgress().Total == regionSize }, time.Minute, 10*time.Millisecond)
	time.Sleep(5 * time.Second)
	cuts := 1
	if later {
		cuts = 4
	}
	for range cuts { // it starts again, and is later than the other
		s.network(2).Cut()
		time.Sleep(10 * time.Second)
	}
	require.Equal(t, persist.Members(7), s.record(0).F)
	require.Equal(t, later, d.resyncing(1) == nil)
	flush := c.Flush()
	c.Submit(c.Write(0, backendtest.Pattern(block, 2), 0), flush)
	require.Eventually(t, flush.Completed, 10*time.Minute, time.Millisecond)
	require.NoError(t, c.Wait(flush))
	require.Equal(t, persist.Members(3), s.record(0).F)
	require.NotNil(t, d.resyncing(2))
	s.inSync(t, d)
	backendtest.AllBack(t, d)
	require.NoError(t, d.Close())
}

// A leg is in F once its copies are durable, and not before (mirror §3.5, §5.5).
func TestCopiesAreDurableBeforeF(t *testing.T) { synctest.Test(t, testCopiesAreDurableBeforeF) }

func testCopiesAreDurableBeforeF(t *testing.T) {
	s := fakes(t, 2, rdmafake.Config{})
	network := s.network(1)
	var mu sync.Mutex
	named := make([]byte, regionSize)
	s.tap(1, func(wr *rdma.WorkRequest) { // what barriers of the leg name
		var m wire.Barrier
		if wr.Op != rdma.OpSend || wr.Local.Region == nil || m.Decode(wr.Local.Region.Mem[wr.Local.Off:][:wr.Local.Len]) != nil {
			return
		}
		mu.Lock()
		for _, r := range m.Ranges {
			copy(named[r.Off:][:r.Len], bytes.Repeat([]byte{1}, int(r.Len)))
		}
		mu.Unlock()
	})
	d := s.slowly(t, 2, regionSize/10)
	s.behind(t, d, network)
	release := s[1].sync.blockData()
	defer release()
	time.Sleep(time.Minute)
	require.EqualValues(t, regionSize, d.legs[1].resyncProgress().Done)
	require.Equal(t, persist.Member(0), s.record(0).F)
	require.True(t, s.record(1).Torn)
	release()
	s.inSync(t, d)
	mu.Lock()
	require.Equal(t, -1, bytes.IndexByte(named, 0), "each copy is named")
	mu.Unlock()
	backendtest.AllBack(t, d)
	require.NoError(t, d.Close())
}

// A copy waits for zeroes that it overlaps, as a READ does: the target stores them whenever its CPU
// comes to it, also over what a copy has written, and a copy must not miss them (design §4.7).
func TestCopyWaitsForZeroes(t *testing.T) {
	s := fakes(t, 2, rdmafake.Config{})
	d := s.dialImpatient(t, 1)
	l := d.legs[0].lanes[0]
	l.mu.Lock()
	_, ok := l.zeroes.message(&backend.Entry{Off: 5000, Len: 100, Kind: backend.EntryZero})
	require.True(t, ok)
	p := &piece{stream: l.stream, off: 4096, end: 8192, fetched: true}
	for kind, name := range map[itemKind]string{itemDigest: "DIGEST", itemFetch: "Read", itemStore: "Write"} {
		require.False(t, l.buildCopyLocked(&item{kind: kind, piece: p}), name)
	}
	l.zeroes.n = 0
	l.mu.Unlock()
	require.NoError(t, d.Close())
}

// A device that is closed, or killed, in the middle of a resync leaves the rest to the next one. The
// memory of copies stays for as long as something of them is on the wire.
func TestResyncGoesOnInTheNextRun(t *testing.T) {
	for name, killed := range map[string]bool{"closed": false, "killed": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testResyncGoesOnInTheNextRun(t, killed) })
		})
	}
}

func testResyncGoesOnInTheNextRun(t *testing.T, killed bool) {
	s := fakes(t, 2, rdmafake.Config{})
	network := s.network(1)
	d := s.slowly(t, 2, chunkSize)
	shadow := s.behind(t, d, network)
	time.Sleep(20 * time.Second)
	if killed {
		s.die(t, d)
	} else {
		require.NoError(t, d.Close())
		require.True(t, s[0].region.Superblock().Clean)
		require.False(t, s[1].region.Superblock().Clean, "it would be taken for a source")
	}
	require.Equal(t, persist.Member(0), s.record(0).F)
	require.True(t, s.record(1).Torn)
	d = s.dialImpatient(t, 2)
	s.inSync(t, d)
	require.True(t, bytes.Equal(shadow, s[1].region.Data()))
	backendtest.AllBack(t, d)
	require.NoError(t, d.Close())
}

// A barrier that a resync asks for may have nothing to cover on the source. Under native FLUSH it would
// have no work request whose completion ends it.
func TestEmptyBarrierHasAnAnswer(t *testing.T) {
	for _, c := range []struct {
		to   uint64
		want persist.Method
	}{{7, persist.MethodGPSPM}, {8, persist.MethodFlush}} {
		l := &lane{stream: &stream{}, leg: &leg{method: persist.MethodFlush}}
		l.pushBarrierLocked(1, 7, c.to, false)
		require.Equal(t, c.want, l.queue.back().method)
	}
}

// A chunk that a lost session had copied, or was about to, counts for nothing in the next one: the
// target may have forgotten it (mirror §5.4).
func TestResyncForgetsTheSessionBefore(t *testing.T) {
	synctest.Test(t, testResyncForgetsTheSessionBefore)
}

func testResyncForgetsTheSessionBefore(t *testing.T) {
	s := fakes(t, 2, rdmafake.Config{})
	d := s.slowly(t, 1, chunkSize)
	last := uint64(regionSize - chunkSize)
	d.core.copies.pieces[copiesAhead] = piece{index: copiesAhead, state: pieceCopy, stream: d.core.streams[0], start: last, off: last, end: regionSize}
	shadow := s.behind(t, d, s.network(1))
	time.Sleep(20 * time.Second)
	bits := make([]byte, regionSize/chunkSize/8)
	_, err := s[0].region.ReadBits(1, 0, bits)
	require.NoError(t, err)
	for i := range uint64(regionSize / chunkSize) {
		at := shadow[i*chunkSize:][:chunkSize]
		require.True(t, bits[i/8]&(1<<(i%8)) != 0 || bytes.Equal(at, s[1].region.Data()[i*chunkSize:][:chunkSize]), "chunk %d", i)
	}
	require.Less(t, s[0].region.BitsSet(1), uint64(regionSize/chunkSize), "none was cleared yet")
	require.NoError(t, d.Close())
}

// Before anything is copied to a member that lost its contents, the others know that it lacks all
// (mirror §3.6).
func TestAllBitsOfLostContents(t *testing.T) { synctest.Test(t, testAllBitsOfLostContents) }

func testAllBitsOfLostContents(t *testing.T) {
	s := fakes(t, 2, rdmafake.Config{})
	d := s.slowly(t, 1, chunkSize)
	c := backendtest.NewClient(t, d)
	s.network(1).Down()
	require.NoError(t, c.Do(c.Write(5*stripe, backendtest.Pattern(block, 4), 0), c.Flush()))
	require.EqualValues(t, 1, s[0].region.BitsSet(1))
	s.loseContents(t, 1)
	s.network(1).Up()
	require.Eventually(t, func() bool { return d.legs[1].resyncProgress().Total > 0 }, time.Minute, 10*time.Millisecond)
	require.Greater(t, s[0].region.BitsSet(1), uint64(regionSize/chunkSize/2))
	require.Equal(t, s[1].region.Superblock().Contents, s.record(0).Members[1].Contents)
	backendtest.AllBack(t, d)
	require.NoError(t, d.Close())
}

// A READ waits for an equal leg, although another one of F is there (mirror §3.7).
func TestReadsWaitForAnEqualLeg(t *testing.T) { synctest.Test(t, testReadsWaitForAnEqualLeg) }

func testReadsWaitForAnEqualLeg(t *testing.T) {
	s := fakesOf(t, 2, 2, rdmafake.Config{})
	s.die(t, s.dialImpatient(t, 1))
	s[1].region.Data()[regionSize-1] ^= 1
	d := s.slowly(t, 1, chunkSize)
	require.Equal(t, persist.Members(3), s.record(0).F)
	s.network(0).Down()
	require.Eventually(t, func() bool { return !d.legs[0].up.Load() }, time.Minute, 10*time.Millisecond)
	c := backendtest.NewClient(t, d)
	read := c.Read(regionSize-block, block, 0)
	c.Submit(read)
	time.Sleep(10 * time.Second)
	require.False(t, read.Completed())
	s.network(0).Up()
	require.NoError(t, c.Wait(read))
	require.Equal(t, s[0].region.Data()[regionSize-block:], read.Got)
	backendtest.AllBack(t, d)
	require.ErrorIs(t, d.Close(), ErrUnequal)
}

// A Close waits for the answer that a resync waits for: to give up the call would end the session of the
// source, which is to be closed.
func TestCloseWhileAResyncAsks(t *testing.T) { synctest.Test(t, testCloseWhileAResyncAsks) }

func testCloseWhileAResyncAsks(t *testing.T) {
	s := fakes(t, 2, rdmafake.Config{})
	d := s.dialImpatient(t, 1)
	c := backendtest.NewClient(t, d)
	s.network(1).Down()
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 4), 0), c.Flush()))
	s.network(0).Pause()
	s.network(1).Up()
	require.Eventually(t, d.legs[1].up.Load, time.Minute, 10*time.Millisecond)
	closed := make(chan error, 1)
	go func() { closed <- d.Close() }()
	time.Sleep(time.Second)
	s.network(0).Resume()
	require.NoError(t, <-closed)
	require.True(t, s[0].region.Superblock().Clean)
}
