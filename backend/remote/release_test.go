package remote

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/backend/backendtest"
	"pmnbd/internal/release"
	"pmnbd/persist/region/regiontest"
	"pmnbd/rdma/rdmafake"
)

// testdata/vX.Y.Z.txt is what release X.Y.Z left on both hosts when its pmnbd was killed while it
// had acknowledged writes that the target had not: the region, the window, and the files beside the
// window and in the state directory. It is text (see dump). A release adds its own with
//
//	PMNBD_LEAVE_RELEASE=yes go test -run TestLeaveRelease ./backend/remote
//
// and must adopt that of the release before it (docs/compatibility.md). It may remove older ones.

// left is what clients of the killed pmnbd had written: what was flushed, and what was not.
var flushedBefore, unflushedBefore = filled(4*block, "flushed before the kill"), filled(3*block, "acknowledged, and not flushed")

// filled is n bytes of text over and over, which dump writes as a few lines.
func filled(n int, text string) []byte {
	return bytes.Repeat(fmt.Appendf(nil, "%-*s\n", dumpRow-1, text), n/dumpRow)
}

// TestPreviousRelease starts this release on what each release in testdata left: nothing that was
// acknowledged may be missing.
func TestPreviousRelease(t *testing.T) {
	dumps, err := filepath.Glob("testdata/v*.txt")
	require.NoError(t, err)
	require.Contains(t, dumps, "testdata/v"+release.Version+".txt", "run TestLeaveRelease with the release that you publish")
	for _, d := range dumps {
		t.Run(strings.TrimSuffix(filepath.Base(d), ".txt"), func(t *testing.T) {
			dir := filepath.Dir(inMemory(t))
			boot := restore(t, d, dir)
			f := &farm{t: t, name: targetName, provider: rdmafake.New(rdmafake.Config{})}
			f.start(filepath.Join(dir, "region"), regiontest.Medium{PMem: regiontest.ADR.PMem, Data: regiontest.ADR.Data, Boot: boot})
			t.Cleanup(func() { f.stop() })
			h := &host{f, releaseConfig(f, dir)}
			d, c := h.run()
			readLeft(t, c)
			require.NoError(t, c.Do(c.Flush()))
			require.NoError(t, d.Close())
			d, c = h.run() // the files are this release's now
			readLeft(t, c)
			require.NoError(t, d.Close())
		})
	}
}

// readLeft expects that the device has what was written before the kill.
func readLeft(t *testing.T, c *backendtest.Client) {
	t.Helper()
	for off, want := range map[uint64][]byte{0: append(bytes.Clone(unflushedBefore), flushedBefore[len(unflushedBefore):]...), regionSize / 2: unflushedBefore, regionSize - 4*block: make([]byte, 4*block)} {
		r := c.Read(off, len(want), 0)
		require.NoError(t, c.Do(r))
		require.True(t, bytes.Equal(want, r.Got), "at %d", off)
	}
}

func releaseConfig(f *farm, dir string) Config {
	cfg := (&pair{provider: f.provider, addr: "target", stateDir: filepath.Join(dir, "state")}).config(f.t)
	cfg.WindowDir, cfg.LossTimeout, cfg.Window, cfg.Lanes = filepath.Join(dir, "window"), 0, MinWindow, 2
	return cfg
}

// TestLeaveRelease writes the testdata of this release.
func TestLeaveRelease(t *testing.T) {
	if os.Getenv("PMNBD_LEAVE_RELEASE") == "" {
		t.Skip("it writes testdata: set PMNBD_LEAVE_RELEASE=yes for a new release")
	}
	dir := filepath.Dir(inMemory(t))
	f := &farm{t: t, name: targetName, provider: rdmafake.New(rdmafake.Config{})}
	f.start(filepath.Join(dir, "region"), regiontest.ADR)
	t.Cleanup(func() { f.stop() })
	h := &host{f, releaseConfig(f, dir)}
	d, c := h.run()
	require.NoError(t, c.Do(c.Write(0, flushedBefore, 0)))
	require.NoError(t, c.Do(c.Write(regionSize-4*block, flushedBefore, 0)))
	require.NoError(t, c.Do(c.Flush()))
	f.provider.Pause()
	require.NoError(t, c.Do(c.Write(0, flushedBefore[:block], 0)))
	require.NoError(t, c.Do(c.Write(0, unflushedBefore, 0)))
	require.NoError(t, c.Do(c.Write(regionSize/2, unflushedBefore, 0)))
	require.NoError(t, c.Do(c.Write(regionSize-4*block, make([]byte, 4*block), 0)))
	dump(t, "testdata/v"+release.Version+".txt", dir)
	f.provider.Resume()
	require.NoError(t, d.Close())
}

// dumpRow is how many bytes a line of a dump has.
const dumpRow = 32

// dump writes the files below dir into file, as text: a line "-- NAME SIZE" for each, and one for
// each row that is not all zeroes, with its offset, its bytes in hex, and how often it repeats. The
// first lines are the boot id, and dir, which the files have in them.
func dump(t *testing.T, file, dir string) {
	boot, err := bootID()
	require.NoError(t, err)
	var b strings.Builder
	fmt.Fprintf(&b, "boot %v\ndir %s\n", boot, dir)
	require.NoError(t, filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "-- %s %d\n", strings.TrimPrefix(path, dir+"/"), len(data))
		row := func(i int) []byte { return data[i:min(i+dumpRow, len(data))] }
		for i, times := 0, 1; i < len(data); i, times = i+times*dumpRow, 1 {
			if bytes.Count(row(i), []byte{0}) == len(row(i)) {
				continue
			}
			for next := i + dumpRow; next < len(data) && bytes.Equal(row(i), row(next)); next += dumpRow {
				times++
			}
			fmt.Fprintf(&b, "%x %x %d\n", i, row(i), times)
		}
		return nil
	}))
	require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
	require.NoError(t, os.WriteFile(file, []byte(b.String()), 0o644))
}

// restore writes the files of a dump into dir. To a window file and those beside it, this boot of
// the host is that of the dump, whose id it returns.
func restore(t *testing.T, file, dir string) (dumped [16]byte) {
	text, err := os.Open(file)
	require.NoError(t, err)
	defer text.Close() //nolint:errcheck // nothing is written to it
	var boot, was, name string
	var data []byte
	now, err := bootID()
	require.NoError(t, err)
	write := func() {
		if name == "" {
			return
		}
		path := filepath.Join(dir, name)
		if name != "region" {
			data = bytes.ReplaceAll(data, []byte(boot), []byte(now.String()))
			data = bytes.ReplaceAll(data, dumped[:], now[:])
			data = bytes.ReplaceAll(data, []byte(was), []byte(dir))
		}
		if strings.HasSuffix(name, ".window") {
			seal(data)
		}
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, data, 0o600))
	}
	for lines := bufio.NewScanner(text); lines.Scan(); {
		var off, times, size int
		var row string
		line := lines.Text()
		switch {
		case scan(line, "boot %s", &boot):
			id, err := hex.DecodeString(strings.ReplaceAll(boot, "-", ""))
			require.NoError(t, err)
			dumped = [16]byte(id)
		case scan(line, "dir %s", &was):
		case scan(line, "-- %s %d", &row, &size):
			write()
			name, data = row, make([]byte, size)
		default:
			require.True(t, scan(line, "%x %s %d", &off, &row, &times), line)
			b, err := hex.DecodeString(row)
			require.NoError(t, err)
			copy(data[off:], bytes.Repeat(b, times))
		}
	}
	write()
	return dumped
}

func scan(line, format string, into ...any) bool {
	n, err := fmt.Sscanf(line, format, into...)
	return err == nil && n == len(into)
}

// seal corrects the CRCs of a window file whose header has changed. All versions of the file have
// them in one place, over one body: those that do not need a seal of their own.
func seal(window []byte) {
	for i := range 2 {
		half := window[i*headerPage/2:][:headerPage/2]
		if magic := binary.LittleEndian.Uint64(half); magic&^0xffff == headerAnyone {
			body := half[headerPrefix:][:binary.Size(header{})]
			binary.LittleEndian.PutUint32(half[16:], headerCRC(binary.LittleEndian.Uint64(half[8:]), body))
		}
	}
}

// What the next release finds in place of a version that it does not know.
func TestForeignWindow(t *testing.T) {
	h := newHost(t)
	d, c := h.run()
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0)))
	h.kill(d)
	h.scribble(func(half []byte) { half[0]++ })
	h.refused(fmt.Sprintf("it is of version %d, and this release reads version %d. Start that release again", WindowVersion+1, WindowVersion))
	h.scribble(func(half []byte) { half[0]-- })
	d, err := Dial(context.Background(), h.cfg)
	require.NoError(t, err, "the refusal left the window as it was")
	require.NoError(t, d.Close())
}
