package nbd

import (
	"crypto/tls"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"pmnbd/backend"
	"pmnbd/backend/backendtest"
	"pmnbd/nbd/wire"
)

// Each READ, WRITE and FLUSH is measured once, whether it succeeded or not, and stays counted when
// its client has left.
func TestLatencyCounts(t *testing.T) {
	f := serve(t, newMem(t, 1<<20))
	counted := func(l *Latencies) [4]uint64 {
		return [4]uint64{l.Read.Count(), l.Write.Count(), l.Flush.Count(), l.FUA.Count()}
	}
	first := f.client()
	data := backendtest.Pattern(4096, 1)
	write(t, first, 0, data) // the server counts a client only behind its last answer to the negotiation
	second := f.enterRaw()
	read(t, first, 0, 100)
	read(t, first, 0, 200000) // in parts, if the read memory is short
	first.Write(1, 0, data, wire.CmdFlagFUA)
	do(t, first, 0)
	first.Write(1, 1<<20, data, 0)
	do(t, first, backend.ENOSPC)
	first.Flush(1)
	do(t, first, 0)
	for _, r := range []wire.Request{{Command: 77}, {Command: wire.CmdTrim, Len: 512}, {Command: wire.CmdWriteZeroes, Len: 512}, {Command: wire.CmdWriteZeroes, Len: 1024, Flags: wire.CmdFlagFUA}} {
		_, err := second.Write(wire.AppendRequest(nil, r))
		require.NoError(t, err)
		recvReply(t, second)
	}
	s := f.srv.Snapshot()[0]
	require.Equal(t, [4]uint64{2, 2, 1, 2}, counted(&s.Latency))
	require.Equal(t, [4]uint64{2, 2, 1, 1}, counted(&s.Clients[0].Latency), "the oldest first")
	require.Equal(t, [4]uint64{0, 0, 0, 1}, counted(&s.Clients[1].Latency))
	require.EqualValues(t, 2, s.Clients[1].Number)
	require.EqualValues(t, 1, s.Clients[1].Commands.Trim.Requests)
	require.Contains(t, s.Clients[0].Name, "of /")

	_, err := second.Write(wire.AppendRequest(nil, wire.Request{Command: wire.CmdDisc}))
	require.NoError(t, err)
	closed(t, second)
	s = f.srv.Snapshot()[0]
	require.Len(t, s.Clients, 1)
	require.Equal(t, [4]uint64{2, 2, 1, 2}, counted(&s.Latency))
}

// The time in which the device had a request is within what is measured, and that within the time
// in which its client waited. A client that gives up leaves a trace, too.
func TestLatencyOfWait(t *testing.T) {
	dev := newGated(t, 1<<20)
	f := serve(t, dev)
	for name, stays := range map[string]bool{"the client stays": true, "the client gives up": false} {
		t.Run(name, func(t *testing.T) {
			raw := f.enterRaw()
			before := f.srv.Snapshot()[0].Latency.Flush
			sent := time.Now()
			_, err := raw.Write(wire.AppendRequest(nil, wire.Request{Command: wire.CmdFlush}))
			require.NoError(t, err)
			<-dev.arrived
			has := time.Now()
			if !stays {
				require.NoError(t, raw.Close())
			}
			held := time.Since(has)
			dev.through <- struct{}{}
			if stays {
				recvReply(t, raw)
				require.NoError(t, raw.Close())
			}
			require.Eventually(t, func() bool { return len(f.srv.Snapshot()[0].Clients) == 0 }, patience, time.Millisecond)
			waited := time.Since(sent)
			after := f.srv.Snapshot()[0].Latency.Flush
			took := after.Since(&before)
			require.EqualValues(t, 1, took.Count())
			require.GreaterOrEqual(t, took.Sum(), held)
			require.LessOrEqual(t, took.Sum(), waited)
		})
	}
}

// Handshakes are measured, those that fail as well.
func TestLatencyOfTLS(t *testing.T) {
	f := serveWith(t, Config{TLS: serverTLS(tls.NoClientCert)}, newMem(t, 1<<20))
	nc := f.raw()
	greet(t, nc, wire.ClientFixedNewstyle)
	startTLS(t, nc, clientTLS())
	took := f.srv.TLSHandshakes()
	require.LessOrEqual(t, took.Count(), uint64(1)) // the server may not have seen the client's last message
	f.shutdown()
	took = f.srv.TLSHandshakes()
	require.EqualValues(t, 1, took.Count())
	require.Positive(t, took.Sum())
}
