package remote

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"pmnbd/backend/backendtest"
	"pmnbd/internal/mirror"
	"pmnbd/persist"
	"pmnbd/persist/wire"
	"pmnbd/rdma"
	"pmnbd/rdma/rdmafake"
)

// A snapshot of a mirror has a row for each leg, and says how many have all data.
func TestMirrorSnapshot(t *testing.T) {
	s := fakes(t, 2, rdmafake.Config{})
	cfg := s.config(t)
	cfg.LegTimeout = 1
	d, err := Dial(context.Background(), cfg)
	require.NoError(t, err)
	c := backendtest.NewClient(t, d)
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0), c.Flush()))
	none := uint64(0)
	leg := func(i int) LegSnapshot {
		return LegSnapshot{
			Target: s[i].addr, Region: "log", Slot: persist.Member(i).String(), Class: "file", Method: "gpspm",
			Epoch: s[i].region.Superblock().Epoch, State: LegInSync, Behind: &none,
		}
	}
	want := &MirrorSnapshot{
		Set: uuid.UUID{0xee}, Generation: s[0].region.Superblock().Record.String(), Members: "AB", F: "AB", MinCopies: 1, Copies: 2,
		Regions: []uuid.UUID{s[0].region.UUID(), s[1].region.UUID()}, Legs: []LegSnapshot{leg(0), leg(1)},
	}
	shot := d.Snapshot()
	require.Equal(t, want, shot.Mirror)
	require.Equal(t, s[0].region.UUID(), [16]byte(shot.RegionUUID))
	require.Len(t, shot.Lanes, 1)
	require.Len(t, shot.Targets, 2, "not the legs that have no member")

	s.network(0).Down()
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 2), 0), c.Flush()))
	shot = d.Snapshot()
	require.Equal(t, s[1].region.UUID(), [16]byte(shot.RegionUUID), "the leg that is there stands for the mirror")
	require.Equal(t, StateOpen, shot.State)
	m := shot.Mirror
	require.Equal(t, "B", m.F)
	require.Equal(t, 1, m.Copies)
	require.Equal(t, leg(1), m.Legs[1])
	require.Equal(t, LegAway, m.Legs[0].State)
	require.NotEmpty(t, m.Legs[0].Cause)
	require.Nil(t, m.Legs[0].Behind)
	require.WithinDuration(t, time.Now(), *m.Legs[0].Since, patience)

	b, err := json.Marshal(shot)
	require.NoError(t, err)
	require.Contains(t, string(b), `"state":"in sync"`)
	require.Contains(t, string(b), `"behind_bytes":null`)
	s.network(0).Up()
	require.NoError(t, d.Close())
}

// The states of a leg, and what status calls them.
func TestLegStates(t *testing.T) {
	record := func(slot uint8, life uint64, f persist.Members) persist.Record {
		r := persist.Record{Set: [16]byte{1}, Slot: slot, MinCopies: 1}
		r.Generation, r.F = persist.Generation{Life: life, Count: 1, Nonce: [16]byte{byte(life)}}, f
		r.Members[0], r.Members[1] = persist.Membership{UUID: [16]byte{10}}, persist.Membership{UUID: [16]byte{11}}
		return r
	}
	first := record(0, 1, 3)
	second := mirror.Descend(&first, persist.Generation{Life: 2, Count: 1, Nonce: [16]byte{2}}, 1)
	own := mirror.Descend(&first, persist.Generation{Life: 2, Count: 1, Nonce: [16]byte{3}}, 2)
	of := func(r persist.Record, slot uint8) persist.Record { r.Slot = slot; return r }
	alone := mirror.View{Record: second, Active: 1, Equal: 1}
	both := mirror.View{Record: first, Active: 3, Equal: 3}
	stranger := of(first, 1)
	stranger.Set = [16]byte{2}
	for name, c := range map[string]struct {
		view   mirror.View
		record persist.Record // of the leg in slot 1
		up     bool
		bad    error
		lostBy error
		want   LegState
		slot   string
	}{
		"there, in F":                  {view: both, record: of(first, 1), up: true, want: LegInSync, slot: "B"},
		"there, outside F":             {view: alone, record: of(second, 1), up: true, want: LegResync, slot: "B"},
		"there, not equal yet":         {view: mirror.View{Record: first, Active: 3, Equal: 1}, record: of(first, 1), up: true, want: LegResync, slot: "B"},
		"away, in F":                   {view: both, record: of(first, 1), lostBy: rdma.ErrLost, want: LegAway, slot: "B"},
		"away, let go":                 {view: alone, record: of(first, 1), lostBy: rdma.ErrLost, want: LegAway, slot: "B"},
		"away, half copied":            {view: alone, record: of(second, 1), lostBy: rdma.ErrLost, want: LegTorn, slot: "B"},
		"never reached":                {view: alone, want: LegAway},
		"went its own way":             {view: alone, record: of(own, 1), want: LegOwnWay, slot: "B"},
		"without what it had":          {view: both, record: of(first, 1), bad: errContents, want: LegFailed, slot: "B"},
		"failed at its target":         {view: alone, lostBy: &RefusedError{said: wire.Refused{Code: wire.CodeFailed}}, want: LegFailed},
		"suspect at its target":        {view: alone, lostBy: &RefusedError{said: wire.Refused{Code: wire.CodeSuspect}}, want: LegFailed},
		"another initiator's just now": {view: alone, lostBy: &RefusedError{said: wire.Refused{Code: wire.CodeBusy}}, want: LegAway},
		"of another mirror":            {view: alone, record: stranger, want: LegFailed},
	} {
		t.Run(name, func(t *testing.T) {
			g := &leg{cfg: Config{Addr: "pm2:7204", Region: "log"}, slot: 1, record: c.record, bad: c.bad, lostBy: c.lostBy}
			g.up.Store(c.up)
			got := g.shownLocked(&c.view)
			require.Equal(t, c.want, got.State)
			require.Equal(t, c.slot, got.Slot)
			require.Equal(t, got.State == LegInSync, got.Cause == "")
			require.Contains(t, LegStates(), got.State)
		})
	}
}
