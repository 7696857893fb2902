package region

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"pmnbd/persist/region/internal/medium"
)

// A Listed is a region, or the remains of one, that List found.
type Listed struct {
	Path string
	Info Info
	// Err says why Info is empty: the superblock is damaged or of another version, or
	// List could not read the file.
	Err error
}

// List finds the regions among the files and device-dax devices in dir. It does not
// descend, takes no lock and changes nothing.
func List(dir string) ([]Listed, error) { return list(dir, thisMachine) }

func list(dir string, on medium.Medium) ([]Listed, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var all []Listed
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		st, err := os.Stat(path)
		if errors.Is(err, os.ErrNotExist) {
			continue // removed since ReadDir, or a link to nothing
		}
		// Opening any other device may start it.
		if err == nil && !st.Mode().IsRegular() && (st.Mode()&fs.ModeCharDevice == 0 || !strings.HasPrefix(filepath.Base(path), "dax")) {
			continue
		}
		l := Listed{Path: path}
		if l.Info, l.Err = inspectPath(path, on); !errors.Is(l.Err, ErrNoSuperblock) && !errors.Is(l.Err, os.ErrNotExist) {
			all = append(all, l)
		}
	}
	return all, nil
}
