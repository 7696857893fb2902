package ublk

import (
	"errors"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// A fakeKernel is the driver, as far as this package can see it: devices, their states, queues, and
// requests that wait, are delivered, and are given to the next server. mu guards all of it.
type fakeKernel struct {
	queues   uint16      // that a device gets at most; 0: as many as it asks for
	closing  func()      // if not nil, called when a queue ends
	settles  func()      // if not nil, called by settle
	lives    func() bool // if not nil, reports whether a thread that has ended still lives
	scans    int         // START_DEV waits for so many READs, one after the other
	mu       sync.Mutex
	changed  sync.Cond
	features uint64
	devices  map[uint32]*fakeDevice
	// lie changes what ADD_DEV and GET_DEV_INFO answer.
	lie func(*info)
	// refuse is the result of every FETCH.
	refuse int32
	hosts  int // open
	// settled is how often settle was called while nobody had opened a device.
	settled int
	// scanned are the results of those READs.
	scanned []int32
}

type fakeDevice struct {
	k       *fakeKernel
	info    info
	params  params
	state   uint16
	open    bool // the char device
	dying   int  // how often START_USER_RECOVERY still finds the former process
	queues  []*fakeQueue
	waiting []*fakeRequest  // those that no server has
	owners  map[uint16]bool // queues that had a server since the last reset
	mapped  bool            // by some process since then
}

// A fakeQueue is a queue of a device that has a server. It is the server's port.
type fakeQueue struct {
	k         *fakeKernel
	d         *fakeDevice // nil until it is connected
	number    uint16
	fetched   map[uint16]bool // the kernel may deliver with these tags
	delivered map[uint16]*fakeRequest
	cq        []completion
	sq        []func()
	woken     bool
	closed    bool
	enters    int // how often enter was called
	copies    error
	killed    error // the process is dead
}

func newKernel() *fakeKernel {
	k := &fakeKernel{features: features, devices: map[uint32]*fakeDevice{}}
	k.changed.L = &k.mu
	return k
}

func (k *fakeKernel) host() host {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.hosts++
	return k
}

func (k *fakeKernel) close() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.hosts--
	return nil
}

func (k *fakeKernel) command(op uint32, id uint32, data uint64, buf []byte) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch op {
	case cmdFeatures:
		native.PutUint64(buf, k.features)
		return nil
	case cmdAdd:
		return k.addLocked(id, buf)
	}
	d := k.devices[id]
	if d == nil {
		return unix.ENODEV
	}
	switch op {
	case cmdGetInfo:
		has := d.info
		has.state = d.state
		if k.lie != nil {
			k.lie(&has)
		}
		has.put(buf)
	case cmdSetParams:
		d.params = getParams(buf)
	case cmdGetParams:
		d.params.put(buf)
	case cmdStart, cmdEndRecovery:
		if len(d.queues) != int(d.info.queues) {
			return unix.EIO // the kernel would wait
		}
		d.info.pid, d.state = int32(data), stateLive
		again := d.waiting
		d.waiting = nil
		for _, rq := range again {
			d.deliverLocked(rq)
		}
		for op == cmdStart && len(k.scanned) < k.scans {
			k.mu.Unlock()
			result := <-(&disk{d: d}).begin(opRead, 0, 4096, make([]byte, 4096)).done
			k.mu.Lock()
			k.scanned = append(k.scanned, result)
		}
	case cmdStartRecovery:
		if d.dying > 0 {
			d.dying--
			return unix.EBUSY
		}
		switch {
		case k.features&featureQuiesce == 0 && len(d.owners) == 0:
			return unix.EINVAL
		case d.open || d.state != stateQuiesced:
			return unix.EBUSY
		case k.features&featureQuiesce == 0 && len(d.owners) < int(d.info.queues):
			panic("the kernel crashes")
		}
		d.resetLocked()
	case cmdStop:
		d.stopLocked()
	case cmdDelete:
		d.stopLocked()
		for d.open {
			k.changed.Wait()
		}
		delete(k.devices, id)
	default:
		return unix.EOPNOTSUPP
	}
	return nil
}

func (k *fakeKernel) addLocked(id uint32, buf []byte) error {
	has := getInfo(buf)
	if id == anyID {
		for id = 0; k.devices[id] != nil; id++ {
		}
	}
	if k.devices[id] != nil {
		return unix.EEXIST
	}
	has.id = id
	if k.queues > 0 {
		has.queues = k.queues
	}
	k.devices[id] = &fakeDevice{k: k, info: has, owners: map[uint16]bool{}}
	if k.lie != nil {
		k.lie(&has)
	}
	has.put(buf)
	return nil
}

func (d *fakeDevice) stopLocked() {
	for d.state == stateLive && slices.ContainsFunc(d.queues, func(q *fakeQueue) bool { return len(q.delivered) > 0 }) {
		d.k.changed.Wait()
	}
	d.state = stateDead
	for _, rq := range d.waiting {
		rq.done <- -int32(unix.EIO)
	}
	d.waiting = nil
	d.cancelLocked()
}

// cancelLocked gives the commands of all queues back, once nobody owes an answer.
func (d *fakeDevice) cancelLocked() {
	if slices.ContainsFunc(d.queues, func(q *fakeQueue) bool { return len(q.delivered) > 0 }) {
		return
	}
	for _, q := range d.queues {
		for tag := range q.fetched {
			q.cq = append(q.cq, completion{uint32(tag), -int32(unix.ENODEV)})
		}
		clear(q.fetched)
	}
	d.k.changed.Broadcast()
}

func (d *fakeDevice) resetLocked() {
	clear(d.owners)
	d.mapped = false
}

func (k *fakeKernel) open(id uint32) (charDevice, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	d := k.devices[id]
	switch {
	case d == nil:
		return nil, unix.ENOENT
	case d.open:
		return nil, unix.EBUSY
	}
	d.open, d.queues = true, nil
	return d, nil
}

func (d *fakeDevice) close() error {
	d.k.mu.Lock()
	defer d.k.mu.Unlock()
	if len(d.queues) == 0 || d.queues[0].killed == nil {
		d.open = false
		if d.k.features&featureQuiesce != 0 {
			d.resetLocked()
		}
	}
	d.k.changed.Broadcast()
	return nil
}

func (k *fakeKernel) settle() {
	if k.settles != nil {
		k.settles()
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, d := range k.devices {
		if d.open {
			return
		}
	}
	k.settled++
}

func (k *fakeKernel) ended(int) bool { return k.lives == nil || !k.lives() }

func (k *fakeKernel) port() (port, error) {
	return &fakeQueue{k: k, fetched: map[uint16]bool{}, delivered: map[uint16]*fakeRequest{}}, nil
}

func (d *fakeDevice) connect(p port, number uint16) error {
	d.k.mu.Lock()
	defer d.k.mu.Unlock()
	if d.mapped && number == 0 {
		return errors.Join(unix.EINVAL, ErrHalf)
	}
	d.mapped = true
	q := p.(*fakeQueue)
	q.d, q.number = d, number
	d.queues = append(d.queues, q)
	return nil
}

func (d *fakeDevice) owned(number uint16) (bool, error) {
	d.k.mu.Lock()
	defer d.k.mu.Unlock()
	return d.owners[number], nil
}

func (q *fakeQueue) lock() func() { q.k.mu.Lock(); return q.k.mu.Unlock }

func (q *fakeQueue) descriptor(tag uint16) descriptor {
	defer q.lock()()
	if q.killed != nil {
		return descriptor{opFlags: opFlush}
	}
	return q.delivered[tag].desc
}

func (q *fakeQueue) fetch(tag uint16) {
	q.sq = append(q.sq, func() {
		if q.d.k.refuse != 0 {
			q.cq = append(q.cq, completion{uint32(tag), q.d.k.refuse})
			return
		}
		q.fetched[tag] = true
		q.d.owners[q.number] = true
	})
}

func (q *fakeQueue) commit(tag uint16, result int32) {
	q.sq = append(q.sq, func() {
		rq := q.delivered[tag]
		if rq == nil {
			panic("a commit of nothing")
		}
		delete(q.delivered, tag)
		if q.d.state == stateDead {
			q.cq = append(q.cq, completion{uint32(tag), -int32(unix.ENODEV)})
		} else {
			q.fetched[tag] = true
		}
		rq.done <- result
		for _, next := range q.d.waiting {
			q.d.waiting = q.d.waiting[1:]
			q.d.deliverLocked(next)
			break
		}
		if q.d.state == stateQuiesced {
			q.d.cancelLocked()
		}
		q.d.k.changed.Broadcast()
	})
}

func (q *fakeQueue) enter(wait bool) error {
	defer q.lock()()
	q.enters++
	if q.killed != nil {
		return q.killed
	}
	for _, do := range q.sq {
		do()
	}
	q.sq = q.sq[:0]
	for wait && len(q.cq) == 0 && !q.woken && q.killed == nil {
		q.d.k.changed.Wait()
	}
	q.woken = false
	return q.killed
}

func (q *fakeQueue) next() (completion, bool) {
	defer q.lock()()
	if len(q.cq) == 0 {
		return completion{}, false
	}
	c := q.cq[0]
	q.cq = q.cq[1:]
	q.d.k.changed.Broadcast()
	return c, true
}

func (q *fakeQueue) receive(tag uint16, off int, p []byte) error {
	defer q.lock()()
	if err := errors.Join(q.copies, q.killed); err != nil {
		return err
	}
	copy(p, q.delivered[tag].payload[off:][:len(p)])
	return nil
}

func (q *fakeQueue) send(tag uint16, off int, p []byte) error {
	defer q.lock()()
	if err := errors.Join(q.copies, q.killed); err != nil {
		return err
	}
	copy(q.delivered[tag].payload[off:][:len(p)], p)
	return nil
}

func (q *fakeQueue) wake() {
	defer q.lock()()
	q.woken = true
	q.k.changed.Broadcast()
}

// close ends the queue's server: what it has not answered waits for the next one.
func (q *fakeQueue) close() error {
	if q.k.closing != nil {
		q.k.closing()
	}
	defer q.lock()()
	if q.closed {
		return errors.New("closed twice")
	}
	q.closed = true
	if q.killed != nil || q.d == nil {
		return nil // the kernel has closed all, or has nothing of it
	}
	// Old kernels learn of the end from what the server still has.
	if q.d.state == stateLive && (len(q.fetched)+len(q.delivered) > 0 || q.k.features&featureQuiesce != 0) {
		q.d.state = stateQuiesced
	}
	for _, rq := range q.delivered {
		q.d.waiting = append(q.d.waiting, rq)
	}
	clear(q.delivered)
	clear(q.fetched)
	q.d.cancelLocked()
	return nil
}
