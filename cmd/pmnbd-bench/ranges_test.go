package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A recorder is a connection that replies to everything at once.
type recorder struct {
	all    []request
	unread []int
}

func (r *recorder) send(rs []request) error {
	for _, q := range rs {
		r.all = append(r.all, q)
		r.unread = append(r.unread, q.slot)
	}
	return nil
}

func (r *recorder) recv() (int, error) {
	slot := r.unread[0]
	r.unread = r.unread[1:]
	return slot, nil
}

func (r *recorder) buffered() bool        { return len(r.unread) > 0 }
func (r *recorder) bound(time.Time) error { return nil }
func (r *recorder) Close() error          { return nil }

// No two writes before a FLUSH touch each other, with fewer, as many and more than the depth.
func TestFlushes(t *testing.T) {
	for _, ranges := range []int{1, rangesDepth, 2*rangesDepth + 1} {
		w := workload{cmds: []verb{cmdFlush}, depth: rangesDepth, conns: 1, block: 512, ranges: ranges}
		r := &recorder{}
		l := load{conn: r, work: w, area: extent{4096, part(1<<20, w)}}
		samples, err := l.flushes(0, 0, nil)
		require.NoError(t, err)
		require.Len(t, samples, 1)
		require.Equal(t, ranges, l.done)
		require.Len(t, r.all, ranges+1)
		require.Equal(t, cmdFlush, r.all[ranges].cmd)
		for i, q := range r.all[:ranges] {
			require.Equal(t, request{cmd: cmdWrite, slot: i % rangesDepth, off: 4096 + int64(i)*1024, len: 512}, q)
		}
	}
	require.Zero(t, part(1<<20, workload{conns: 1, block: 512, ranges: 1025}), "it would come around")
}
