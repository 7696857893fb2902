package region

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Only its owner and root may be able to change a region's file.
func TestGuards(t *testing.T) {
	for _, tt := range []struct {
		name  string
		mode  uint32
		owner uint32
		self  int
		says  string // "" if guards accepts it
	}{
		{"our own", unix.S_IFREG | 0o600, 1000, 1000, ""},
		{"root's own", unix.S_IFREG | 0o600, 0, 0, ""},
		{"that others may read", unix.S_IFREG | 0o644, 1000, 1000, ""},
		{"root's, which we may change", unix.S_IFREG | 0o600, 0, 1000, ""},
		{"another user's, and we are root", unix.S_IFREG | 0o600, 1000, 0, "it belongs to uid 1000, and this process runs as uid 0: run pmnbd-target as its owner, or chown it"},
		{"another user's", unix.S_IFREG | 0o600, 1001, 1000, "it belongs to uid 1001"},
		{"our own, the group writes", unix.S_IFREG | 0o620, 1000, 1000, "mode 0620 lets group or others write to it: chmod go-w /r"},
		{"our own, others write", unix.S_IFREG | 0o602, 1000, 1000, "mode 0602 lets group or others write to it"},
		{"root's, others write", unix.S_IFREG | 0o666, 0, 1000, "mode 0666"},
		{"a device: the kernel decides", unix.S_IFCHR | 0o660, 0, 1000, ""},
		{"a device that everybody may open", unix.S_IFCHR | 0o666, 1, 1000, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := guards("/r", &unix.Stat_t{Mode: tt.mode, Uid: tt.owner}, tt.self)
			if tt.says == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, ErrExposed)
			require.ErrorContains(t, err, tt.says)
		})
	}
}

// Every way to use a region refuses a file that is exposed and changes nothing. Inspect
// still works.
func TestExposedFile(t *testing.T) {
	for _, tt := range []struct {
		name   string
		expose func(t *testing.T, path string) (at string)
	}{
		{"its mode", func(t *testing.T, path string) string {
			require.NoError(t, os.Chmod(path, 0o666))
			return path
		}},
		{"its owner", func(t *testing.T, path string) string {
			if os.Geteuid() != 0 {
				t.Skip("only root can change a file's owner")
			}
			require.NoError(t, os.Chown(path, 1000, 1000))
			return path
		}},
		{"a link", func(t *testing.T, path string) string {
			link := filepath.Join(t.TempDir(), "link")
			require.NoError(t, os.Symlink(path, link))
			return link
		}},
	} {
		for name, use := range map[string]func(path string) error{
			"open": func(path string) error { _, err := open(path, OpenOptions{}, fileHost); return err },
			"open or create": func(path string) error {
				_, err := open(path, OpenOptions{Name: "r", CreateSize: testSize}, fileHost)
				return err
			},
			"create, by force": func(path string) error {
				_, err := create(path, CreateOptions{Name: "r", Force: true}, fileHost)
				return err
			},
			"clear":  func(path string) error { return clearRegion(path, "x", fileHost, nil) },
			"remove": func(path string) error { return removeRegion(path, true, fileHost) },
		} {
			t.Run(tt.name+", "+name, func(t *testing.T) {
				path := created(t, fileHost)
				before := header(t, path)
				at := tt.expose(t, path)
				require.ErrorIs(t, use(at), ErrExposed)
				require.Equal(t, before, header(t, path))
				require.Empty(t, held(t, filepath.Dir(path)))
				info, err := inspectPath(at, fileHost)
				require.NoError(t, err)
				require.Equal(t, "r", info.Superblock.Name)
				require.ErrorIs(t, info.Exposed, ErrExposed)
			})
		}
	}
}

// openNode follows a link to a device, because the kernel guards devices. A link to
// nothing does not exist.
func TestLinks(t *testing.T) {
	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink("/dev/null", link))
	_, err := Open(link, OpenOptions{})
	require.ErrorIs(t, err, ErrClass, "openNode must follow the link")
	if os.Geteuid() == 0 {
		require.NoError(t, os.Lchown(link, 1000, 1000))
		_, err = Open(link, OpenOptions{})
		require.ErrorIs(t, err, ErrExposed)
	}
	require.NoError(t, os.Remove(link))
	require.NoError(t, os.Symlink("nowhere", link))
	_, err = Open(link, OpenOptions{})
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NoError(t, os.Remove(link))
	require.NoError(t, os.Symlink("link", link))
	_, err = Open(link, OpenOptions{})
	require.ErrorIs(t, err, unix.ELOOP)
}
