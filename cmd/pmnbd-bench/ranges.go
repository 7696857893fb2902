package main

import (
	"fmt"
	"time"
)

// rangesDepth is how many of the WRITEs before a FLUSH are in flight.
const rangesDepth = 32

// flushes repeats a number of WRITEs and a FLUSH for warm + measured, at least once. Between two
// WRITEs lies a block that is not written, so that the server cannot merge them into one range.
// It appends to samples how long each FLUSH took that began after warm. It counts WRITEs.
func (l *load) flushes(warm, measured time.Duration, samples []time.Duration) ([]time.Duration, error) {
	begin := time.Now()
	for {
		if err := l.conn.bound(time.Now().Add(patience)); err != nil {
			return samples, err
		}
		for n := 0; n < l.work.ranges; {
			depth := min(rangesDepth, l.work.ranges-n)
			if err := l.writes(depth); err != nil {
				return samples, err
			}
			n += depth
		}
		began := time.Now()
		if err := once(l.conn, request{cmd: cmdFlush}); err != nil {
			return samples, err
		}
		end := time.Now()
		if end.Sub(begin) >= warm {
			samples = append(samples, end.Sub(began))
		}
		if end.Sub(begin) >= warm+measured && len(samples) > 0 {
			return samples, nil
		}
	}
}

// writes sends n WRITEs to the next blocks, together, and waits for their replies.
func (l *load) writes(n int) error {
	size := int64(l.work.block)
	pairs := l.area.len / size / 2 // of blocks, of which the first is written
	var batch [rangesDepth]request
	for i := range n {
		batch[i] = request{cmd: cmdWrite, slot: i, off: l.area.off + 2*size*l.next, len: l.work.block}
		l.next = (l.next + 1) % pairs
	}
	if err := l.conn.send(batch[:n]); err != nil {
		return err
	}
	for range n {
		i, err := l.conn.recv()
		if err != nil {
			return err
		}
		if i < 0 || i >= n {
			return fmt.Errorf("a reply to a request that was never sent")
		}
	}
	l.done += n
	return nil
}
