package ublk

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// A disk is a block device as its users see it.
type disk struct {
	t *testing.T
	d *fakeDevice
}

func (k *fakeKernel) disk(t *testing.T, number int) *disk {
	k.mu.Lock()
	defer k.mu.Unlock()
	require.Contains(t, k.devices, uint32(number))
	return &disk{t, k.devices[uint32(number)]}
}

// begin sends a request. off and n are in bytes.
func (d *disk) begin(op uint32, off, n int, payload []byte) *fakeRequest {
	rq := &fakeRequest{desc: descriptor{op, uint32(n >> sectorShift), uint64(off >> sectorShift)}, payload: payload, done: make(chan int32, 1)}
	d.d.k.mu.Lock()
	defer d.d.k.mu.Unlock()
	d.d.deliverLocked(rq)
	return rq
}

func (d *disk) write(off int, p []byte) *fakeRequest { return d.begin(opWrite, off, len(p), p) }

func (d *disk) flush() *fakeRequest { return d.begin(opFlush, 0, 0, nil) }

// read reads n bytes and waits for them.
func (d *disk) read(off, n int) []byte {
	d.t.Helper()
	p := make([]byte, n)
	require.EqualValues(d.t, n, <-d.begin(opRead, off, n, p).done)
	return p
}

// A fakeRequest is a request of the block layer.
type fakeRequest struct {
	desc    descriptor
	payload []byte
	done    chan int32
	tries   int // to how many servers it was delivered
}

// deliverLocked gives a request to the least busy queue, or keeps it for the next server.
func (d *fakeDevice) deliverLocked(rq *fakeRequest) {
	var to *fakeQueue
	for _, q := range d.queues {
		if !q.closed && len(q.fetched) > 0 && (to == nil || len(q.delivered) < len(to.delivered)) {
			to = q
		}
	}
	if d.state != stateLive || to == nil {
		d.waiting = append(d.waiting, rq)
		return
	}
	for tag := range to.fetched {
		delete(to.fetched, tag)
		to.delivered[tag] = rq
		to.cq = append(to.cq, completion{tag: uint32(tag)})
		break
	}
	rq.tries++
	d.k.changed.Broadcast()
}

// taken waits until the servers of a device have looked at all that was delivered to them.
func (k *fakeKernel) taken(number uint32) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for slices.ContainsFunc(k.devices[number].queues, func(q *fakeQueue) bool { return len(q.cq) > 0 }) {
		k.changed.Wait()
	}
}
