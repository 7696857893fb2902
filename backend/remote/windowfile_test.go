package remote

import (
	"context"
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/backend/backendtest"
	"pmnbd/internal/mirror"
	"pmnbd/persist"
)

// If a process was killed while it wrote a header, the header before counts. A file whose headers
// are both damaged counts as damaged, not as empty.
func TestHeaderCrash(t *testing.T) {
	dir := t.TempDir()
	open := func() (*windowFile, error) { return openWindowFile(dir, [16]byte{1}, [16]byte{2}) }
	f, err := open()
	require.NoError(t, err)
	require.Zero(t, f.header().State)
	f.update(func(h *header) { h.State, h.Epoch = windowLive, 1 })
	f.update(func(h *header) { h.State, h.Epoch = windowDrained, 2 })
	require.NoError(t, f.Close())
	path := filepath.Join(dir, "01000000-0000-0000-0000-000000000000-02000000-0000-0000-0000-000000000000.window")
	whole, err := os.ReadFile(path)
	require.NoError(t, err)
	for cut := 0; cut < headerPage/2; cut += 7 { // half 0 has generation 2
		b := append([]byte(nil), whole...)
		b[cut] ^= 1
		require.NoError(t, os.WriteFile(path, b, 0o600))
		f, err := open()
		require.NoError(t, err)
		h := f.header()
		require.True(t, h.Epoch == 2 && h.State == windowDrained || h.Epoch == 1 && h.State == windowLive, "byte %d", cut)
		require.NoError(t, f.Close())
	}
	b := make([]byte, headerPage)
	b[5] = 1
	require.NoError(t, os.WriteFile(path, b, 0o600))
	f, err = open()
	require.NoError(t, err)
	require.Equal(t, windowDamaged, f.header().State)
	require.NoError(t, f.wipe())
	require.Equal(t, header{}, f.header())
	require.NoError(t, f.Close())
	wiped, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, make([]byte, headerPage), wiped, "nothing is left that another release would believe")
	require.NoError(t, os.Chmod(path, 0o644))
	require.NoError(t, os.WriteFile(path, whole, 0o600))
	_, err = open()
	require.ErrorContains(t, err, "others have access")
}

// A full filesystem shows at the start, not as SIGBUS under a write.
func TestWindowFileNeedsRoom(t *testing.T) {
	f, err := openWindowFile(inMemory(t), [16]byte{1}, [16]byte{2})
	require.NoError(t, err)
	f.update(func(h *header) { h.Lanes, h.Entries, h.Chunks, h.Stripe = 1, 16, 1<<20, stripe })
	require.ErrorContains(t, f.shape(), "use a smaller window")
	require.NoError(t, f.Close())
}

// A process with another state directory does not find the claim of one that lives. It must not
// adopt that process's window all the same: it would replay writes that the other is still
// sending, and then truncate the file under it.
func TestWindowOfTheLiving(t *testing.T) {
	h := newHost(t)
	d, c := h.run()
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0)))
	cfg := h.cfg
	cfg.StateDir = t.TempDir()
	for range 2 {
		_, err := Dial(context.Background(), cfg)
		require.ErrorContains(t, err, "another pmnbd of this host and id")
	}
	require.NoError(t, c.Do(c.Flush()))
	require.NoError(t, d.Close())
	d, err := Dial(context.Background(), cfg)
	require.NoError(t, err)
	require.NoError(t, d.Close())
}

// The header of a mirror fits into its half of the page, whatever it says, and comes back as it was.
func TestHeaderOfAMirror(t *testing.T) {
	require.LessOrEqual(t, headerPrefix+binary.Size(header{}), headerPage/2)
	dir := inMemory(t)
	f, err := openWindowFile(dir, [16]byte{1}, [16]byte{2})
	require.NoError(t, err)
	v := mirror.View{Record: persist.Record{Set: [16]byte{2}, MinCopies: 2, Torn: true}, Life: 5, Nonce: [16]byte{6}, Pending: true, Active: 1, Equal: 2, Joiner: 4, Lacking: 8}
	for i := range v.Record.Members {
		v.Record.Members[i] = persist.Membership{UUID: [16]byte{byte(i)}, Contents: [16]byte{7}, Epoch: 9}
	}
	for i := range v.Record.Lineage {
		v.Record.Lineage[i] = persist.Ancestor{Generation: persist.Generation{Life: 1, Count: uint64(i), Nonce: [16]byte{8}}, F: 3}
	}
	last := session{UUID: [16]byte{1}, ContentsID: [16]byte{2}, Epoch: 3, Mark: 4, Target: 5, Class: 6}
	f.update(func(h *header) {
		h.State, h.Mirror, h.Sessions[persist.MaxMembers-1] = windowLive, v, last
		h.Failure[len(h.Failure)-1] = 1
	})
	want := f.header()
	require.NoError(t, f.Close())
	f, err = openWindowFile(dir, [16]byte{1}, [16]byte{2})
	require.NoError(t, err)
	require.Equal(t, want, f.header())
	require.NoError(t, f.Close())
}
