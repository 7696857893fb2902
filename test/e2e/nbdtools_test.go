package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNbdinfoModes(t *testing.T) {
	t.Parallel()
	need(t, nbdinfo)
	h := newHost(t)
	_, uri := h.target(t, "info="+h.region(t, "info", "16M"))
	pmnbd, unix, tcp := h.initiator(t, uri, "info")

	text := nbdinfo.run(t, unix)
	for _, line := range []string{
		"protocol: newstyle-fixed without TLS, using structured packets",
		"export=\"info\":", "export-size: 16777216 (16M)", "base:allocation",
		"can_cache: true", "can_df: true", "can_fast_zero: true", "can_trim: true", "can_zero: true",
	} {
		require.Contains(t, text, line)
	}
	require.Equal(t, "16777216", strings.TrimSpace(nbdinfo.run(t, "--size", unix)))
	require.Equal(t, []string{"0", "16777216", "0", "data"}, strings.Fields(nbdinfo.run(t, "--map", unix)))
	require.Regexp(t, `^16777216 +100.0% +0 +data$`, strings.TrimSpace(nbdinfo.run(t, "--map", "--totals", unix)))
	// nbdinfo hangs up right after its ABORT, and may be gone before the server replies.
	for range 10 {
		for _, uri := range []string{unix, tcp} {
			require.Contains(t, nbdinfo.run(t, "--list", uri), "export=\"info\"")
		}
	}

	var extents []struct{ Length int64 }
	require.NoError(t, json.Unmarshal([]byte(nbdinfo.run(t, "--map", "--json", unix)), &extents))
	require.Len(t, extents, 1)
	require.EqualValues(t, 16<<20, extents[0].Length)

	pmnbd.stop(t)
	require.NotContains(t, pmnbd.stderr.String(), `"level":"warn"`, "nbdinfo did nothing wrong")
}

// sparse makes a file with data in two places and holes between them, and returns its contents.
func sparse(t *testing.T, path string, size int64) []byte {
	t.Helper()
	f, err := os.Create(path)
	require.NoError(t, err)
	require.NoError(t, f.Truncate(size))
	for _, off := range []int64{0, size / 2} {
		_, err = f.WriteAt(noise(t, 1<<20), off)
		require.NoError(t, err)
	}
	require.NoError(t, f.Close())
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	return data
}

func TestNbdcopySparse(t *testing.T) {
	t.Parallel()
	need(t, nbdcopy)
	const size = 32 << 20
	for _, tt := range []struct {
		name  string
		dirty bool // the region holds other data before
		flags []string
	}{
		{"holes become zeroes", true, nil},
		{"holes are left out where all is zero", false, []string{"--destination-is-zero"}},
		{"connections and requests", true, []string{"--connections=4", "--requests=16", "--request-size=262144"}},
		{"one thing at a time", true, []string{"--synchronous"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := newHost(t)
			path := h.region(t, "copy", strconv.Itoa(size>>20)+"M")
			_, uri := h.target(t, "copy="+path)
			_, unix, tcp := h.initiator(t, uri, "copy")
			if tt.dirty {
				c := dialNBD(t, unix)
				require.NoError(t, c.write(3<<20, noise(t, 2<<20)))
				c.close()
			}
			source, back := filepath.Join(h.disk, "source"), filepath.Join(h.disk, "back")
			want := sparse(t, source, size)
			nbdcopy.run(t, append(tt.flags, "--flush", source, unix)...)
			nbdcopy.run(t, append(tt.flags, tcp, back)...)
			got, err := os.ReadFile(back)
			require.NoError(t, err)
			require.True(t, string(want) == string(got), "the image came back with other bytes")
			// Flushed, so that the file has it.
			region, err := os.ReadFile(path)
			require.NoError(t, err)
			require.True(t, string(want) == string(region[dataOffset:dataOffset+size]), "the region holds other bytes")
		})
	}
}

// qemuImages lets one version of qemu-img and qemu-io work on an export of 32 MiB, and returns
// its URI.
func qemuImages(t *testing.T, img, io peer) string {
	t.Helper()
	h := newHost(t)
	_, uri := h.target(t, "qemu="+h.region(t, "qemu", "32M"))
	_, unix, _ := h.initiator(t, uri, "qemu")

	var info struct {
		Size int64 `json:"virtual-size"`
	}
	require.NoError(t, json.Unmarshal([]byte(img.run(t, "info", "--output=json", "-f", "raw", unix)), &info))
	require.EqualValues(t, 32<<20, info.Size)

	image, back := filepath.Join(h.disk, "image"), filepath.Join(h.disk, "back")
	want := sparse(t, image, 32<<20)
	img.run(t, "convert", "-n", "-f", "raw", "-O", "raw", image, unix)
	img.run(t, "compare", "-f", "raw", "-F", "raw", image, unix)
	img.run(t, "convert", "-f", "raw", "-O", "raw", unix, back)
	got, err := os.ReadFile(back)
	require.NoError(t, err)
	require.True(t, string(want) == string(got))

	var extents []struct {
		Start, Length int64
		Zero, Data    bool
	}
	require.NoError(t, json.Unmarshal([]byte(img.run(t, "map", "--output=json", "-f", "raw", unix)), &extents))
	require.Len(t, extents, 1)
	require.EqualValues(t, 32<<20, extents[0].Length)
	require.True(t, extents[0].Data)
	require.False(t, extents[0].Zero, "the server does not know which blocks are zero")

	io.run(t, "-f", "raw", "-t", "writeback",
		"-c", "write -P 0x11 0 4M", "-c", "flush", "-c", "write -f -P 0x22 1M 64k",
		"-c", "write -z 2M 64k", "-c", "write -z -u 2560k 64k", "-c", "write -z -f 3M 64k", "-c", "discard 0 512k",
		"-c", "aio_write -P 0x33 8M 8M", "-c", "aio_flush",
		"-c", "read -P 0x11 0 1M", "-c", "read -P 0x22 1M 64k",
		"-c", "read -P 0 2M 64k", "-c", "read -P 0x11 2112k 448k", "-c", "read -P 0 2560k 64k", "-c", "read -P 0 3M 64k",
		"-c", "read -P 0x33 8M 8M", unix)
	return unix
}

func TestQemuImages(t *testing.T) {
	t.Parallel()
	need(t, qemuImg, qemuIO)
	qemuImages(t, qemuImg, qemuIO)
}

// TestQemuWithExtendedHeaders uses a QEMU that has extended headers, which that of Debian 12
// has not.
func TestQemuWithExtendedHeaders(t *testing.T) {
	t.Parallel()
	newer := func(p peer) peer {
		path, err := filepath.Abs("../../bin/qemu/usr/bin/" + p.program)
		require.NoError(t, err)
		return peer{path, "qemu-utils of bookworm-backports, into bin/qemu: scripts/install-deps newer-qemu does, where the mirror has it"}
	}
	img, io := newer(qemuImg), newer(qemuIO)
	need(t, img, io)
	uri := qemuImages(t, img, io)
	out, err := exec.CommandContext(t.Context(), img.program, "-T", "nbd_receive_option_reply", "info", "-f", "raw", uri).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "(extended headers), type 1 (ack)")
}
