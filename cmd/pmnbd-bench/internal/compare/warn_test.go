package compare

import (
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/cmd/pmnbd-bench/internal/storage"
)

func TestWarnings(t *testing.T) {
	tmpfs := storage.Storage{Kind: storage.Memory, Filesystem: "tmpfs", NoSync: "its filesystem is tmpfs"}
	logged := func(r *Report, writes, flushes uint64) {
		c := r.cell("disk", "log")
		c.DiskCounted, c.DiskWrites, c.DiskFlushes = true, writes, flushes
	}
	for _, c := range []struct {
		name   string
		place  *place
		change func(*Report)
		code   string // "": none
		unfair bool
		says   string
	}{
		{name: "nothing to say", place: directory("disk", ssd())},
		{name: "class volatile", place: export("disk"), code: "volatile", unfair: true, says: "class volatile"},
		{name: "tmpfs", place: directory("disk", tmpfs), code: "no-sync", unfair: true, says: "tmpfs"},
		{name: "a disk that works", place: directory("disk", ssd()), change: func(r *Report) { logged(r, 5000, 5000) }},
		{name: "page cache", place: directory("disk", ssd()), change: func(r *Report) { logged(r, 10, 10) }, code: "no-effect", unfair: true, says: "During 4000 fsyncs on disk its disk completed 10 writes"},
		{name: "no flushes", place: directory("disk", ssd()), change: func(r *Report) { logged(r, 5000, 10) }, code: "no-flushes", unfair: true, says: "10 flush requests"},
		{name: "no flushes needed", place: directory("disk", storage.Storage{Kind: storage.Protected, WriteCache: "write through"}), change: func(r *Report) { logged(r, 5000, 0) }},
		{name: "flushes of the disks below", place: directory("disk", storage.Storage{Kind: storage.Cached, Device: "dm-0", WriteCache: "write back"}), change: func(r *Report) { logged(r, 5000, 0) }},
		{name: "too fast", place: directory("disk", ssd()), change: func(r *Report) { r.cell("disk", "log").P50 = 1 }, code: "too-fast", unfair: true, says: "takes 1 µs"},
		{name: "fast as persistent memory is", place: directory("disk", storage.Storage{Kind: storage.PMem}), change: func(r *Report) { r.cell("disk", "log").P50 = 1 }},
		{name: "rounds that differ", place: directory("disk", ssd()), change: func(r *Report) { r.cell("disk", "group").Rounds[0].P50 = 1000 }, code: "spread", says: "group"},
		{name: "busy", place: directory("disk", ssd()), change: func(r *Report) { r.Host.Busy = .4 }, code: "busy", says: "40 %"},
		{name: "busy by its load", place: directory("disk", ssd()), change: func(r *Report) { r.Host.Busy, r.Host.Load = -1, 7 }, code: "busy", says: "7.0 on 8 CPUs"},
		{name: "stolen", place: directory("disk", ssd()), change: func(r *Report) { r.Host.Stolen = .3 }, code: "stolen", says: "30 %"},
		{name: "few threads", place: directory("disk", ssd()), change: func(r *Report) { r.Host.Threads = 2 }, code: "threads", says: "GOMAXPROCS is 2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := fixed(t, 1, c.place)
			if c.change != nil {
				c.change(r)
			}
			got := r.warn([]*place{c.place})
			if c.code == "" {
				require.Empty(t, got)
				return
			}
			require.Len(t, got, 1)
			require.Equal(t, c.code, got[0].Code)
			require.Equal(t, c.unfair, got[0].Unfair)
			require.Contains(t, got[0].Text, c.says)
		})
	}
}

func TestWarningsOfSeveral(t *testing.T) {
	small, large, dir := export("small"), export("large"), directory("dir", ssd())
	large.Size = 1 << 40
	r := fixed(t, 1, small, large, dir)
	got := r.warnOfAll([]*place{small, large, dir})
	require.Len(t, got, 1)
	require.Equal(t, "unequal", got[0].Code)
	require.Contains(t, got[0].Text, "small has 1G, large has 1T")
	require.Contains(t, got[0].Text, "their first 64M")

	large.Size, large.Local = small.Size, true
	got = r.warnOfAll([]*place{small, large, dir})
	require.Len(t, got, 1)
	require.Equal(t, "local", got[0].Code)
	require.Contains(t, got[0].Text, "server of large.")
}

// What a server says of its export decides what the report says of it.
func TestJudgeExport(t *testing.T) {
	for _, c := range []struct {
		says     string
		kind     string
		volatile bool
	}{
		{"region a, VOLATILE: FLUSH means visible at the target", "NBD export, class volatile", true},
		{"region a, class pmem: FLUSH means durable at the target", "NBD export, class pmem", false},
		{"region a, class file: FLUSH means durable at the target", "NBD export, class file", false},
		{"region a, class file: FLUSH means durable at the target; region b, VOLATILE: FLUSH", "NBD export, class volatile", true},
		{"", "NBD export", false},
	} {
		s := Subject{Kind: "NBD export", Says: c.says}
		s.judgeExport(Operand{Network: "unix", Address: "/s"})
		require.Equal(t, c.kind, s.Kind)
		require.Equal(t, c.volatile, s.Volatile)
		require.NotEmpty(t, s.Meaning)
		require.True(t, s.Local)
	}
	for address, local := range map[string]bool{"localhost:1": true, "127.0.0.1:1": true, "[::1]:1": true, "10.0.0.1:1": false, "host:1": false} {
		var s Subject
		s.judgeExport(Operand{Network: "tcp", Address: address})
		require.Equal(t, local, s.Local, address)
	}
}
