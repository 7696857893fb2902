package backend

import "errors"

// Errors that an Op can end with. Devices wrap them.
var (
	// ErrFailed: the device failed for good; writes that it acknowledged may be lost.
	ErrFailed = errors.New("device failed")
	// ErrClosed: the device was closed.
	ErrClosed = errors.New("device closed")
	// ErrGone: the client hung up before the op was enqueued.
	ErrGone = errors.New("client hung up")
	// ErrInvalid: the request breaks the protocol's rules.
	ErrInvalid = errors.New("invalid request")
	// ErrNoSpace: a write reaches past the end of the device.
	ErrNoSpace = errors.New("past the end of the device")
	// ErrTooLarge: the request exceeds Info.MaxRequest.
	ErrTooLarge = errors.New("request too large")
	// ErrOverflow: a READ whose reply would have to be cut, which is not done.
	ErrOverflow = errors.New("request too large for one reply")
	// ErrReadOnly: a write to a read-only export.
	ErrReadOnly = errors.New("export is read-only")
	// ErrNotSupported: the device does not serve this command.
	ErrNotSupported = errors.New("not supported")
)

// Errno is an NBD error number (proto.md, "Error values").
type Errno uint32

// The error numbers of NBD.
const (
	EPERM     Errno = 1
	EIO       Errno = 5
	ENOMEM    Errno = 12
	EINVAL    Errno = 22
	ENOSPC    Errno = 28
	EOVERFLOW Errno = 75
	ENOTSUP   Errno = 95
	ESHUTDOWN Errno = 108
)

// ErrnoOf is the NBD error number that tells a client of err; 0 for nil. What has
// no number of its own is EIO.
func ErrnoOf(err error) Errno {
	switch {
	case err == nil:
		return 0
	case errors.Is(err, ErrInvalid):
		return EINVAL
	case errors.Is(err, ErrTooLarge):
		return EINVAL
	case errors.Is(err, ErrNoSpace):
		return ENOSPC
	case errors.Is(err, ErrOverflow):
		return EOVERFLOW
	case errors.Is(err, ErrReadOnly):
		return EPERM
	case errors.Is(err, ErrNotSupported):
		return ENOTSUP
	case errors.Is(err, ErrClosed):
		return ESHUTDOWN
	}
	return EIO
}
