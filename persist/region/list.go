package region

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"pmnbd/persist/region/internal/medium"
)

// A Listed is a region that List found, or what is left of one.
type Listed struct {
	Path string
	Info Info
	// Err says why Info is not there: the superblock is damaged or of another
	// version, or the file could not be read.
	Err error
}

// List looks for regions among the files and device-dax devices in dir, not below
// it. It takes no lock and changes nothing; what is no region it leaves out.
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
			continue // removed meanwhile, or a link to nothing
		}
		// To open any other device may set it going.
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
