package remote

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"pmnbd/backend/backendtest"
)

// A host has the runs of one initiator, one after the other.
type host struct {
	*farm
	cfg Config
}

func newHost(t *testing.T) *host {
	f := newFarm(t)
	cfg := (&pair{provider: f.provider, addr: "target", stateDir: t.TempDir()}).config(t)
	cfg.WindowDir, cfg.LossTimeout = inMemory(t), 0
	return &host{f, cfg}
}

// run starts a run.
func (h *host) run() (*Device, *backendtest.Client) {
	h.t.Helper()
	d, err := Dial(context.Background(), h.cfg)
	require.NoError(h.t, err)
	return d, backendtest.NewClient(h.t, d)
}

// refused expects that no run can start, because of a LossError that contains why.
func (h *host) refused(why string) {
	h.t.Helper()
	_, err := Dial(context.Background(), h.cfg)
	var loss *LossError
	require.ErrorAs(h.t, err, &loss)
	require.ErrorContains(h.t, err, why)
}

// file is the path of the window file.
func (h *host) file() string {
	h.t.Helper()
	found, err := filepath.Glob(filepath.Join(h.cfg.WindowDir, "*.window"))
	require.NoError(h.t, err)
	require.Len(h.t, found, 1)
	return found[0]
}

// kill ends d as SIGKILL would: the window file stays as it is, and the target hears nothing. The
// test has to end the goroutines of d. They cannot change the file, because kill puts a copy back.
func (h *host) kill(d *Device) {
	h.t.Helper()
	copied := h.file() + ".copy"
	b, err := os.ReadFile(h.file())
	require.NoError(h.t, err)
	require.NoError(h.t, os.WriteFile(copied, b, 0o600))
	require.NoError(h.t, d.leave(context.Background(), false))
	require.NoError(h.t, d.release())
	require.NoError(h.t, os.Rename(copied, h.file()))
}

// rewrite changes the header of the window file.
func (h *host) rewrite(change func(*header)) {
	f, err := openWindowFile(h.cfg.WindowDir, h.cfg.ID, h.region.UUID())
	require.NoError(h.t, err)
	f.update(change)
	require.NoError(h.t, f.Close())
}

// scribble changes both halves of the header's page.
func (h *host) scribble(change func(half []byte)) {
	b, err := os.ReadFile(h.file())
	require.NoError(h.t, err)
	change(b[:headerPage/2])
	change(b[headerPage/2:])
	require.NoError(h.t, os.WriteFile(h.file(), b, 0o600))
}

// boot makes everything that earlier runs left be of another boot of the host.
func (h *host) boot() {
	other := uuid.New()
	records, err := filepath.Glob(filepath.Join(h.cfg.StateDir, "*.boot"))
	require.NoError(h.t, err)
	for _, r := range records {
		require.NoError(h.t, os.WriteFile(r, []byte(other.String()), 0o600))
	}
	lasts, err := filepath.Glob(filepath.Join(h.cfg.StateDir, "*.last"))
	require.NoError(h.t, err)
	for _, r := range lasts {
		require.NoError(h.t, os.WriteFile(r, fmt.Appendf(nil, "%s\n%v\n", h.cfg.WindowDir, other), 0o600))
	}
	if found, _ := filepath.Glob(filepath.Join(h.cfg.WindowDir, "*.window")); len(found) > 0 {
		h.rewrite(func(hd *header) { hd.Boot = other })
	}
}
