// Package flags is the values that command lines and configuration files have in common:
// sizes, durations, paths and endpoints, and the error for one that makes no sense.
//
// It exists so that the binaries read and complain alike. Each command declares its own
// flags. The package imports rdma/verbs, to know whether this build has it, and persist/wire,
// to know what a target may be called.
package flags

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// ErrUsage marks the errors of a command line or a configuration file. Their text says what
// is wrong and what would be right.
var ErrUsage = errors.New("usage")

type usageError struct{ text string }

func (e usageError) Error() string { return e.text }

// Is makes every usageError an ErrUsage.
func (e usageError) Is(target error) bool { return target == ErrUsage }

// Usagef makes an error that is ErrUsage.
func Usagef(format string, args ...any) error { return usageError{fmt.Sprintf(format, args...)} }

// Listening adds to an error of listening on a TCP port what a user can do about it.
func Listening(err error) error {
	switch {
	case errors.Is(err, unix.EADDRINUSE):
		return fmt.Errorf("%w: another process listens there: end it, or use another port", err)
	case errors.Is(err, unix.EADDRNOTAVAIL):
		return fmt.Errorf("%w: this host has no such address", err)
	}
	return err
}
