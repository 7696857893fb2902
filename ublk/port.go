package ublk

// A port is the kernel's side of a queue. All methods but receive and wake are for the queue's
// thread: the kernel takes commands of a queue from the thread alone that has fetched.
type port interface {
	// descriptor returns a copy of what the kernel says of the request with that tag.
	descriptor(tag uint16) descriptor
	// fetch tells the kernel, at the next enter, that it may deliver a request with that tag.
	fetch(tag uint16)
	// commit answers the request with that tag, at the next enter, and fetches the next one.
	commit(tag uint16, result int32)
	// enter sends what fetch and commit have queued. If wait is set it returns once there is a
	// completion, or after wake.
	enter(wait bool) error
	// next returns a completion, if there is one.
	next() (completion, bool)
	// receive copies from the payload of a WRITE, from byte off on, all of p. Any goroutine may
	// call it.
	receive(tag uint16, off int, p []byte) error
	// send copies all of p into the payload of a READ, from byte off on.
	send(tag uint16, off int, p []byte) error
	// wake makes an enter return that waits, now or next. Any goroutine may call it before close.
	wake()
	close() error
}

// A completion says that the kernel has a request with this tag (result 0), or that it takes no
// command with it any more.
type completion struct {
	tag    uint32 // not bounded yet
	result int32
}
