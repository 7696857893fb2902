package main

import (
	"encoding/json"
	"path/filepath"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"pmnbd/internal/testhost"
	"pmnbd/persist"
	"pmnbd/persist/region"
)

// `region inspect` shows what a region knows of its mirror, also while it is served.
func TestInspectMember(t *testing.T) {
	dir := testhost.Memory(t)
	path := filepath.Join(dir, "log")
	code, _, errs := ran("region", "create", "log", path, "--size", "1M")
	require.Zero(t, code, errs)
	_, out, _ := ran("region", "inspect", path)
	require.NotContains(t, out, "mirror")
	require.NotContains(t, out, "life")

	r, err := region.Open(path, region.OpenOptions{AllowVolatile: true})
	require.NoError(t, err)
	defer func() { require.NoError(t, r.Close()) }()
	require.NoError(t, r.Update(func(sb *region.Superblock) error { sb.Life = 4; return nil }))
	rec := persist.Record{
		Set: [16]byte{0x5e}, Slot: 1, MinCopies: 2, Ancestor: persist.Ancestor{Generation: persist.Generation{Life: 3, Count: 2}, F: 3},
		Members: [persist.MaxMembers]persist.Membership{{UUID: [16]byte{0xaa}}, {UUID: r.UUID(), Contents: [16]byte{0xcc}, Epoch: 5}, {UUID: [16]byte{0xbb}}},
	}
	for i := range rec.Lineage[:6] {
		rec.Lineage[i] = persist.Ancestor{Generation: persist.Generation{Life: 2, Count: uint64(9 - i)}, F: 7}
	}
	require.NoError(t, r.SetRecord(rec, 0))
	require.NoError(t, r.ClearBits(2, []persist.Range{{Len: 256 << 10}}))

	code, out, errs = ran("region", "inspect", path)
	require.Zero(t, code, errs)
	for _, says := range []string{
		`mirror +member B of 5e000000-0000-0000-0000-000000000000, generation 3.2, in sync AB\n`,
		`min copies +2\n`,
		`member A +aa000000-0000-0000-0000-000000000000: in sync\n`,
		`member B +` + uuid.UUID(r.UUID()).String() + `: this region, in sync\n`,
		`member C +bb000000-0000-0000-0000-000000000000: behind: may lack 768K \(12 chunks of 64K\)\n`,
		`life +4\n`,
		`lineage +2.9 ABC, 2.8 ABC, 2.7 ABC, 2.6 ABC, and 2 older\n`,
	} {
		require.Regexp(t, says, out)
	}
	require.NotContains(t, out, "torn")

	code, out, errs = ran("region", "inspect", path, "--json")
	require.Zero(t, code, errs)
	var v struct {
		Life   uint64          `json:"life"`
		Member json.RawMessage `json:"member"`
	}
	require.NoError(t, json.Unmarshal([]byte(out), &v))
	require.EqualValues(t, 4, v.Life)
	zero := uuid.UUID{}.String()
	require.JSONEq(t, `{"mirror":"5e000000-0000-0000-0000-000000000000","member":"B","generation":"3.2","in_sync":"AB","min_copies":2,"torn":false,
		"chunk_size":65536,"members":[
		{"member":"A","uuid":"aa000000-0000-0000-0000-000000000000","contents_id":"`+zero+`","epoch":0,"in_sync":true,"chunks_behind":0,"behind_bytes":0},
		{"member":"B","uuid":"`+uuid.UUID(r.UUID()).String()+`","contents_id":"cc000000-0000-0000-0000-000000000000","epoch":5,"in_sync":true,"chunks_behind":0,"behind_bytes":0},
		{"member":"C","uuid":"bb000000-0000-0000-0000-000000000000","contents_id":"`+zero+`","epoch":0,"in_sync":false,"chunks_behind":12,"behind_bytes":786432}],
		"lineage":[{"generation":"2.9","in_sync":"ABC"},{"generation":"2.8","in_sync":"ABC"},{"generation":"2.7","in_sync":"ABC"},
		{"generation":"2.6","in_sync":"ABC"},{"generation":"2.5","in_sync":"ABC"},{"generation":"2.4","in_sync":"ABC"}]}`, string(v.Member))

	rec.Count, rec.F, rec.Torn, rec.Lineage = 3, 1, true, [persist.MaxLineage]persist.Ancestor{}
	require.NoError(t, r.SetRecord(rec, 0))
	_, out, _ = ran("region", "inspect", path)
	require.Regexp(t, `torn +yes: a copy to the region has begun and has not ended\n`, out)
	require.Regexp(t, `member B .*: this region, not in sync\n`, out)
	require.NotContains(t, out, "lineage")
	_, out, _ = ran("region", "list", dir)
	require.Regexp(t, `log +1M +volatile +torn +`, out)
}
