package backend

import "errors"

// The errors of Op.Err. Devices wrap them.
var (
	// ErrFailed: the device has failed for good. Acknowledged writes may be lost.
	ErrFailed = errors.New("device failed")
	// ErrClosed: the device is closed.
	ErrClosed = errors.New("device closed")
	// ErrGone: the client hung up before the op was enqueued.
	ErrGone = errors.New("client hung up")
	// ErrInvalid: the request breaks a rule of the protocol.
	ErrInvalid = errors.New("invalid request")
	// ErrNoSpace: a write reaches past the end of the device.
	ErrNoSpace = errors.New("past the end of the device")
	// ErrTooLarge: the request exceeds Info.MaxRequest.
	ErrTooLarge = errors.New("request too large")
	// ErrOverflow: a READ is too large for one reply.
	ErrOverflow = errors.New("request too large for one reply")
	// ErrReadOnly: the request would change a read-only export.
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
	EINVAL    Errno = 22
	ENOSPC    Errno = 28
	EOVERFLOW Errno = 75
	ENOTSUP   Errno = 95
	ESHUTDOWN Errno = 108
)

// ErrnoOf returns the NBD error number for err: 0 for nil, and EIO for an error that
// has no number of its own.
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
