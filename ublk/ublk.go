// Package ublk serves a backend.Device as a block device of this machine, /dev/ublkbN, by Linux's
// userspace block driver.
//
// It stands beside package nbd: a client of backend.Device that knows nothing of RDMA. Here the
// kernel's block layer is the only client, and there is no socket:
//
//	dev, err := ublk.Open(ctx, ublk.Config{Device: d, Identity: id})
//	if err != nil {
//		return err
//	}
//	...
//	err = dev.Shutdown(ctx) // then close d; /dev/ublkbN stays, and its I/O waits
//
// Each hardware queue of the block device has an io_uring and a thread of its own. A WRITE's payload
// is copied by the kernel straight to its place in the device's write arena, and a READ's out of the
// read arena (UBLK_F_USER_COPY), so payloads may lie in several chunks. Requests are submitted and
// answered in batches, without an allocation for a request.
//
// The block device outlives its server. While it has none its I/O waits, and what the former one had
// not answered the kernel gives to the next one (UBLK_F_USER_RECOVERY_REISSUE): Config.Recover. The
// next server must have everything that the former one answered, and no other block device may have changed
// the same data meanwhile (Find); the caller sees to both before it calls Open.
//
// The package owns the ring, the memory that it shares with the kernel, and the threads. It may import
// backend and internal/latency. It needs Linux 6.5, CAP_SYS_ADMIN and the module ublk_drv.
package ublk

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"pmnbd/backend"
	"pmnbd/internal/latency"
)

const (
	// MaxQueues bounds the queues of a block device: with more CPUs, several share one.
	MaxQueues = 8
	// maxRequest is the largest READ or WRITE in bytes: what Linux sends to other disks, too.
	maxRequest = 1 << 20
	// Any lets the kernel choose the number of a new device.
	Any = -1
)

// Queues returns how many queues a new block device gets: one for each CPU, MaxQueues at most. A queue
// can hold a chunk of each arena that nobody else gets, as a connection of package nbd can.
func Queues() int { return min(runtime.NumCPU(), MaxQueues) }

// Config says what to serve.
type Config struct {
	Device backend.Device
	// Number is the N of /dev/ublkbN, or Any.
	Number int
	// ReadOnly makes a block device that cannot be written.
	ReadOnly bool
	// Identity tells this block device from one that somebody else made under the same number. The
	// kernel keeps it. It is not 0.
	Identity uint64
	// Recover continues the block device with this Number and Identity, whose server has ended.
	// Without it Open makes a new block device.
	Recover bool
	// Log gets a line when the device begins and ends, and none for a request. Nil logs nothing.
	Log *slog.Logger

	host host // the kernel, unless in tests
}

// A Device is a block device that this process serves.
type Device struct {
	number   int
	identity uint64
	queues   []*queue
	log      *slog.Logger
	host     host

	wg    sync.WaitGroup // threads of queues
	begin chan struct{}  // closed when the queues may fetch
	done  chan struct{}
	file  charDevice

	halting atomic.Bool

	mu  sync.Mutex
	err error // of the first queue that ended by itself
}

// A host is the kernel, for what is not a queue's.
type host interface {
	// command runs a command for the device with that id. It reads and writes buf.
	command(op uint32, id uint32, data uint64, buf []byte) error
	// open opens /dev/ublkcN.
	open(id uint32) (charDevice, error)
	// numbers returns the numbers of all block devices of the driver.
	numbers() ([]int, error)
	// port makes the port of a queue, for the thread that calls it.
	port() (port, error)
	// settle lets a kernel without featureQuiesce do what it still has to do for the former server's end, before there
	// is another server that it would take for that one (ErrForgotten).
	settle()
	// ended reports whether a thread of this process is gone.
	ended(tid int) bool
	close() error
}

// A charDevice is an open /dev/ublkcN, which the kernel gives to one process at a time.
type charDevice interface {
	// connect makes p the port of a queue. Any goroutine may call it, before p's thread fetches.
	connect(p port, number uint16) error
	// owned reports whether a queue has had a server since the last START_USER_RECOVERY.
	owned(number uint16) (bool, error)
	close() error
}

// Path returns the path of the block device with that number.
func Path(number int) string { return fmt.Sprintf("/dev/ublkb%d", number) }

// Number is the N of /dev/ublkbN.
func (d *Device) Number() int { return d.number }

// Path is /dev/ublkbN.
func (d *Device) Path() string { return Path(d.number) }

// Done is closed when the device has no queue any more: after Shutdown, when somebody has removed
// the block device, or when the kernel has forgotten us or broke the protocol. Err tells which.
func (d *Device) Done() <-chan struct{} { return d.done }

// Ending reports whether the device takes nothing more and is ending: Shutdown was called, somebody has
// removed the block device, or a queue has failed.
func (d *Device) Ending() bool { return d.halting.Load() }

// Err returns why a queue has ended by itself, or nil. If the block device was removed it is
// ErrRemoved. If Done is closed and it is ErrForgotten, Open can continue the block device.
func (d *Device) Err() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.err
}

// Open makes a block device and serves it, or continues one. When it returns, the block device can be
// used. ctx bounds how long it waits for the former server's process to end, and for the kernel's search
// for partitions. After that it still waits until the Device has completed what it has.
func Open(ctx context.Context, cfg Config) (_ *Device, err error) {
	d := &Device{number: cfg.Number, identity: cfg.Identity, log: cfg.Log, host: cfg.host, begin: make(chan struct{}), done: make(chan struct{})}
	if d.log == nil {
		d.log = slog.New(slog.DiscardHandler)
	}
	if d.host == nil {
		if d.host, err = openHost(); err != nil {
			return nil, err
		}
	}
	begin := d.create
	if cfg.Recover {
		begin = d.takeOver
	}
	if err := begin(ctx, &cfg); err != nil {
		return nil, errors.Join(err, d.host.close())
	}
	go d.await()
	d.log.Info("block device begins", slog.String("device", d.Path()), slog.Int("queues", len(d.queues)), slog.Bool("continued", cfg.Recover))
	return d, nil
}

// limits returns the bounds of requests, and the same for the kernel.
func (cfg *Config) limits() (rules, params, error) {
	has := cfg.Device.Info()
	r := rules{size: has.Size, readOnly: cfg.ReadOnly, maxIO: min(maxRequest, uint64(has.MaxRequest)) &^ (1<<physicalShift - 1)}
	if has.CanZero {
		r.maxZero = min(cfg.Device.Arenas().MaxZero(), 1<<30) &^ (1<<physicalShift - 1)
	}
	switch {
	case has.Size == 0 || has.Size%(1<<sectorShift) != 0:
		return r, params{}, fmt.Errorf("a device of %d bytes: a block device has whole sectors of 512", has.Size)
	case has.BlockMin > 1<<sectorShift:
		return r, params{}, fmt.Errorf("the device takes blocks of %d bytes, and a block device has 512", has.BlockMin)
	case r.maxIO == 0:
		return r, params{}, fmt.Errorf("the device takes requests of %d bytes: a block device needs 4096", has.MaxRequest)
	}
	return r, params{
		readOnly: cfg.ReadOnly, sectors: has.Size >> sectorShift,
		maxIO: uint32(r.maxIO >> sectorShift), maxZero: uint32(r.maxZero >> sectorShift),
	}, nil
}

// prepare starts the threads of the queues, and has each make what it needs, as far as that does not
// depend on /dev/ublkcN.
func (d *Device) prepare(cfg *Config, r rules, queues int) (err error) {
	made := make(chan error, queues)
	for n := range queues {
		q := newQueue(cfg.Device, r)
		q.fetched = make(chan error, 1)
		d.queues = append(d.queues, q)
		d.wg.Go(func() { ownThread(func() { d.run(q, n, made) }) })
	}
	for range queues {
		err = errors.Join(err, <-made)
	}
	return err
}

// fetch makes this process the device's server. It fails before the first queue has fetched, or hardly
// ever: some kernels cannot continue a device of which only a part had a server (reset).
func (d *Device) fetch() (err error) {
	if d.file, err = d.host.open(uint32(d.number)); err != nil {
		return err
	}
	for n, q := range d.queues {
		if err := d.file.connect(q.port, uint16(n)); err != nil {
			return err
		}
	}
	close(d.begin)
	for _, q := range d.queues {
		err = errors.Join(err, <-q.fetched)
	}
	return err
}

// ownThread runs f on a thread that ends with f, as the kernel takes the end of the thread that has
// fetched for the end of a queue's server. The goroutine ends with ownThread. Go does not end the first
// thread of a process, so that one is not for f.
func ownThread(f func()) {
	runtime.LockOSThread()
	if unix.Gettid() != unix.Getpid() {
		f()
		return
	}
	ended := make(chan struct{})
	go func() { // on another thread: this goroutine has the first
		defer close(ended)
		runtime.LockOSThread()
		f()
	}()
	<-ended
	runtime.UnlockOSThread()
}

// run is what the thread of queue n does.
func (d *Device) run(q *queue, n int, made chan<- error) {
	p, err := d.host.port()
	if err != nil {
		made <- err
		return
	}
	q.own(p)
	made <- nil
	select {
	case <-d.begin:
		err = q.fetch()
	case <-q.stop:
		err = errors.New("the device did not begin")
	}
	q.fetched <- err // also if the queue fetches nothing: Device.fetch waits for each queue
	if err != nil {
		d.fail(n, err)
		return
	}
	err = q.serve()
	if errors.Is(err, ErrRemoved) && d.halting.Load() {
		err = nil // the kernel takes all queues for ended when one has
	}
	if err != nil {
		d.fail(n, err) // first: the end waits for the device, and others must not take more meanwhile
	}
	q.end(err != nil)
}

// fail notes why queue n has ended by itself, and ends the others: a block device with a queue less
// would let I/O wait.
func (d *Device) fail(n int, err error) {
	d.mu.Lock()
	if d.err == nil {
		d.err = fmt.Errorf("queue %d of %s: %w", n, d.Path(), err)
	}
	d.mu.Unlock()
	d.halt()
}

// halt ends the queues. While the device starts they only refuse everything, and start ends them.
func (d *Device) halt() {
	d.halting.Store(true)
	for _, q := range d.queues {
		if q.starting.Load() {
			q.refuse()
		} else {
			q.halt()
		}
	}
}

// await waits for the end of all queues and closes what they shared.
func (d *Device) await() {
	d.wg.Wait()
	err := errors.Join(d.detach(), d.file.close())
	d.mu.Lock()
	if errors.Is(d.err, ErrRemoved) && d.forgotten() {
		d.err = fmt.Errorf("%s: %w", d.Path(), ErrForgotten)
	}
	d.err = errors.Join(d.err, err, d.host.close())
	d.mu.Unlock()
	level := slog.LevelInfo
	var why slog.Attr
	if err := d.Err(); err != nil {
		why = slog.Any("cause", err)
		if !errors.Is(err, ErrRemoved) {
			level = slog.LevelError
		}
	}
	d.log.LogAttrs(context.Background(), level, "block device ends", slog.String("device", d.Path()), why)
	close(d.done)
}

// Shutdown answers the requests that were taken, and takes nothing more. The block device stays, and
// its I/O waits for the next server. If ctx ends first, Shutdown returns its error; requests may still
// be in the Device then: close that, and wait for Done. What the Device has not executed when it is
// closed is left to the next server.
func (d *Device) Shutdown(ctx context.Context) error {
	d.halt()
	select {
	case <-d.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("shut %s down: %w", d.Path(), ctx.Err())
	}
}

// A Snapshot describes a block device at one moment. Its JSON names do not change.
type Snapshot struct {
	Path     string   `json:"path"`
	Queues   int      `json:"queues"`
	Commands Commands `json:"commands"`
	// Latency says how long requests took, from when the server saw them until it answered.
	Latency latency.Requests `json:"latency"`
}

// Snapshot describes the block device. It adds up the counters of the queues.
func (d *Device) Snapshot() Snapshot {
	all := Snapshot{Path: d.Path(), Queues: len(d.queues)}
	for _, q := range d.queues {
		q.mu.Lock()
		counts, took := q.counts, q.took
		q.mu.Unlock()
		all.Commands.Add(&counts)
		all.Latency.Add(&took)
	}
	return all
}
