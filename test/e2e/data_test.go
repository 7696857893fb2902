package e2e

import (
	"crypto/sha256"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// dataOffset is where the data extent begins in a region's file, in bytes (design §5).
const dataOffset = 2 << 20

// sumRegion returns the SHA-256 of a region's data extent.
func sumRegion(t *testing.T, path string, size int64) []byte {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	sum := sha256.New()
	n, err := io.Copy(sum, io.NewSectionReader(f, dataOffset, size))
	require.NoError(t, err)
	require.Equal(t, size, n)
	return sum.Sum(nil)
}

// sumExport returns the SHA-256 of what nbdcopy reads from an export.
func sumExport(t *testing.T, uri string) []byte {
	t.Helper()
	sum := sha256.New()
	nbdcopy.pipe(t, sum, uri, "-")
	return sum.Sum(nil)
}

// fioMixed writes all of an export in random order and mixed sizes, each block with its own
// checksum. With verify_only it reads.
func fioMixed(t *testing.T, uri string, more ...string) {
	t.Helper()
	fio.run(t, append([]string{
		"--name=mixed", "--ioengine=nbd", "--uri=" + uri,
		"--rw=randwrite", "--size=256m", "--bssplit=512/25:4k/35:12k/10:64k/20:1m/10", "--iodepth=16",
		"--randseed=1", "--verify=crc32c", "--verify_fatal=1", "--end_fsync=1", "--output-format=terse",
	}, more...)...)
}

func TestDataOutlivesTheInitiator(t *testing.T) {
	t.Parallel()
	need(t, fio, nbdcopy)
	const size = 256 << 20
	h := newHost(t)
	path := h.region(t, "data", "256M")
	_, uri := h.target(t, "data="+path)

	first, unix, _ := h.initiator(t, uri, "data")
	fioMixed(t, unix) // writes, then reads and verifies
	written := sumExport(t, unix)
	first.stop(t)
	require.Equal(t, written, sumRegion(t, path, size), "the region's data extent")

	_, unix, tcp := h.initiator(t, uri, "data")
	fioMixed(t, unix, "--verify_only=1")
	require.Equal(t, written, sumExport(t, unix), "over the unix socket")
	require.Equal(t, written, sumExport(t, tcp), "over TCP")
	require.NotEqual(t, sha256.New().Sum(nil), written)
}

func TestSeveralConnections(t *testing.T) {
	t.Parallel()
	need(t, fio)
	h := newHost(t)
	path := h.region(t, "many", "64M")
	_, uri := h.target(t, "many="+path)
	_, unix, _ := h.initiator(t, uri, "many", "--window", "8M")
	// Four jobs with a connection and a quarter of the device each, with FLUSH and FUA among
	// the writes, and with a window that fills up.
	fio.run(t, "--ioengine=nbd", "--uri="+unix, "--rw=randwrite", "--bssplit=512/20:4k/60:256k/20", "--iodepth=8",
		"--size=16m", "--offset_increment=16m", "--numjobs=4", "--fsync=16", "--verify=crc32c", "--verify_fatal=1",
		"--name=job", "--output-format=terse")
}

func TestNbdinfo(t *testing.T) {
	t.Parallel()
	need(t, nbdinfo)
	h := newHost(t)
	path := h.region(t, "info", "16M")
	_, uri := h.target(t, "info="+path)
	_, unix, tcp := h.initiator(t, uri, "info")

	type export struct {
		Name        string `json:"export-name"`
		Size        int64  `json:"export-size"`
		ReadOnly    bool   `json:"is_read_only"`
		CanFlush    bool   `json:"can_flush"`
		CanFUA      bool   `json:"can_fua"`
		MultiConn   bool   `json:"can_multi_conn"`
		BlockMin    int    `json:"block_size_minimum"`
		BlockPref   int    `json:"block_size_preferred"`
		BlockMax    int    `json:"block_size_maximum"`
		Description string `json:"description"`
	}
	show := func(args ...string) export {
		var info struct {
			Protocol string   `json:"protocol"`
			Exports  []export `json:"exports"`
		}
		require.NoError(t, json.Unmarshal([]byte(nbdinfo.run(t, append([]string{"--json"}, args...)...)), &info))
		require.Equal(t, "newstyle-fixed", info.Protocol)
		require.Len(t, info.Exports, 1)
		return info.Exports[0]
	}
	want := show(unix)
	require.Equal(t, "info", want.Name)
	require.EqualValues(t, 16<<20, want.Size)
	require.False(t, want.ReadOnly)
	require.True(t, want.CanFlush)
	require.True(t, want.CanFUA)
	require.True(t, want.MultiConn)
	require.Equal(t, 1, want.BlockMin)
	require.Equal(t, 4096, want.BlockPref)
	require.Equal(t, 16<<20, want.BlockMax, "a quarter of the default window")
	require.Contains(t, want.Description, "class file")

	require.Equal(t, want, show(tcp))
	want.Description = "" // this reply to LIST has names only
	require.Equal(t, want, show("--list", unix))
}

func TestQemu(t *testing.T) {
	t.Parallel()
	need(t, qemuIO, qemuImg)
	h := newHost(t)
	path := h.region(t, "qemu", "32M")
	_, uri := h.target(t, "qemu="+path)
	_, unix, _ := h.initiator(t, uri, "qemu")

	// Patterns, aligned and not, with FLUSH and FUA. The cache mode writeback passes FLUSH on.
	qemuIO.run(t, "-f", "raw", "-t", "writeback",
		"-c", "write -P 0x11 0 1M", "-c", "write -P 0x22 512 512", "-c", "flush",
		"-c", "write -f -P 0x33 1000 3000", "-c", "aio_write -P 0x44 2M 4M", "-c", "aio_flush",
		"-c", "read -P 0x11 0 512", "-c", "read -P 0x22 512 488", "-c", "read -P 0x33 1000 3000", "-c", "read -P 0x11 4000 4096",
		"-c", "read -P 0x44 2M 4M", unix)

	var info struct {
		Size int64 `json:"virtual-size"`
	}
	require.NoError(t, json.Unmarshal([]byte(qemuImg.run(t, "info", "--output=json", unix)), &info))
	require.EqualValues(t, 32<<20, info.Size)

	image := filepath.Join(h.disk, "image")
	qemuImg.run(t, "convert", "-f", "raw", "-O", "raw", unix, image)
	qemuImg.run(t, "compare", "-f", "raw", "-F", "raw", unix, image)
	qemuIO.run(t, "-f", "raw", "-c", "write -P 0x55 7M 64k", image)
	qemuImg.run(t, "convert", "-n", "-f", "raw", "-O", "raw", image, unix)
	qemuIO.run(t, "-f", "raw", "-c", "read -P 0x55 7M 64k", "-c", "read -P 0x44 2M 4M", unix)
}

func TestNbdcopyBothWays(t *testing.T) {
	t.Parallel()
	need(t, nbdcopy)
	const size = 48 << 20
	h := newHost(t)
	source := filepath.Join(h.disk, "source")
	f, err := os.Create(source)
	require.NoError(t, err)
	sum := sha256.New()
	_, err = io.CopyN(io.MultiWriter(f, sum), newNoise(), size)
	require.NoError(t, err)
	require.NoError(t, f.Close())

	path := h.region(t, "copy", strconv.Itoa(size>>20)+"M")
	_, uri := h.target(t, "copy="+path)
	_, unix, tcp := h.initiator(t, uri, "copy")
	nbdcopy.run(t, "--flush", source, unix)
	require.Equal(t, sum.Sum(nil), sumExport(t, tcp))
	require.Equal(t, sum.Sum(nil), sumRegion(t, path, size))
}

// readRegion returns n bytes of a region's data extent, starting at off.
func readRegion(t *testing.T, path string, off int64, n int) []byte {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	got := make([]byte, n)
	_, err = f.ReadAt(got, dataOffset+off)
	require.NoError(t, err)
	return got
}
