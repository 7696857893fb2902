package daemon

import (
	"errors"
	"io"
	"slices"
)

// Opened is what a start has opened so far.
type Opened []io.Closer

// Add adds c, unless it is nil. CloseOn closes it before everything that was added earlier.
func (o *Opened) Add(c io.Closer) { *o = append(*o, c) }

// CloseOn closes everything if *err is an error, and joins to that the errors of closing. A
// start defers it, with its named result.
func (o *Opened) CloseOn(err *error) {
	if *err == nil {
		return
	}
	for _, c := range slices.Backward(*o) {
		if c != nil {
			*err = errors.Join(*err, c.Close())
		}
	}
}
