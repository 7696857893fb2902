// Package localuser finds out which user of this machine is at the other end of a TCP
// connection that never leaves the machine, and decides whether to let that user in.
//
// It exists so that a target without keys serves its own user on loopback, and not every
// user. TCP does not carry the user; the kernel knows the user of each socket, and tells it
// over NETLINK_SOCK_DIAG (sock_diag(7)). The package imports nothing of ours.
package localuser

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"
)

// Told is what the target tells a peer that it does not let in. It fits into
// rdma.MaxPrivateData.
const Told = "without keys only root and the target's user are served"

// advice tells the operator how to let others in.
const advice = "give sessions keys with --key-file, or allow every user of this machine with --insecure-no-auth"

var (
	// ErrOther means that the other end belongs to another user.
	ErrOther = errors.New("the connection is of another user")
	// ErrUnknown means that the kernel does not say which user has the other end.
	ErrUnknown = errors.New("the user of the connection is not known")
)

// A Policy lets root in, and the user that this process runs as.
type Policy struct {
	own      uint32
	overflow uint32 // the kernel's name for users that this user namespace does not have
	userOf   func(socket, peer netip.AddrPort) (uint32, error)
}

// New returns the policy of this process.
func New() *Policy {
	return &Policy{own: uint32(os.Geteuid()), overflow: overflowUID("/proc/sys/kernel/overflowuid"), userOf: userOf}
}

// defaultOverflow is the overflow uid unless an administrator sets another.
const defaultOverflow = 65534

func overflowUID(path string) uint32 {
	b, err := os.ReadFile(path)
	if err != nil {
		return defaultOverflow
	}
	uid, err := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 32)
	if err != nil {
		return defaultOverflow
	}
	return uint32(uid)
}

// Allow decides about a connection from remote that this process has accepted at local. The
// error is ErrOther or ErrUnknown, and says what the operator can do.
func (p *Policy) Allow(local, remote netip.AddrPort) error {
	uid, err := p.userOf(remote, local)
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w: %s", ErrUnknown, err, advice)
	case uid == p.overflow:
		return fmt.Errorf("%w: uid %d stands for all users that this user namespace does not have: %s", ErrUnknown, uid, advice)
	case uid != 0 && uid != p.own:
		return fmt.Errorf("%w: uid %d, and without keys only root and uid %d are served: %s", ErrOther, uid, p.own, advice)
	}
	return nil
}
