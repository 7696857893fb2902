package target

import (
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/persist"
	"pmnbd/persist/region"
	"pmnbd/persist/region/regiontest"
	"pmnbd/persist/wire"
)

// Each part of a barrier that the CPU writes back is measured, and stays counted when its lane has
// ended.
func TestWriteBackLatency(t *testing.T) {
	s := serveWith(t, region.PathMemfd, regiontest.Medium{}, Config{})
	p := s.connect(t)
	p.open(alice)
	for seq := range uint64(3) {
		var ack wire.BarrierAck
		p.ask(&wire.Barrier{Seq: seq, Last: true, Ranges: []persist.Range{{Len: 4096}}}, &ack)
	}
	shot := s.server.Snapshot()[0]
	require.EqualValues(t, 3, shot.WriteBack.Count())
	require.Positive(t, shot.WriteBack.Sum())
	require.Zero(t, shot.Fdatasync.Count())
	require.NoError(t, s.server.Close())
	again := s.server.Snapshot()[0]
	require.EqualValues(t, 3, again.WriteBack.Count())
}
