package target

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pmnbd/persist"
	"pmnbd/persist/region"
	"pmnbd/persist/wire"
)

func TestSnapshot(t *testing.T) {
	syncing := error(nil)
	s := serveRegion(t, onDisk(t), func(fd int) error {
		if syncing != nil {
			return syncing
		}
		return unix.Fdatasync(fd)
	}, Config{})
	snapshot := func() RegionSnapshot {
		all := s.server.Snapshot()
		require.Len(t, all, 1)
		b, err := json.Marshal(all)
		require.NoError(t, err)
		var again []RegionSnapshot
		require.NoError(t, json.Unmarshal(b, &again))
		require.Equal(t, all, again)
		return all[0]
	}

	free := snapshot()
	require.Equal(t, RegionSnapshot{
		Name: "log", Path: s.path, UUID: s.region.UUID(), Class: "file", Size: size, Epoch: 1, Clean: true, Bad: []PlaceSnapshot{}, Syncs: free.Syncs, Fdatasync: free.Fdatasync,
	}, free)

	p := s.connect(t)
	o := p.open(alice)
	held := snapshot()
	require.True(t, held.Held)
	require.False(t, held.Clean)
	require.Equal(t, o.Epoch, held.Epoch)
	require.Equal(t, &OwnerSnapshot{ID: alice.ID, Nonce: alice.Nonce}, held.Owner)
	require.InDelta(t, Lease.Seconds(), held.LeaseLeft, Lease.Seconds()/2)
	require.Equal(t, "gpspm", held.Session.Method)
	require.Equal(t, []MethodSnapshot{
		{"flush", false, "only class pmem or protected is durable without the target's CPU"},
		{"apm", false, "only class pmem or protected is durable without the target's CPU"},
		{"gpspm", true, "sound"},
	}, held.Session.Methods)
	require.Len(t, held.Session.Lanes, 1)
	require.NotEmpty(t, held.Session.Lanes[0].Peer)

	require.NoError(t, p.write(o, 1, 0, []byte("hello")))
	written := snapshot()
	require.EqualValues(t, 1, written.Barriers)
	require.Equal(t, held.Syncs+1, written.Syncs)
	require.Equal(t, written.Syncs, written.Fdatasync.Count())
	require.Zero(t, written.WriteBack.Count())

	var closed wire.Closed
	p.ask(&wire.Close{Epoch: o.Epoch}, &closed)
	closedNow := snapshot()
	require.False(t, closedNow.Held)
	require.True(t, closedNow.Clean)
	require.Nil(t, closedNow.Session)
	require.Zero(t, closedNow.LeaseLeft)
	require.NotNil(t, closedNow.Owner, "the last owner")

	// The connection breaks, and the lease continues.
	p = s.connect(t)
	o = p.open(bob)
	c := s.server.served()["log"].session.conn
	require.NoError(t, p.conn.Close())
	<-c.done
	silent := snapshot()
	require.True(t, silent.Held)
	require.Empty(t, silent.Session.Lanes)
	require.Positive(t, silent.LeaseLeft)

	require.Nil(t, silent.Member)
	require.NoError(t, s.region.Update(func(sb *region.Superblock) error { sb.Life = 3; return nil }))
	require.NoError(t, s.region.SetRecord(memberOf(s.region, 2, 5, memberA|memberB), 0))
	require.NoError(t, s.region.ClearBits(2, []persist.Range{{Len: 6 * chunk}}))
	require.Equal(t, &MemberSnapshot{
		Mirror: uuid.UUID{0x5e}, Member: "A", Generation: "2.5", Life: 3, InSync: "AB", MinCopies: 1,
		Others: []OtherSnapshot{{Member: "B", UUID: uuid.UUID{0xb}}, {Member: "C", UUID: uuid.UUID{0xc}, Behind: size - 6*chunk}},
	}, snapshot().Member)

	syncing = errors.New("medium error")
	require.Error(t, s.region.Flush([]persist.Range{{Len: s.region.Size()}}))
	failed := snapshot()
	require.True(t, failed.Failed)
	require.Contains(t, failed.Failure, "medium error")
}
