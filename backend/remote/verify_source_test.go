package remote

import (
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/backend/backendtest"
	"pmnbd/persist"
	"pmnbd/rdma/rdmafake"
)

// A Verify asks the session of its source that was there when it began, and no later one: before that
// the source may have left F, and lack what the others have. A copy from it would undo their writes.
func TestVerifyEndsWithItsSourceSession(t *testing.T) {
	s := fakes(t, 2, rdmafake.Config{})
	d := s.dial(t, 1)
	c := backendtest.NewClient(t, d)
	k := d.core.copies
	v := &verification{copies: k, from: d.legs[0], copying: true, size: d.info.Size, members: 3, found: make(map[uint64]*Difference)}
	r := v.newPart(d.legs[1], k.pieces[2*copiesAhead:][:verifyAhead])
	k.core.commit.mu.Lock()
	v.bindLocked()
	k.core.commit.mu.Unlock()
	lane := d.legs[1].lanes[0]
	push := func() bool {
		p := &r.pieces[0]
		p.stream, p.start, p.off, p.end = lane.stream, 0, 0, verifyChunk
		lane.mu.Lock()
		defer lane.mu.Unlock()
		lane.copying = r
		defer func() { lane.copying = nil }()
		if !p.pushLocked(r, pieceCompare) {
			return false
		}
		lane.queue.clear() // nothing of it is to be sent
		d.legs[0].lanes[0].queue.clear()
		p.stream.forgetLocked(p)
		p.atSource, p.atTarget = false, false
		return true
	}
	require.True(t, v.holds())
	require.True(t, push())
	s.network(0).Cut()
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0), c.Flush()), "the source is back")
	require.True(t, d.legs[0].up.Load())
	require.False(t, push())
	require.False(t, v.holds())
	require.NoError(t, d.Close())
}

// Each chunk counts once, however many members differ there, and however often it is compared; those
// that are not named, too.
func TestVerifyCountsChunksOnce(t *testing.T) {
	const chunks = maxDifferences + 10
	v := &verification{from: &leg{slot: 0}, size: chunks * verifyChunk, members: persist.Members(7), differs: make([]byte, chunkBits(chunks*verifyChunk)), found: make(map[uint64]*Difference)}
	for range 2 {
		for slot := 1; slot < 3; slot++ {
			r := &resync{leg: &leg{slot: slot}}
			for i := range uint64(chunks) {
				v.differ(r, &piece{off: i * verifyChunk, end: (i + 1) * verifyChunk})
			}
		}
	}
	found := v.sofar(true)
	require.Equal(t, chunks, found.Different)
	require.Len(t, found.Differences, maxDifferences)
}
