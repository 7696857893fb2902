package ublk

import (
	"errors"
	"time"

	"pmnbd/backend"
)

// This file is about how a queue ends.

// end ends the queue after serve; failed says that serve returned an error. When end returns, the
// device has none of the queue's requests. Once the port is closed, too, the kernel gives the requests
// that were not answered to the next server.
func (q *queue) end(failed bool) {
	q.halt()
	if failed {
		q.awaitDevice()
	}
	q.helpers.Wait()
	q.reads.drop()
	q.writes.drop()
}

// pollThread is how often detach looks whether a thread has ended. Kernels before 6.9 do not report that.
const pollThread = time.Millisecond

// detach closes the ports of queues that have ended, once all their threads have. A request that arrives
// as the port of a living thread is closed gets lost in the kernel (Linux 6.12): the driver waits for it
// with its lock held, so that nobody can continue the block device, or remove it.
func (d *Device) detach() (err error) {
	for _, q := range d.queues {
		for q.port != nil && !d.host.ended(q.tid) {
			time.Sleep(pollThread)
		}
	}
	for _, q := range d.queues {
		err = errors.Join(err, q.detach())
	}
	return err
}

// detach closes the port, if there is one.
func (q *queue) detach() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.port == nil {
		return nil
	}
	q.open = false
	return q.port.close()
}

// halt makes the queue stop: it answers what it has taken, and takes nothing more.
func (q *queue) halt() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.stopping.Swap(true) {
		close(q.stop)
		q.wakeLocked()
	}
}

// refuse makes the queue answer all READs with an error, also those that the device has, and all that
// comes from now on. It is for a block device that does not begin: as long as the kernel waits for its
// partition table, this process could not end.
func (q *queue) refuse() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.refusing.Store(true)
	q.wakeLocked()
}

func (q *queue) refuseReads() {
	for i := range q.slots {
		if s := &q.slots[i]; s.place == ours && s.op.Cmd == backend.Read {
			s.place, s.refused = kernels, true
			q.port.commit(s.tag, -int32(backend.EIO))
			q.unsent = true
		}
	}
}

// awaitDevice hands the rest of the batch to the device, and waits until the device has completed all
// requests of a queue that commits nothing any more.
func (q *queue) awaitDevice() {
	if q.hand() {
		q.dev.Post()
	}
	for {
		q.mu.Lock()
		q.alone = true
		for _, tag := range q.done {
			if op := &q.slots[tag].op; op.Cmd == backend.Read {
				release(op)
			}
			q.owed--
		}
		q.done = q.done[:0]
		q.mu.Unlock()
		if q.owed == 0 {
			return
		}
		<-q.more
	}
}
