package ublk

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

var (
	// ErrRemoved is the error of a block device that somebody has removed.
	ErrRemoved = errors.New("the block device was removed")
	// ErrForgotten is the error of a block device whose server the kernel took for ended while it lived. The
	// block device waits for the next server, with everything that was not answered. Linux before 6.16 acts on
	// the end of a server once for each queue, in the background, and may still do so when the next one has begun.
	ErrForgotten = errors.New("the kernel took the block device's server for ended")
	// ErrNone is the error of a number without a block device.
	ErrNone = errors.New("there is no such block device")
	// ErrOther is the error of a block device with another identity.
	ErrOther = errors.New("it is somebody else's and is left alone")
	// ErrHalf is the error of a block device that no server can continue any more: one was killed while
	// it took the device over, and the kernel is older than 6.16.
	ErrHalf = errors.New("a start was killed while it took the block device over, and this kernel does not let another one do that")
)

// create makes a block device.
func (d *Device) create(ctx context.Context, cfg *Config) error {
	r, p, err := cfg.limits()
	if err != nil {
		return err
	}
	if _, err := d.canServe(); err != nil {
		return err
	}
	asks := info{queues: uint16(Queues()), depth: depth, maxIO: uint32(r.maxIO), id: anyID, flags: features, identity: cfg.Identity}
	if cfg.Number != Any {
		asks.id = uint32(cfg.Number)
	}
	buf := make([]byte, infoSize)
	asks.put(buf)
	switch err := d.host.command(cmdAdd, asks.id, 0, buf); {
	case errors.Is(err, unix.EEXIST):
		return fmt.Errorf("%s exists already: choose another number, or remove it with pmnbd detach", d.Path())
	case err != nil:
		return fmt.Errorf("make a block device: %w", err)
	}
	has := getInfo(buf)
	d.number = int(has.id)
	err = has.check()
	if err == nil {
		buf = make([]byte, paramsSize)
		p.put(buf)
		err = d.host.command(cmdSetParams, has.id, 0, buf)
	}
	if err == nil {
		err = d.prepare(cfg, r, int(has.queues))
	}
	if err == nil {
		err = d.fetch()
	}
	if err == nil {
		err = d.start(ctx)
	}
	if err == nil {
		return nil
	}
	err = fmt.Errorf("make %s: %w", d.Path(), err)
	return errors.Join(err, d.abandon(), d.host.command(cmdDelete, has.id, 0, nil))
}

// start starts the device. Kernels older than 6.19 read the partition table before that command returns,
// through the queues, and a process that is killed meanwhile waits for itself. So when ctx ends, the
// queues refuse what the kernel reads. Until the command returns the queues leave nothing to a next server:
// none can begin, and the command would wait for ever.
func (d *Device) start(ctx context.Context) error {
	for _, q := range d.queues {
		q.starting.Store(true)
	}
	started := make(chan error, 1)
	go func() {
		err := d.host.command(cmdStart, uint32(d.number), uint64(os.Getpid()), nil)
		for _, q := range d.queues {
			q.starting.Store(false)
		}
		if d.halting.Load() {
			d.halt() // a queue has failed meanwhile
		}
		started <- err
	}()
	select {
	case err := <-started:
		return err
	case <-ctx.Done():
		for _, q := range d.queues {
			q.refuse()
		}
		return errors.Join(fmt.Errorf("the kernel's search for partitions had to be ended: %w", context.Cause(ctx)), <-started)
	}
}

// pollRecovery is how often takeOver looks whether the process of the former server has ended. The
// kernel does not report that.
const pollRecovery = 20 * time.Millisecond

// takeOver continues a block device whose server has ended.
func (d *Device) takeOver(ctx context.Context, cfg *Config) error {
	r, p, err := cfg.limits()
	if err != nil {
		return err
	}
	kernel, err := d.canServe()
	if err != nil {
		return err
	}
	has, err := inspect(d.host, d.number)
	switch {
	case err != nil:
		return err
	case has.identity != cfg.Identity:
		return fmt.Errorf("%s: %w", d.Path(), ErrOther)
	case has.state == stateDead:
		if err := d.clear(ctx); err != nil {
			return err
		}
		return d.create(ctx, cfg)
	}
	if err := has.check(); err != nil {
		return fmt.Errorf("continue %s: %w", d.Path(), err)
	}
	if err := d.fits(p); err != nil {
		return fmt.Errorf("continue %s: %w", d.Path(), err)
	}
	err = d.prepare(cfg, r, int(has.queues))
	if err == nil {
		err = d.awaitReset(ctx, has, kernel)
	}
	if err == nil {
		// This is the last look at ctx. From here on the device has to begin: some kernels cannot continue one that
		// only some queues have fetched (reset).
		err = context.Cause(ctx)
	}
	if err == nil {
		err = d.fetch()
	}
	if err == nil {
		err = d.host.command(cmdEndRecovery, has.id, uint64(os.Getpid()), nil)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("continue %s: %w", d.Path(), err), d.abandon())
	}
	return nil
}

// awaitReset waits until the former server has ended, and resets the device.
func (d *Device) awaitReset(ctx context.Context, has info, kernel uint64) error {
	for {
		err := d.reset(has, kernel)
		if err == nil && kernel&featureQuiesce == 0 {
			d.host.settle()
		}
		if !errors.Is(err, unix.EBUSY) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the process that serves it has not ended (pid %d): %w", has.pid, ctx.Err())
		case <-time.After(pollRecovery):
		}
	}
}

// reset makes the kernel forget the former server. Kernels with featureQuiesce have done that when the
// server closed the device, and START_USER_RECOVERY is an announcement. Older ones forget with this
// command, which one process has then given before it was killed. To give it again is an error there,
// or, as long as some queues have a server and others have none, crashes the kernel. So the queues are
// asked first. EBUSY says that the former server has not ended.
func (d *Device) reset(has info, kernel uint64) error {
	if kernel&featureQuiesce == 0 {
		owned, err := d.owned(has)
		switch {
		case err != nil:
			return err
		case owned == 0:
			return nil
		case owned < int(has.queues):
			return ErrHalf
		}
	}
	return d.host.command(cmdStartRecovery, has.id, 0, nil)
}

// owned counts the queues that have had a server since the last START_USER_RECOVERY.
func (d *Device) owned(has info) (n int, err error) {
	f, err := d.host.open(has.id)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.close()) }()
	for q := range has.queues {
		is, err := f.owned(q)
		if err != nil {
			return 0, err
		}
		if is {
			n++
		}
	}
	return n, nil
}

// clear removes what is left of a block device that is stopped, or never began: nobody can do I/O on
// it. The kernel keeps the number until all who have it open have closed it.
func (d *Device) clear(ctx context.Context) error {
	removed := make(chan error, 1)
	go func() { removed <- d.host.command(cmdDelete, uint32(d.number), 0, nil) }()
	select {
	case err := <-removed:
		if err != nil {
			return fmt.Errorf("remove %s, which is stopped: %w", d.Path(), err)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s is stopped, and a process still has it open or mounted: %w", d.Path(), ctx.Err())
	}
}

// fits checks that a device with limits p takes what the kernel was told once.
func (d *Device) fits(p params) error {
	buf := make([]byte, paramsSize)
	native.PutUint32(buf, paramsSize)
	if err := d.host.command(cmdGetParams, uint32(d.number), 0, buf); err != nil {
		return err
	}
	told := getParams(buf)
	switch {
	case told.sectors != p.sectors:
		return fmt.Errorf("the device has %d bytes, the block device %d", p.sectors<<sectorShift, told.sectors<<sectorShift)
	case told.readOnly != p.readOnly:
		return fmt.Errorf("the device was made read-only: %v, the block device: %v", p.readOnly, told.readOnly)
	case told.maxIO > p.maxIO:
		return fmt.Errorf("it sends requests of %d bytes, and the device takes %d: serve with a larger --window", told.maxIO<<sectorShift, p.maxIO<<sectorShift)
	case told.maxZero > p.maxZero:
		return fmt.Errorf("it sends zeroes of %d bytes, and the device takes %d: serve with a larger --window", uint64(told.maxZero)<<sectorShift, uint64(p.maxZero)<<sectorShift)
	}
	return nil
}

// abandon ends the queues of a device that did not begin.
func (d *Device) abandon() error {
	d.halt()
	d.wg.Wait()
	err := d.detach()
	if d.file == nil {
		return err
	}
	return errors.Join(err, d.file.close())
}

// forgotten reports whether a block device that seems to be removed is still there: a removal makes it dead before it
// takes the fetches back. If the kernel forgot the server before END_USER_RECOVERY, the device is live until its
// requests time out.
func (d *Device) forgotten() bool {
	has, err := inspect(d.host, d.number)
	return err == nil && has.state != stateDead && has.identity == d.identity
}

// canServe checks that the kernel has what this package needs, and returns the features that it has.
func (d *Device) canServe() (has uint64, err error) {
	buf := make([]byte, featuresSize)
	err = d.host.command(cmdFeatures, anyID, 0, buf)
	if has = native.Uint64(buf); err != nil || has&features != features {
		return 0, fmt.Errorf("the kernel's ublk driver is too old, it needs Linux 6.5 (features %#x): %w", has, errors.Join(err, unix.EOPNOTSUPP))
	}
	return has, nil
}

// inspect asks the kernel about a block device.
func inspect(h host, number int) (info, error) {
	buf := make([]byte, infoSize)
	err := h.command(cmdGetInfo, uint32(number), 0, buf)
	switch {
	case errors.Is(err, unix.ENODEV):
		return info{}, fmt.Errorf("%s: %w", Path(number), ErrNone)
	case err != nil:
		return info{}, fmt.Errorf("ask about %s: %w", Path(number), err)
	}
	return getInfo(buf), nil
}

// A State is what the kernel says of a block device.
type State struct {
	Identity uint64
	PID      int  // of the server that has begun with it last
	Served   bool // by a process that lives
}

// Inspect asks the kernel about /dev/ublkbN. The error is ErrNone if there is none.
func Inspect(number int) (State, error) {
	h, err := openHost()
	if err != nil {
		return State{}, err
	}
	has, err := inspect(h, number)
	return State{Identity: has.identity, PID: int(has.pid), Served: has.state == stateLive}, errors.Join(err, h.close())
}

// Stop ends /dev/ublkbN if it has this identity: I/O fails from now on. A server that lives first
// answers what it has taken; Stop waits for that.
func Stop(number int, identity uint64) error { return order(cmdStop, "stop", number, identity) }

// Delete gives the number of a stopped block device free. It waits until its server and all who have
// it open have let go of it. If a server has begun with that number again, it serves on.
func Delete(number int, identity uint64) error { return order(cmdDelete, "remove", number, identity) }

func order(op uint32, what string, number int, identity uint64) error {
	h, err := openHost()
	if err != nil {
		return err
	}
	return errors.Join(orderOf(h, op, what, number, identity), h.close())
}

func orderOf(h host, op uint32, what string, number int, identity uint64) error {
	has, err := inspect(h, number)
	if err != nil {
		return err
	}
	if has.identity != identity {
		return fmt.Errorf("%s: %w", Path(number), ErrOther)
	}
	if op == cmdDelete && has.state == stateLive {
		return nil // the kernel would stop it first
	}
	if err := h.command(op, uint32(number), 0, nil); err != nil {
		return fmt.Errorf("%s %s: %w", what, Path(number), err)
	}
	return nil
}
