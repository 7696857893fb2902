package nbd

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pmnbd/backend/backendtest"
	"pmnbd/internal/sockio"
	"pmnbd/nbd/client"
	"pmnbd/nbd/wire"
)

// A looking stream counts the calls after which a connection looks at the clock.
type looking struct {
	sockio.Stream
	looks atomic.Int64
}

func (s *looking) Read(p []byte) (int, error) {
	n, err := s.Stream.Read(p)
	s.look(n)
	return n, err
}

func (s *looking) TryRead(p []byte) (int, error) {
	n, err := s.Stream.TryRead(p)
	s.look(n)
	return n, err
}

func (s *looking) look(n int) {
	if n > 0 {
		s.looks.Add(1)
	}
}

func (s *looking) Flush(q *sockio.Queue) error {
	s.looks.Add(1)
	return s.Stream.Flush(q)
}

// used returns the CPU time of the process, or of this thread.
func used(b *testing.B, clock int32) time.Duration {
	b.Helper()
	var ts unix.Timespec
	require.NoError(b, unix.ClockGettime(clock, &ts))
	return time.Duration(ts.Nano())
}

// BenchmarkRecording shows what it costs to measure how long requests take (latency.go), in rounds that
// alternate: requests at depth 32, and then what the server has done to record these, alone. The CPU time of
// the client, which has a thread of its own, counts for nothing. The device costs one copy: with a target
// behind it, a request costs several times as much, and the share is less.
func BenchmarkRecording(b *testing.B) {
	const depth, batches, size = 32, 256, 4096
	for _, bm := range []struct {
		name string
		op   func(c *client.Client, tag uint32, off uint64, data []byte)
	}{
		{"write-qd32", func(c *client.Client, tag uint32, off uint64, data []byte) { c.Write(tag, off, data, 0) }},
		{"read-qd32", func(c *client.Client, tag uint32, off uint64, data []byte) { c.Read(tag, off, data) }},
	} {
		b.Run(bm.name, func(b *testing.B) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			f := serve(b, newMem(b, 64<<20))
			c := f.client()
			data := backendtest.Pattern(size, 1)
			batch := func() {
				for tag := range uint32(depth) {
					bm.op(c, tag, uint64(tag)*size, data)
				}
				exchange(b, c, depth)
			}
			batch()
			served, counted := f.counted(b)
			var alone Latencies
			rq := &request{command: wire.CmdWrite}
			var server, recording time.Duration
			requests := 0
			for b.Loop() {
				before, own, looked := used(b, unix.CLOCK_PROCESS_CPUTIME_ID), used(b, unix.CLOCK_THREAD_CPUTIME_ID), counted.looks.Load()
				for range batches {
					batch()
				}
				server += used(b, unix.CLOCK_PROCESS_CPUTIME_ID) - before - (used(b, unix.CLOCK_THREAD_CPUTIME_ID) - own)
				requests += batches * depth
				looks := counted.looks.Load() - looked
				own = used(b, unix.CLOCK_THREAD_CPUTIME_ID)
				var now time.Duration
				for range looks {
					now = served.now()
				}
				for i := range batches * depth {
					note(&alone, rq, now+time.Duration(i)<<8) // several buckets
				}
				recording += used(b, unix.CLOCK_THREAD_CPUTIME_ID) - own
			}
			require.EqualValues(b, requests, alone.Write.Count())
			b.ReportMetric(0, "ns/op") // of a round, which says nothing
			b.ReportMetric(float64(server.Nanoseconds())/float64(requests), "server-ns/request")
			b.ReportMetric(float64(recording.Nanoseconds())/float64(requests), "recording-ns/request")
			b.ReportMetric(float64(counted.looks.Load())/float64(requests), "looks/request")
			b.ReportMetric(100*float64(recording)/float64(server), "%")
		})
	}
}

// counted has the only connection, which waits for a request, count from now on.
func (f *fixture) counted(b *testing.B) (*conn, *looking) {
	b.Helper()
	f.srv.mu.Lock()
	defer f.srv.mu.Unlock()
	require.Len(b, f.srv.conns, 1)
	for c := range f.srv.conns {
		s := &looking{Stream: c.sock}
		c.sock = s
		return c, s
	}
	return nil, nil
}
