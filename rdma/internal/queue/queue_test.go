package queue

import (
	"errors"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/rdma"
)

func done(id uint64, op rdma.Opcode) rdma.Completion { return rdma.Completion{ID: id, Op: op} }

// Completions leave in the order in which they came, and each retires its own queue up
// to the position that it was given.
func TestCompletions(t *testing.T) {
	var q Completions
	q.Init(2, 1)
	cs := make([]rdma.Completion, 2)
	for round := range uint64(5) { // the ring wraps
		n, err := q.Pop(cs)
		require.NoError(t, err)
		require.Zero(t, n)
		some, err := q.Ready()
		require.NoError(t, err)
		require.False(t, some)

		q.Push(done(1, rdma.OpWrite), 10*round+1)
		q.Push(done(2, rdma.OpRecv), 10*round+2)
		q.Push(done(3, rdma.OpRead), 10*round+3)
		some, err = q.Ready()
		require.NoError(t, err)
		require.True(t, some)
		n, err = q.Pop(cs)
		require.NoError(t, err)
		require.Equal(t, []rdma.Completion{done(1, rdma.OpWrite), done(2, rdma.OpRecv)}, cs[:n])
		require.Equal(t, 10*round+1, q.Sends(), "not the Read's before it is taken")
		require.Equal(t, 10*round+2, q.Recvs())
		n, err = q.Pop(cs)
		require.NoError(t, err)
		require.Equal(t, []rdma.Completion{done(3, rdma.OpRead)}, cs[:n])
		require.Equal(t, 10*round+3, q.Sends())
		require.True(t, q.Empty())
	}
}

// The first failure stays. What completed before it can be taken, and nothing follows it.
func TestFailure(t *testing.T) {
	var q Completions
	q.Init(2, 0)
	require.NoError(t, q.Err())
	q.Push(done(1, rdma.OpSend), 1)
	first := errors.New("first")
	require.True(t, q.Fail(first))
	require.False(t, q.Fail(errors.New("second")))
	q.Push(done(2, rdma.OpSend), 2)
	require.Equal(t, first, q.Err())

	some, err := q.Ready()
	require.NoError(t, err)
	require.True(t, some)
	cs := make([]rdma.Completion, 2)
	n, err := q.Pop(cs)
	require.NoError(t, err)
	require.Equal(t, []rdma.Completion{done(1, rdma.OpSend)}, cs[:n])
	n, err = q.Pop(cs)
	require.Equal(t, first, err)
	require.Zero(t, n)
	some, err = q.Ready()
	require.Equal(t, first, err)
	require.False(t, some)
}

func TestComplete(t *testing.T) {
	got, err := Complete(rdma.ConnConfig{}, MaxDepth, 8192)
	require.NoError(t, err)
	require.Equal(t, rdma.ConnConfig{MaxSendWR: 128, MaxRecvWR: 128, MaxReads: 16, MaxReadsIn: 16}, got)
	most := rdma.ConnConfig{PrivateData: make([]byte, rdma.MaxPrivateData), MaxSendWR: 200, MaxRecvWR: 200, MaxReads: 20, MaxReadsIn: 20}
	got, err = Complete(most, 200, 20)
	require.NoError(t, err)
	require.Equal(t, most, got)
	for name, cfg := range map[string]rdma.ConnConfig{
		"MaxSendWR is 201":  {MaxSendWR: 201},
		"MaxSendWR is -1":   {MaxSendWR: -1},
		"MaxRecvWR is 201":  {MaxRecvWR: 201},
		"MaxReads is 21":    {MaxReads: 21},
		"MaxReadsIn is -20": {MaxReadsIn: -20},
		"57 bytes":          {PrivateData: make([]byte, rdma.MaxPrivateData+1)},
	} {
		_, err := Complete(cfg, 200, 20)
		require.ErrorIs(t, err, rdma.ErrNotSupported)
		require.ErrorContains(t, err, name)
	}
}

func TestCheckLocal(t *testing.T) {
	const size = 4096
	r := &rdma.MemoryRegion{}
	for name, tt := range map[string]struct {
		sge        rdma.SGE
		registered bool
		need       rdma.Access
		ok         bool
	}{
		"nothing":          {rdma.SGE{}, false, rdma.LocalWrite, true},
		"all of it":        {rdma.SGE{Region: r, Len: size}, true, rdma.LocalWrite, true},
		"its end":          {rdma.SGE{Region: r, Off: size}, true, 0, true},
		"no region":        {rdma.SGE{Len: 1}, false, 0, false},
		"not registered":   {rdma.SGE{Region: r, Len: 1}, false, 0, false},
		"empty, unknown":   {rdma.SGE{Region: r}, false, 0, false},
		"past the end":     {rdma.SGE{Region: r, Off: 1, Len: size}, true, 0, false},
		"behind the end":   {rdma.SGE{Region: r, Off: size + 1}, true, 0, false},
		"the offset wraps": {rdma.SGE{Region: r, Off: math.MaxUint64, Len: 2}, true, 0, false},
		"a missing right":  {rdma.SGE{Region: r, Len: 1}, true, rdma.RemoteRead, false},
	} {
		t.Run(name, func(t *testing.T) {
			err := CheckLocal(tt.sge, tt.registered, size, rdma.LocalWrite, tt.need)
			if tt.ok {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, rdma.ErrLocalAccess)
			}
		})
	}
}
