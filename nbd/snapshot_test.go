package nbd

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/backend"
	"pmnbd/backend/backendtest"
	"pmnbd/nbd/wire"
)

func TestSnapshot(t *testing.T) {
	f := serve(t, newMem(t, 1<<20))
	snapshot := func() Snapshot {
		all := f.srv.Snapshot()
		require.Len(t, all, 1)
		require.Len(t, all[0].Clients, all[0].Connections)
		s := all[0]
		s.Latency, s.Clients = Latencies{}, nil // TestLatency looks at them
		return s
	}
	require.Equal(t, Snapshot{Name: "disk"}, snapshot())

	c := f.client()
	data := backendtest.Pattern(4096, 1)
	write(t, c, 0, data)
	read(t, c, 0, 100)
	c.Write(1, 0, data, wire.CmdFlagFUA)
	do(t, c, 0)
	c.Write(1, 1<<20, data, 0)
	do(t, c, backend.ENOSPC)
	c.Flush(1)
	do(t, c, 0)
	want := Snapshot{Name: "disk", Connections: 1, Entered: 1, Commands: Commands{
		Read:  Count{Requests: 1, Bytes: 100},
		Write: Count{Requests: 3, Bytes: 8192, FUA: 1, Errors: 1},
		Flush: Count{Requests: 1},
	}}
	require.Equal(t, want, snapshot())

	// The counters of a connection stay when it leaves.
	raw := f.enterRaw()
	for _, r := range []wire.Request{
		{Command: 77, Len: 1},
		{Command: wire.CmdCache, Len: 4096},
		{Command: wire.CmdBlockStatus, Len: 1},
		{Command: wire.CmdTrim, Len: 512},
		{Command: wire.CmdWriteZeroes, Len: 1024, Flags: wire.CmdFlagFUA},
	} {
		_, err := raw.Write(wire.AppendRequest(nil, r))
		require.NoError(t, err)
		recvReply(t, raw)
	}
	_, err := raw.Write(wire.AppendRequest(nil, wire.Request{Command: wire.CmdDisc}))
	require.NoError(t, err)
	closed(t, raw)
	want.Entered = 2
	want.Commands.Other = Count{Requests: 1, Errors: 1}
	want.Commands.Cache = Count{Requests: 1, Bytes: 4096}
	want.Commands.BlockStatus = Count{Requests: 1, Errors: 1}
	want.Commands.Trim = Count{Requests: 1, Bytes: 512}
	want.Commands.WriteZeroes = Count{Requests: 1, Bytes: 1024, FUA: 1}
	require.Equal(t, want, snapshot())

	b, err := json.Marshal(want)
	require.NoError(t, err)
	var again Snapshot
	require.NoError(t, json.Unmarshal(b, &again))
	require.Equal(t, want, again)
}

// Snapshot disturbs no request, and its counters only grow.
func TestSnapshotWhileServing(t *testing.T) {
	f := serve(t, newMem(t, 1<<20))
	stop, looked := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(looked)
		for last := uint64(0); ; {
			n := f.srv.Snapshot()[0].Commands.Write.Requests
			if n < last {
				t.Errorf("%d requests after %d", n, last)
			}
			last = n
			select {
			case <-stop:
				return
			default:
			}
		}
	}()
	data := backendtest.Pattern(512, 1)
	for range 10 {
		c := f.client()
		for range 20 {
			write(t, c, 0, data)
		}
		require.NoError(t, c.Disc())
	}
	close(stop)
	<-looked
	require.EqualValues(t, 200, f.srv.Snapshot()[0].Commands.Write.Requests)
}
