package nbd

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/backend/backendtest"
)

// tool runs the NBD client of another project. If that is missing it skips the test and names
// the package.
func tool(t *testing.T, name string, args ...string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("%s is not installed", name)
	}
	cmd := exec.CommandContext(t.Context(), path, args...)
	cmd.Dir = t.TempDir() // fio leaves files where it runs
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%v\n%s", cmd, out)
	return string(out)
}

func (f *fixture) uri() string { return "nbd+unix:///disk?socket=" + f.addr.String() }

func TestNbdinfo(t *testing.T) {
	f := serve(t, newMem(t, 8<<20))
	out := tool(t, "nbdinfo", f.uri())
	for _, want := range []string{
		"protocol: newstyle-fixed without TLS",
		`export="disk"`,
		"export-size: 8388608 (8M)",
		"can_flush: true", "can_fua: true", "can_multi_conn: true", "can_trim: true", "can_zero: true",
		"is_read_only: false",
		"block_size_minimum: 1", "block_size_preferred: 4096", "block_size_maximum: 33554432",
	} {
		require.Contains(t, out, want)
	}
	require.Contains(t, tool(t, "nbdinfo", "--list", "nbd+unix:///?socket="+f.addr.String()), `export="disk"`)
	require.Equal(t, "8388608", strings.TrimSpace(tool(t, "nbdinfo", "--size", f.uri())))
	require.Contains(t, tool(t, "nbdinfo", "--json", f.uri()), `"description": "memory of this process`)
}

func TestNbdcopy(t *testing.T) {
	f := serve(t, newMem(t, 64<<20))
	dir := t.TempDir()
	in, out := filepath.Join(dir, "in"), filepath.Join(dir, "out")
	data := backendtest.Pattern(64<<20, 1)
	require.NoError(t, os.WriteFile(in, data, 0o600))
	for _, args := range [][]string{nil, {"--connections=4", "--requests=64", "--request-size=1048576"}, {"--synchronous"}} {
		tool(t, "nbdcopy", append(args, "--flush", in, f.uri())...)
		tool(t, "nbdcopy", append(args, f.uri(), out)...)
		got, err := os.ReadFile(out)
		require.NoError(t, err)
		require.True(t, string(data) == string(got), "%v", args)
	}
}

func TestQemuIO(t *testing.T) {
	f := serve(t, newMem(t, 64<<20))
	out := tool(t, "qemu-io", "-f", "raw", f.uri(),
		"-c", "write -P 0x11 0 1M", "-c", "write -f -P 0x22 512 4k", "-c", "flush",
		"-c", "read -P 0x11 0 512", "-c", "read -P 0x22 512 4k", "-c", "read -P 0x11 8k 64k",
		"-c", "aio_write -P 0x33 2M 32M", "-c", "aio_flush", "-c", "read -P 0x33 2M 32M")
	require.NotContains(t, out, "verification failed")
	require.NotContains(t, out, "error")
	require.Contains(t, tool(t, "qemu-img", "info", f.uri()), "64 MiB")
}

// TestOthersReadInParts: other clients take a READ that comes in several chunks.
func TestOthersReadInParts(t *testing.T) {
	f := parts(t, newMem(t, 8<<20))
	out := tool(t, "qemu-io", "-f", "raw", f.uri(), "-c", "write -P 0x11 0 2M", "-c", "write -P 0x22 2M 2M", "-c", "read -P 0x11 0 2M", "-c", "read -P 0x22 2M 2M")
	require.NotContains(t, out, "verification failed")
	require.NotContains(t, out, "error")
	copied := filepath.Join(t.TempDir(), "out")
	tool(t, "nbdcopy", "--connections=1", "--requests=8", "--request-size=1048576", f.uri(), copied)
	got, err := os.ReadFile(copied)
	require.NoError(t, err)
	require.True(t, strings.Repeat("\x11", 2<<20)+strings.Repeat("\x22", 2<<20)+strings.Repeat("\x00", 4<<20) == string(got))
	require.Positive(t, f.srv.served()[0].short.Load(), "some came in parts")
}

func TestFio(t *testing.T) {
	f := serve(t, newMem(t, 64<<20))
	tool(t, "fio", "--name=x", "--ioengine=nbd", "--uri="+fmt.Sprintf("nbd+unix:///disk?socket=%s", f.addr),
		"--rw=randrw", "--bsrange=512-256k", "--size=16m", "--iodepth=32", "--verify=crc32c", "--fsync=16")
}
