package main

import (
	"io"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap/zaptest"

	"pmnbd/backend/remote"
	"pmnbd/cmd/internal/status"
	"pmnbd/cmd/pmnbd/internal/report"
	"pmnbd/nbd"
	"pmnbd/ublk"
)

func TestParseUblk(t *testing.T) {
	for name, tt := range map[string]struct {
		args []string
		want []ublkSpec
		says string // a usage error
	}{
		"the only export":   {[]string{logTarget, "--ublk=/dev/ublkb3"}, []ublkSpec{{"log", 3}}, ""},
		"named":             {[]string{logTarget, dataTarget, "--ublk=data=/dev/ublkb0"}, []ublkSpec{{"data", 0}}, ""},
		"both":              {[]string{logTarget, dataTarget, "--ublk=data=/dev/ublkb0", "--ublk=log=/dev/ublkb1"}, []ublkSpec{{"data", 0}, {"log", 1}}, ""},
		"an export twice":   {[]string{logTarget, "--ublk=/dev/ublkb0", "--ublk=log=/dev/ublkb1"}, nil, `--ublk log=/dev/ublkb1: export "log" is to be /dev/ublkb0 already, and can be one ublk device only`},
		"a name with =":     {[]string{logTarget, "--export=a=b", "--ublk=a=b=/dev/ublkb0"}, []ublkSpec{{"a=b", 0}}, ""},
		"which of two":      {[]string{logTarget, dataTarget, "--ublk=/dev/ublkb0"}, nil, "say which of the exports"},
		"no such export":    {[]string{logTarget, "--ublk=data=/dev/ublkb0"}, nil, `no export is called "data"`},
		"a device twice":    {[]string{logTarget, "--ublk=/dev/ublkb0", "--ublk=log=/dev/ublkb0"}, nil, "given twice"},
		"another device":    {[]string{logTarget, "--ublk=/dev/nbd0"}, nil, "not a ublk device"},
		"no number":         {[]string{logTarget, "--ublk=/dev/ublkb"}, nil, "not a ublk device"},
		"zeroes":            {[]string{logTarget, "--ublk=/dev/ublkb00"}, nil, "not a ublk device"},
		"a number too high": {[]string{logTarget, "--ublk=/dev/ublkb1048576"}, nil, "not a ublk device"},
		"signs":             {[]string{logTarget, "--ublk=/dev/ublkb-1"}, nil, "not a ublk device"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg, err := parse(call(tt.args...))
			if tt.says != "" {
				require.ErrorContains(t, err, tt.says)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tt.want, cfg.ublk)
		})
	}
	for _, args := range [][]string{
		{"attach", "--ublk", "log", "/dev/nbd0"}, {"attach", "--ublk", "a", "b"}, {"attach", "--ublk", "--connections", "2"},
		{"attach", "--ublk", "--timeout", "1h"}, {"attach", "log", "/dev/ublkb0"}, {"detach", "/dev/ublkb"}, {"detach", "/dev/ublkb0x"},
	} {
		require.Equal(t, 2, run(args, io.Discard, io.Discard), args)
	}
}

// TestExportAt: only an export that is served becomes a block device. The error says why another one does not.
func TestExportAt(t *testing.T) {
	place := status.Place{}
	require.NoError(t, place.Set("unix:"+t.TempDir()+"/"))
	l, err := place.Listen("log")
	require.NoError(t, err)
	s := status.Serve(l, nil, zaptest.NewLogger(t), func() status.Document {
		d := sample()
		d.Starting = []report.Starting{{Name: "late"}, {Name: "back"}}
		d.Removing = []report.Removing{{Name: "gone"}, {Name: "back"}}
		return d
	})
	defer func() { require.NoError(t, s.Close()) }()
	for name, says := range map[string]string{
		"log":  "",
		"late": "the export does not serve yet: pmnbd status shows why",
		"gone": "a reload removes the export: pmnbd status shows what it waits for",
		"back": "the export does not serve yet: pmnbd status shows why",
		"none": `no pmnbd serves export "none": looked at ` + place.String(),
		"":     "several could be meant, name one: log data",
	} {
		t.Run("named "+name, func(t *testing.T) {
			_, found, err := exportAt(&place, name)
			if says == "" {
				require.NoError(t, err)
				require.Equal(t, name, found)
				return
			}
			require.EqualError(t, err, says)
		})
	}
}

// TestUblkIdentity: the identity that the kernel keeps is another one for each region and lineage, and always
// says that it is ours. A block device goes on only where both are the same. Of a mirror it is the same whichever
// member is the first in sync (docs/rules.md).
func TestUblkIdentity(t *testing.T) {
	region, lineage := uuid.New(), uuid.New()
	identity := func(region, lineage uuid.UUID, mirror *remote.MirrorSnapshot) uint64 {
		return ublkIdentity(&remote.Snapshot{RegionUUID: region, Lineage: lineage, Mirror: mirror})
	}
	id := identity(region, lineage, nil)
	require.Equal(t, id, identity(region, lineage, nil))
	require.True(t, ours(id))
	require.False(t, ours(0))
	require.False(t, ours(1))
	set := &remote.MirrorSnapshot{Set: uuid.New()}
	for name, other := range map[string]uint64{
		"another lineage": identity(region, uuid.New(), nil),
		"another region":  identity(uuid.New(), lineage, nil),
		"swapped":         identity(lineage, region, nil),
		"a mirror":        identity(region, lineage, set),
	} {
		require.NotEqual(t, id, other, name)
		require.True(t, ours(other), name)
	}
	require.Equal(t, identity(region, lineage, set), identity(uuid.New(), lineage, set), "another member is the first in sync")
	require.NotEqual(t, identity(region, lineage, set), identity(region, uuid.New(), set))
	require.NotEqual(t, identity(region, lineage, set), identity(region, lineage, &remote.MirrorSnapshot{Set: uuid.New()}))
	fixed := uuid.MustParse("6d6e6264-0000-4000-8000-000000000001")
	require.EqualValues(t, 0x706d, identity(fixed, fixed, nil)>>48)
}

// TestUblkReport: what block devices have counted is in the export's counters, and stays there when they end. It takes
// no more memory when many have ended.
func TestUblkReport(t *testing.T) {
	shot := ublk.Snapshot{Path: "/dev/ublkb0", Commands: ublk.Commands{
		Read: nbd.Count{Requests: 1, Bytes: 2}, Write: nbd.Count{Requests: 3, Bytes: 4, FUA: 1, Errors: 1}, Flush: nbd.Count{Requests: 5},
		Trim: nbd.Count{Requests: 6}, WriteZeroes: nbd.Count{Requests: 7},
	}}
	shot.Latency.Flush.Note(1)
	var u ublks
	for _, export := range []string{"log", "data", "log"} {
		u.keepLocked(export, shot)
	}
	require.Len(t, u.past, 2)
	e := report.Export{Snapshot: nbd.Snapshot{Name: "log", Commands: nbd.Commands{Write: nbd.Count{Requests: 10}}}}
	u.report(&e)
	require.Equal(t, nbd.Commands{
		Read: nbd.Count{Requests: 2, Bytes: 4}, Write: nbd.Count{Requests: 16, Bytes: 8, FUA: 2, Errors: 2}, Flush: nbd.Count{Requests: 10},
		Trim: nbd.Count{Requests: 12}, WriteZeroes: nbd.Count{Requests: 14},
	}, e.Commands)
	require.EqualValues(t, 2, e.Latency.Flush.Count())
	require.Empty(t, e.Ublk)
}
