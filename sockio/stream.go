package sockio

// A Stream is how a connection's bytes move: a Socket, or TLS over one. Who may
// call what at the same time is said at Socket.
type Stream interface {
	// Read reads what is there, at most len(p) bytes, and waits for the first byte.
	Read(p []byte) (int, error)
	// TryRead is a Read that does not wait: 0, nil says that nothing is there.
	TryRead(p []byte) (int, error)
	// WaitReadable blocks until Read would not.
	WaitReadable() error
	// WaitWritable blocks until a Flush may get further.
	WaitWritable() error
	// HungUp reports whether the peer, or the connection, is gone.
	HungUp() bool
	// Flush writes what q holds, as far as that needs no waiting. q.Written counts
	// what the socket took. A Stream has one Queue in its life.
	Flush(q *Queue) error
	// Close closes the connection and wakes every call that waits. It is idempotent.
	Close() error
}

var (
	_ Stream = (*Socket)(nil)
	_ Stream = (*TLS)(nil)
)
