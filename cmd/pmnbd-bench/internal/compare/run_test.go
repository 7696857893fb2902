package compare

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"pmnbd/backend/mem"
	"pmnbd/cmd/internal/flags"
	"pmnbd/nbd"
	"pmnbd/nbd/client"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// served serves memory on a unix socket.
func served(t *testing.T, size uint64) Operand { return serve(t, nbd.Export{}, size) }

func serve(t *testing.T, e nbd.Export, size uint64) Operand {
	t.Helper()
	dev, err := mem.New(size)
	require.NoError(t, err)
	e.Name, e.Device = "mem", dev
	s, err := nbd.New(nbd.Config{}, e)
	require.NoError(t, err)
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		require.NoError(t, s.Shutdown(ctx))
		require.NoError(t, <-done)
		require.NoError(t, dev.Close())
	})
	return Operand{Label: "mem", Network: "unix", Address: socket, Export: "mem"}
}

func config(operands ...Operand) Config {
	return Config{Operands: operands, PerCell: 4 * time.Millisecond, Rounds: 2, Area: 8 << 20, Connections: 3, Progress: func(string, float64) {}}
}

func hasWipefs(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("wipefs"); err != nil {
		t.Skip("wipefs of util-linux is missing")
	}
}

// empties fails unless nothing was left in a directory.
func empties(t *testing.T, dir string) {
	t.Helper()
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestRun(t *testing.T) {
	hasWipefs(t)
	dir := t.TempDir()
	cfg := config(served(t, 6<<20), Operand{Label: "disk", Path: dir, Given: dir})
	var shares []float64
	cfg.Progress = func(step string, share float64) {
		require.NotEmpty(t, step)
		shares = append(shares, share)
	}
	r, err := Run(t.Context(), cfg)
	require.NoError(t, err)
	empties(t, dir)
	require.EqualValues(t, 6<<20, r.Area, "that of the smallest")
	require.Len(t, r.Cells, 2*len(Patterns()))
	for _, c := range r.Cells {
		require.Len(t, c.Rounds, cfg.Rounds)
		require.Positive(t, c.Commits)
		require.Positive(t, c.Rate)
		require.Positive(t, c.P50)
		require.LessOrEqual(t, c.P50, c.Max)
		var commits int64
		for _, round := range c.Rounds {
			require.Positive(t, round.Commits)
			commits += round.Commits
		}
		require.Equal(t, commits, c.Commits)
		require.Equal(t, commits, c.latencies.TotalCount())
	}
	require.Equal(t, []string{"mem", "disk"}, []string{r.Subjects[0].Label, r.Subjects[1].Label})
	require.EqualValues(t, 6<<20, r.Subjects[0].Size)
	require.Equal(t, "NBD export", r.Subjects[0].Kind)
	require.NotEmpty(t, r.Subjects[1].Storage.Kind)
	require.IsNonDecreasing(t, shares)
	_, err = r.HTML()
	require.NoError(t, err)
}

// A run that is interrupted ends soon and leaves nothing, wherever it was.
func TestInterrupt(t *testing.T) {
	hasWipefs(t)
	for _, at := range []string{"look whether the machine is busy", "fill disk", "round 1 of 2, disk, log", "round 2 of 2, mem, random-64"} {
		t.Run(at, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			dir := t.TempDir()
			cfg := config(served(t, 6<<20), Operand{Label: "disk", Path: dir})
			reached := false
			cfg.Progress = func(step string, _ float64) {
				if step == at {
					reached = true
					cancel()
				}
			}
			_, err := Run(ctx, cfg)
			require.Error(t, err)
			require.True(t, reached)
			empties(t, dir)
		})
	}
	t.Run("a server that does not answer", func(t *testing.T) {
		l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
		require.NoError(t, err)
		defer func() { require.NoError(t, l.Close()) }()
		ctx, cancel := context.WithCancel(t.Context())
		accepted := make(chan net.Conn, 1)
		go func() {
			nc, err := l.Accept()
			cancel()
			if err == nil {
				accepted <- nc
			}
		}()
		_, err = Run(ctx, config(Operand{Label: "x", Network: "unix", Address: l.Addr().String()}))
		require.Error(t, err)
		require.NoError(t, (<-accepted).Close())
	})
}

func TestRefused(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	for _, c := range []struct {
		name    string
		operand Operand
		usage   bool
		says    string
	}{
		{"a file", Operand{Label: "x", Path: file}, true, "give its directory"},
		{"neither", Operand{Label: "x", Path: "/dev/null"}, true, "neither a directory nor a block device"},
		{"missing", Operand{Label: "x", Path: file + "-"}, false, "no such file"},
		{"too small", served(t, 1<<20), false, "at least 4194304"},
		{"read-only", serve(t, nbd.Export{ReadOnly: true}, 8<<20), false, "read-only"},
		{"not served", Operand{Label: "x", Network: "unix", Address: file}, false, "connect"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Run(t.Context(), config(c.operand))
			require.ErrorContains(t, err, c.operand.Label+": ")
			require.ErrorContains(t, err, c.says)
			require.Equal(t, c.usage, errors.Is(err, flags.ErrUsage))
		})
	}
}

// image returns what mkfs.ext4 makes.
func image(t *testing.T, size int64) []byte {
	t.Helper()
	if _, err := exec.LookPath("mkfs.ext4"); err != nil {
		t.Skip("mkfs.ext4 is missing")
	}
	path := filepath.Join(t.TempDir(), "image")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	require.NoError(t, os.Truncate(path, size))
	out, err := exec.Command("mkfs.ext4", "-q", path).CombinedOutput()
	require.NoError(t, err, "%s", out)
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	return b
}

// An export that has a filesystem keeps it, unless it is forced.
func TestExportWithContents(t *testing.T) {
	hasWipefs(t)
	const size = 8 << 20
	contents := image(t, size)
	o := served(t, size)
	transfer := func(step func(c *client.Client, off uint64, part []byte), all []byte) {
		nc, err := net.Dial(o.Network, o.Address)
		require.NoError(t, err)
		c, err := client.New(nc, client.Config{Export: o.Export})
		require.NoError(t, err)
		for at := 0; at < len(all); at += 128 << 10 {
			step(c, uint64(at), all[at:at+128<<10])
			require.NoError(t, c.Send())
			_, errno, err := c.Recv()
			require.NoError(t, err)
			require.Zero(t, errno)
		}
		require.NoError(t, c.Close())
	}
	transfer(func(c *client.Client, off uint64, part []byte) { c.Write(0, off, part, 0) }, contents)
	_, err := Run(t.Context(), config(o))
	require.ErrorContains(t, err, "it has contents (ext4), which would be overwritten")
	now := make([]byte, size)
	transfer(func(c *client.Client, off uint64, part []byte) { c.Read(0, off, part) }, now)
	require.True(t, string(contents) == string(now), "they are still there")

	cfg := config(o)
	cfg.Force = true
	_, err = Run(t.Context(), cfg)
	require.NoError(t, err)
}

// A block device is overwritten only if it was named twice, and if it is in use or has a filesystem
// only if that is forced.
func TestDevice(t *testing.T) {
	hasWipefs(t)
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(path, make([]byte, 8<<20), 0o600))
	out, err := exec.Command("losetup", "-f", "--show", path).CombinedOutput()
	if err != nil {
		t.Skipf("no loop device: %s", strings.TrimSpace(string(out)))
	}
	device := strings.TrimSpace(string(out))
	t.Cleanup(func() {
		out, err := exec.Command("losetup", "-d", device).CombinedOutput()
		require.NoError(t, err, "%s", out)
	})
	compare := func(overwrite, force bool) error {
		cfg := config(Operand{Label: "x", Path: device})
		if overwrite {
			cfg.Overwrite = []string{device}
		}
		cfg.Force = force
		r, err := Run(t.Context(), cfg)
		if err == nil {
			require.Equal(t, FormDevice, r.Subjects[0].Form)
			require.EqualValues(t, 8<<20, r.Subjects[0].Size)
		}
		return err
	}
	err = compare(false, true)
	require.ErrorIs(t, err, flags.ErrUsage)
	require.ErrorContains(t, err, "whose first 8M would be overwritten: say so with --overwrite "+device)
	require.NoError(t, compare(true, false))

	require.NoError(t, os.WriteFile(device, image(t, 8<<20), 0))
	require.ErrorContains(t, compare(true, false), "it has contents (ext4)")
	user, err := os.OpenFile(device, os.O_RDONLY|os.O_EXCL, 0) // as a mount does
	require.NoError(t, err)
	require.ErrorContains(t, compare(true, false), "it is in use")
	require.NoError(t, compare(true, true))
	require.NoError(t, user.Close())
}
