package iwarp

import (
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"pmnbd/rdma"
	"pmnbd/rdma/rdmatest"
)

// ends is a connected pair on which the test itself waits and polls.
type ends struct {
	a, b   *conn
	ra, rb *rdma.MemoryRegion
}

func connect(t testing.TB, size int, cfg rdma.ConnConfig) *ends {
	t.Helper()
	l, err := New(Config{}).Listen(t.Context(), "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	e := &ends{}
	da, db := newDomain(Config{Revision: 2}), newDomain(Config{})
	e.ra, err = da.Register(rdmatest.Memory(t, size), rdmatest.All)
	require.NoError(t, err)
	e.rb, err = db.Register(rdmatest.Memory(t, size), rdmatest.All)
	require.NoError(t, err)
	dialled := make(chan error, 1)
	go func() {
		c, err := da.Dial(t.Context(), l.Addr(), cfg, nil)
		if err == nil {
			e.a = c.(*conn)
		}
		dialled <- err
	}()
	req, err := l.Accept()
	require.NoError(t, err)
	c, err := req.Accept(db, cfg, nil)
	require.NoError(t, err)
	e.b = c.(*conn)
	require.NoError(t, <-dialled)
	t.Cleanup(func() {
		require.NoError(t, e.a.Close())
		require.NoError(t, e.b.Close())
	})
	return e
}

func at(r *rdma.MemoryRegion, off uint64) rdma.Remote {
	return rdma.Remote{Key: r.Key, Addr: r.Base + off}
}

// next waits for c's next completion, which must have id.
func next(t testing.TB, c *conn, id uint64) {
	t.Helper()
	var cs [1]rdma.Completion
	for {
		n, err := c.Poll(cs[:])
		if n == 0 && err == nil {
			err = c.Wait()
		}
		if err != nil {
			t.Fatal(err)
		}
		if n == 1 {
			if cs[0].ID != id {
				t.Fatalf("completion %d, not %d", cs[0].ID, id)
			}
			return
		}
	}
}

func post(t testing.TB, c *conn, wrs []rdma.WorkRequest) {
	t.Helper()
	if n, err := c.Post(wrs); n != len(wrs) || err != nil {
		t.Fatal(n, err)
	}
}

// counts says what a stream of FPDUs consists of. bytes includes headers and trailers. A
// message counts when its last FPDU is there.
type counts struct {
	fpdus, bytes                                    int
	writes, readRequests, responses, sends, endings int
}

func count(t testing.TB, stream []byte) (c counts) {
	t.Helper()
	for len(stream) > 0 {
		u, n, bad := nextFPDU(stream, true)
		require.Nil(t, bad)
		require.NotZero(t, n, "half an FPDU")
		stream = stream[n:]
		c.fpdus++
		c.bytes += n
		var s segment
		require.Nil(t, decodeSegment(u, &s))
		if !s.Last {
			continue
		}
		switch s.Op {
		case opWrite:
			c.writes++
		case opReadRequest:
			c.readRequests++
		case opReadResponse:
			c.responses++
		case opTerminate:
			c.endings++
		default:
			c.sends++
		}
	}
	return c
}

// arrive does what Wait does until c has a completion, which must have id. It returns
// what it read from the socket, and in how many reads.
func arrive(t testing.TB, c *conn, id uint64) (stream []byte, reads int) {
	t.Helper()
	c.waiting.Lock()
	defer c.waiting.Unlock()
	c.rx.buf = make([]byte, receiveBuffer)
	for c.cq.Empty() {
		n, err := c.sock.Read(c.rx.buf[c.rx.end:])
		require.NoError(t, err)
		reads++
		stream = append(stream, c.rx.buf[c.rx.end:][:n]...)
		c.rx.end += n
		c.receive()
	}
	next(t, c, id)
	return stream, reads
}

// A batch is one FPDU for each request and one system call, an acknowledgement is one FPDU,
// and one read takes everything that has arrived. The device relies on that.
func TestCounts(t *testing.T) {
	e := connect(t, 1<<20, rdma.ConnConfig{})
	var batch []rdma.WorkRequest
	for i := range uint64(32) {
		batch = append(batch, rdma.WorkRequest{Op: rdma.OpWrite, Local: rdma.SGE{Region: e.ra, Off: i << 12, Len: 4096}, Remote: at(e.rb, i<<12)})
	}
	batch = append(batch, rdma.WorkRequest{Op: rdma.OpSend, Inline: []byte("barrier")})
	recv := []rdma.WorkRequest{{ID: 9, Local: rdma.SGE{Region: e.rb, Off: 1 << 19, Len: 64}}}
	require.NoError(t, e.b.PostRecv(recv))
	post(t, e.a, batch)
	require.EqualValues(t, 1, e.a.tx.out.Calls())
	stream, reads := arrive(t, e.b, 9)
	require.Equal(t, counts{fpdus: 33, bytes: 32*(2+14+4096+4) + (2 + 18 + 7 + 1 + 4), writes: 32, sends: 1}, count(t, stream))
	require.EqualValues(t, e.a.tx.out.Written(), len(stream))
	require.LessOrEqual(t, reads, 4, "loopback delivers it in a few pieces at most")

	recv[0].Local.Region = e.ra
	require.NoError(t, e.a.PostRecv(recv))
	post(t, e.b, []rdma.WorkRequest{{Op: rdma.OpSend, Inline: []byte("ack")}})
	stream, reads = arrive(t, e.a, 9)
	require.Equal(t, counts{fpdus: 1, bytes: 2 + 18 + 3 + 1 + 4, sends: 1}, count(t, stream))
	require.EqualValues(t, 1, e.b.tx.out.Calls())
	require.Equal(t, 1, reads)
	require.EqualValues(t, 32*4096, e.b.Arrived(), "messages do not count")
	require.Zero(t, e.a.Arrived())
}

// Arrived counts parts of the answer to a Read before the Read is complete.
func TestPartsArrive(t *testing.T) {
	const size = 8 << 20
	e := connect(t, size, rdma.ConnConfig{})
	go func() { _ = e.b.Wait() }() // it answers until the connection ends
	parts := false
	for read := uint64(1); !parts; read++ { // this goroutine may look too late
		before := e.a.Arrived()
		post(t, e.a, []rdma.WorkRequest{{ID: read, Op: rdma.OpRead, Local: rdma.SGE{Region: e.ra, Len: size}, Remote: at(e.rb, 0)}})
		waited := make(chan error, 1)
		go func() { waited <- e.a.Wait() }()
		for now := before; now < before+size; now = e.a.Arrived() {
			parts = parts || now > before
			runtime.Gosched()
		}
		require.NoError(t, <-waited)
		next(t, e.a, read)
		require.Equal(t, read*size, e.a.Arrived())
	}
}

func TestNothingIsAllocatedPerRequest(t *testing.T) {
	e := connect(t, 1<<20, rdma.ConnConfig{})
	wrs := func(op rdma.Opcode) []rdma.WorkRequest {
		var out []rdma.WorkRequest
		for i := range uint64(8) {
			out = append(out, rdma.WorkRequest{ID: 1, Op: op, Local: rdma.SGE{Region: e.ra, Off: i << 16, Len: 40_000}, Remote: at(e.rb, i<<16)})
		}
		return out
	}
	recv := []rdma.WorkRequest{{ID: 2, Local: rdma.SGE{Region: e.rb, Off: 0, Len: 40_000}}}
	ack := []rdma.WorkRequest{{ID: 2, Local: rdma.SGE{Region: e.ra, Off: 0, Len: 64}}}
	inline := []rdma.WorkRequest{{ID: 3, Op: rdma.OpSend, Inline: []byte("ack"), Signaled: true}}
	last := []rdma.WorkRequest{{ID: 1, Op: rdma.OpSend, Signaled: true, Local: rdma.SGE{Region: e.ra, Len: 40_000}}}

	writes := wrs(rdma.OpWrite)
	reads := wrs(rdma.OpRead)
	rounds := map[string]func(){
		"writes and a send, answered": func() {
			if e.b.PostRecv(recv) != nil || e.a.PostRecv(ack) != nil {
				t.Fatal("no receive")
			}
			post(t, e.a, writes)
			post(t, e.a, last)
			next(t, e.b, 2)
			post(t, e.b, inline)
			next(t, e.b, 3)
			// What the socket does not take at once completes after the answer.
			var cs [2]rdma.Completion
			for n := 0; n < 2; {
				m, err := e.a.Poll(cs[:])
				if m == 0 && err == nil {
					err = e.a.Wait()
				}
				if err != nil {
					t.Fatal(err)
				}
				n += m
			}
		},
		"reads": func() {
			post(t, e.a, reads)
			for range reads {
				next(t, e.a, 1)
			}
		},
	}
	t.Run("writes and a send, answered", func(t *testing.T) {
		rounds["writes and a send, answered"]()
		require.Zero(t, testing.AllocsPerRun(50, rounds["writes and a send, answered"]))
	})
	t.Run("reads", func(t *testing.T) {
		done := make(chan struct{})
		go func() { // the responder answers inside Wait
			defer close(done)
			_ = e.b.Wait()
		}()
		rounds["reads"]()
		require.Zero(t, testing.AllocsPerRun(50, rounds["reads"]))
		require.NoError(t, e.b.Close())
		<-done
	})
}

// A peer that does not read stalls its own connection and blocks nobody. Post returns, the
// FPDUs that are built are bounded, the writer goes on when there is room, and the
// completions that it makes wake Wait.
func TestPeerThatDoesNotRead(t *testing.T) {
	const count, size = 64, 1 << 20
	e := connect(t, size, rdma.ConnConfig{})
	var wrs []rdma.WorkRequest
	for i := range uint64(count) {
		wrs = append(wrs, rdma.WorkRequest{ID: i, Op: rdma.OpWrite, Signaled: i == count-1, Local: rdma.SGE{Region: e.ra, Len: size}, Remote: at(e.rb, 0)})
	}
	post(t, e.a, wrs)
	e.a.mu.Lock()
	built := e.a.tx.out.Queued() - e.a.tx.out.Written()
	e.a.mu.Unlock()
	require.NotZero(t, built, "the socket is full")
	require.LessOrEqual(t, built, uint64(maxBuilt+maxFPDU))

	woken := make(chan error, 1)
	go func() { woken <- e.a.Wait() }()
	done := make(chan struct{})
	go func() { // now it reads
		defer close(done)
		_ = e.b.Wait()
	}()
	require.NoError(t, <-woken)
	next(t, e.a, count-1)
	require.NoError(t, e.a.Close())
	<-done
}

// Close does not wait for a peer that does not read.
func TestCloseWithABacklog(t *testing.T) {
	const size = 64 << 20
	e := connect(t, size, rdma.ConnConfig{})
	post(t, e.a, []rdma.WorkRequest{{Op: rdma.OpWrite, Local: rdma.SGE{Region: e.ra, Len: size}, Remote: at(e.rb, 0)}})
	require.NoError(t, e.a.Close())
	_, err := e.a.Post(nil)
	require.ErrorIs(t, err, rdma.ErrClosed)
}

// A caller that polls only what its own Posts complete does not keep Wait from reading.
func TestWaitReadsThoughCompletionsAreThere(t *testing.T) {
	e := connect(t, 4096, rdma.ConnConfig{})
	require.NoError(t, e.b.PostRecv([]rdma.WorkRequest{{ID: 5}}))
	require.NoError(t, e.a.PostRecv([]rdma.WorkRequest{{ID: 5}}))
	post(t, e.a, []rdma.WorkRequest{{Op: rdma.OpSend}})
	next(t, e.b, 5)
	post(t, e.b, []rdma.WorkRequest{{Op: rdma.OpSend}})
	deadline := time.Now().Add(30 * time.Second)
	var cs [1]rdma.Completion
	for cs[0].Op != rdma.OpRecv {
		require.True(t, time.Now().Before(deadline))
		post(t, e.a, []rdma.WorkRequest{{Op: rdma.OpWrite, Signaled: true}})
		require.NoError(t, e.a.Wait())
		_, err := e.a.Poll(cs[:])
		require.NoError(t, err)
	}
}

// Deregistering a region while a Read of it is being answered ends the connection.
func TestDeregisterUnderARead(t *testing.T) {
	const size = 64 << 20
	e := connect(t, size, rdma.ConnConfig{})
	post(t, e.a, []rdma.WorkRequest{{Op: rdma.OpRead, Local: rdma.SGE{Region: e.ra, Len: size}, Remote: at(e.rb, 0)}})
	aFailed, bFailed := make(chan error, 1), make(chan error, 1)
	go func() { bFailed <- e.b.Wait() }()
	for sent := uint64(0); sent == 0; { // until the first part is under way, which nobody reads
		e.b.mu.Lock()
		sent = e.b.tx.out.Queued()
		e.b.mu.Unlock()
	}
	require.NoError(t, e.b.d.Deregister(e.rb))
	go func() { aFailed <- e.a.Wait() }()
	require.ErrorIs(t, <-aFailed, rdma.ErrRemoteAccess)
	require.NoError(t, e.a.Close())
	require.ErrorIs(t, <-bFailed, rdma.ErrLost)
}

// When a write fails, the reason is what the peer sent before it closed, not the error of the
// write.
func TestWriteFails(t *testing.T) {
	terminate := appendTerminate(appendUntagged(nil, opTerminate, true, queueTerminate, 1, 0), &badSTag, nil)
	for name, tt := range map[string]struct {
		last []byte
		want error
	}{
		"silently":           {tagged(opWrite, true, 0, 0, ""), rdma.ErrLost},
		"behind a Terminate": {terminate, rdma.ErrRemoteAccess},
	} {
		t.Run(name, func(t *testing.T) {
			p := newRawPeer(t, rdma.ConnConfig{}, hello)
			p.send(tagged(opWrite, true, 0, 0, "")) // so that c may send
			post(t, p.c, []rdma.WorkRequest{{ID: 1, Op: rdma.OpSend, Signaled: true}})
			next(t, p.c, 1)
			p.send(tt.last)
			require.NoError(t, p.Close()) // the Send is unread, so this is a reset
			write := []rdma.WorkRequest{{Op: rdma.OpWrite, Signaled: true}}
			for p.c.tx.err == nil { // only this goroutine uses p.c
				_, err := p.c.Post(write)
				require.NoError(t, err)
				_, err = p.c.Poll(make([]rdma.Completion, 1))
				require.NoError(t, err)
			}
			require.ErrorIs(t, p.c.Wait(), tt.want)
			_, err := p.c.Post(write)
			require.ErrorIs(t, err, tt.want)
		})
	}
}
