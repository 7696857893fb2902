package main

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/internal/shmtest"
	"pmnbd/persist"
	"pmnbd/persist/region"
)

// A mistake in the file is found at the shutdown, when nobody is there to mend it. What other lines name
// is saved all the same.
func TestSaveOfAFileWithMistakes(t *testing.T) {
	memory, disk := shmtest.Dir(t), t.TempDir()
	var file string
	for _, name := range []string{"a", "b"} {
		path := filepath.Join(memory, name)
		code, _, errs := ran("region", "create", name, path, "--size", "4M", "--class", "protected", "--save", disk)
		require.Zero(t, code, errs)
		file += fmt.Sprintf("[[region]]\nname = %q\npath = %q\nsave = %q\n", name, path, disk)
	}
	for name, wrong := range map[string]string{
		"an unknown key":      "lisen = 5\n",
		"a value":             "spin = \"soon\"\n",
		"no TOML":             "listen = [\"iwarp://127.0.0.1:7204\"\n",
		"no TOML in a region": "[[region]]\nname = \"c\npath = \"/nowhere\"\n",
	} {
		for place, text := range map[string]string{"before": wrong + file, "behind": file + wrong} {
			t.Run(name+" "+place, func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "target.toml")
				require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
				code, out, errs := ran("save", "--config", path)
				require.NotZero(t, code)
				require.Contains(t, errs, "target.toml:")
				require.Contains(t, out, "region a saved: ")
				require.Contains(t, out, "region b saved: ")
			})
		}
	}
	require.Empty(t, salvage(filepath.Join(disk, "nowhere")))
}

// A region whose memory is not there, and whose image is not whole, is not saved: its filesystem may have
// been unmounted too early.
func TestSaveWithoutMemory(t *testing.T) {
	memory, disk := shmtest.Dir(t), t.TempDir()
	path, file := filepath.Join(memory, "fast"), filepath.Join(t.TempDir(), "target.toml")
	code, _, errs := ran("region", "create", "fast", path, "--size", "4M", "--class", "protected", "--save", disk)
	require.Zero(t, code, errs)
	require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, "[[region]]\nname = \"fast\"\npath = %q\nsave = %q\n", path, disk), 0o600))
	away := path + ".away"
	require.NoError(t, os.Rename(path, away))
	code, out, errs := ran("save", "--config", file)
	require.Zero(t, code, errs)
	require.Equal(t, "region fast has no memory: its image stays as it is\n", out)

	// The disk with the image may be away, too.
	image := region.ImagePath(disk, "fast")
	require.NoError(t, os.Rename(image, image+".away"))
	code, out, _ = ran("save", "--config", file)
	require.Equal(t, 1, code)
	require.Contains(t, out, "region fast NOT SAVED: "+path+" is not there, and nobody knows what the image has")
	require.NoError(t, os.Rename(image+".away", image))

	require.NoError(t, os.Rename(away, path))
	r, err := region.Open(path, region.OpenOptions{Name: "fast", Save: disk})
	require.NoError(t, err)
	require.NoError(t, r.Zero(persist.Range{Len: 4096}))
	require.NoError(t, r.Close())
	require.NoError(t, os.Rename(path, away))
	code, out, _ = ran("save", "--config", file)
	require.Equal(t, 1, code)
	require.Equal(t, "region fast NOT SAVED: "+path+" is not there, and the image lacks what it had: mount it again, or the region is lost\n", out)

	require.NoError(t, os.Rename(away, path))
	code, out, errs = ran("save", "--config", file)
	require.Zero(t, code, errs)
	require.Contains(t, out, "region fast saved: ")
}
