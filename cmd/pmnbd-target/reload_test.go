package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/internal/testhost"
	"pmnbd/persist"
	"pmnbd/persist/region"
)

// A reload that fails takes back what it opened, but not the memory of a region of class protected:
// the image may be live by then.
func TestReloadTakenBackKeepsProtectedMemory(t *testing.T) {
	const size = 1 << 20
	testhost.CanLock(t, region.DataOffset+size)
	memory := testhost.Memory(t)
	n := servedRegion{Name: "fast"}
	n.Path.string, n.Save.string = filepath.Join(memory, "fast"), testhost.Disk(t)
	_, err := region.Create(n.Path.string, region.CreateOptions{Name: n.Name, Size: size, Class: persist.ClassProtected, Save: n.Save.string})
	require.NoError(t, err)
	open := func() *region.Region {
		r, err := region.Open(n.Path.string, n.options(false))
		require.NoError(t, err)
		return r
	}
	r := open()
	copy(r.Data(), "flushed")
	require.NoError(t, r.Flush([]persist.Range{{Len: 7}}))
	_, err = r.Save(context.Background())
	require.NoError(t, err)
	require.NoError(t, r.Close())
	require.NoError(t, os.Remove(n.Path.string)) // a boot

	r, undo, err := begin(&n, false)
	require.NoError(t, err)
	require.NoError(t, r.Flush([]persist.Range{{Len: 7}})) // as the flush that settles doubt
	require.NoError(t, undo())
	r = open()
	require.True(t, bytes.HasPrefix(r.Data(), []byte("flushed")))
	require.NoError(t, r.Close())
}
