package sockio

import "time"

// A Stream is a connection: a Socket, or TLS over one. The comment on Socket says which
// calls may run at the same time.
type Stream interface {
	// Read waits for the first byte and reads what is there, at most len(p) bytes.
	Read(p []byte) (int, error)
	// ReadSoon is a Read that gives up soon, or at once, and then returns 0, nil.
	ReadSoon(p []byte) (int, error)
	// TryRead is a Read that does not wait. If nothing is there it returns 0, nil.
	TryRead(p []byte) (int, error)
	// WaitReadable blocks until Read would not block.
	WaitReadable() error
	// WaitWritable blocks until a Flush may write more.
	WaitWritable() error
	// HungUp reports whether the peer or the connection is gone.
	HungUp() bool
	// Flush writes as much of q as it can without waiting. q.Written counts the bytes
	// that the socket took. A Stream works with one Queue all its life.
	Flush(q *Queue) error
	// Linger sees to it that the peer gets what was written although Close follows. It takes d at
	// most, and ends with Close. What the peer still sends is lost.
	Linger(d time.Duration)
	// Close closes the connection and wakes every call that waits. It is idempotent.
	Close() error
}

var (
	_ Stream = (*Socket)(nil)
	_ Stream = (*TLS)(nil)
)
