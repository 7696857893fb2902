package remote

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"
)

// A claim is the lock by which one process of this host at a time has a region for an
// initiator's id. Without it two processes would be one owner: the target lets an id take over
// its own region at once (design §5).
type claim struct {
	state  *directory
	f      *os.File
	region [16]byte
}

// fileOf is the name of a file of an id and a region's UUID.
func fileOf(id, region [16]byte, kind string) string {
	return fmt.Sprintf("%s-%s.%s", uuid.UUID(id), uuid.UUID(region), kind)
}

// claimRegion takes the lock of an id and a region's UUID in dir. The kernel ends the lock with
// the process, however that ends. The file stays, unless this start does not open the region.
func claimRegion(dir string, id, region [16]byte) (*claim, error) {
	state, err := openDirectory(dir)
	if err != nil {
		return nil, fmt.Errorf("the state directory: %w", err)
	}
	f, err := state.lock(fileOf(id, region, "lock"), unix.O_RDWR|unix.O_CREAT)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("the lock of the region: %w", err), state.Close())
	}
	return &claim{state, f, region}, nil
}

// errLocked means that another process has locked a file.
var errLocked = errors.New("one pmnbd at a time serves a region for an initiator: stop that one first")

// lock locks f, a file of an id and region, until f is closed.
func lock(f *os.File) error {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	switch {
	case errors.Is(err, unix.EWOULDBLOCK):
		return fmt.Errorf("another pmnbd of this host and id serves this region: %s has locked %s; %w", holder(f), f.Name(), errLocked)
	case err != nil:
		return fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	return nil
}

// holder names the process that has locked f, if the kernel tells.
func holder(f *os.File) string {
	const nobody = "a process"
	var st unix.Stat_t
	locks, err := os.Open("/proc/locks")
	if err != nil {
		return nobody
	}
	defer locks.Close() //nolint:errcheck // it was only read
	if unix.Fstat(int(f.Fd()), &st) != nil {
		return nobody
	}
	file := fmt.Sprintf("%02x:%02x:%d", unix.Major(st.Dev), unix.Minor(st.Dev), st.Ino)
	for lines := bufio.NewScanner(locks); lines.Scan(); {
		// 1: FLOCK  ADVISORY  WRITE 4711 00:1a:4096 0 EOF
		fields := strings.Fields(lines.Text())
		if len(fields) > 5 && fields[1] == "FLOCK" && fields[5] == file {
			if pid, err := strconv.Atoi(fields[4]); err == nil && pid > 0 {
				return fmt.Sprintf("process %d", pid)
			}
		}
	}
	return nobody
}

// Close releases the lock.
func (c *claim) Close() error { return errors.Join(c.f.Close(), c.state.Close()) }
