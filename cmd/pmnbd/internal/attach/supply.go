package attach

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"pmnbd/backend/remote"
	"pmnbd/cmd/pmnbd/internal/kernel"
	"pmnbd/nbd/wire"
)

const (
	// lockTimeout is how long supply waits for another command. Under the lock a command
	// needs milliseconds, except for a detach that waits in the kernel for a server.
	lockTimeout = 10 * time.Second
	// requestTimeout is what the kernel takes with several connections anyway. Set
	// explicitly, it shows which connections the kernel took (kernel.Taken).
	requestTimeout = 30 * time.Second
	// minBlock is the smallest logical block of a block device, in bytes.
	minBlock = 512
)

// supply makes the connections that are missing and gives them to the kernel. The first time
// it attaches the device if nobody has; later, a device that is not attached is errDetached.
func (k *Keeper) supply(ctx context.Context) error {
	// Look at the device first: if it is not ours any more, neither is its server.
	err := k.withLock(ctx, func(*locked, *Attachment) error { return nil })
	if err != nil {
		return err
	}
	missing := k.connect(ctx)
	if missing != nil && !slices.ContainsFunc(k.socks, func(s sock) bool { return s.file != nil && !s.taken }) {
		return missing
	}
	// Ask again, now that there are connections: the answer must be about the process that
	// they lead to.
	src, err := findSource(ctx, &k.Control, k.Want)
	if err != nil {
		return err
	}
	if !src.same(k.src) {
		return fmt.Errorf("another process started serving export %s", src.export)
	}
	return k.withLock(ctx, func(l *locked, a *Attachment) error {
		switch {
		case a != nil:
			return errors.Join(k.renew(l, a, src), missing)
		case missing != nil:
			return missing // the kernel takes no more connections later
		}
		return k.create(l, src)
	})
}

// withLock locks the device and calls do with its attachment, which is nil if the device was
// never attached.
func (k *Keeper) withLock(ctx context.Context, do func(*locked, *Attachment) error) error {
	ctx, cancel := context.WithTimeout(ctx, lockTimeout)
	defer cancel()
	l, err := k.host.lock(ctx, k.Device)
	if err != nil {
		return err
	}
	defer l.unlock()
	a, err := l.attachment()
	switch {
	case err != nil:
		return err
	case k.device != nil && (a == nil || a.Detached || a.Backend != k.device.Backend):
		return errDetached
	case a != nil && a.Detached:
		return fmt.Errorf("%v was detached, but somebody has it open or mounted still", k.Device)
	}
	return do(l, a)
}

// connect makes the connections that are missing, as many as it can.
func (k *Keeper) connect(ctx context.Context) error {
	src, err := findSource(ctx, &k.Control, k.Want)
	if err != nil {
		return err
	}
	k.Want.Export = src.export // a second export may come
	for i := range k.socks {
		if s := &k.socks[i]; !s.taken && k.src != nil && !src.same(k.src) {
			s.close()
		}
	}
	k.src = src
	for i := range k.socks {
		s := &k.socks[i]
		if s.file != nil {
			continue
		}
		file, export, sizes, err := src.connect(ctx)
		if err != nil {
			return fmt.Errorf("connection %d of %d: %w", i+1, len(k.socks), err)
		}
		s.file, k.export, k.sizes = file, export, sizes
	}
	return nil
}

// config is what the kernel needs to know: the device, and the connections that it has not
// taken.
func (k *Keeper) config(a *Attachment) kernel.Config {
	cfg := kernel.Config{
		Index: k.Device.Index, Size: a.Size, BlockSize: a.BlockSize, Flags: a.Flags,
		DeadConnTimeout: k.Timeout, Backend: a.Backend,
	}
	if len(k.socks) > 1 {
		cfg.Timeout = requestTimeout
	}
	for _, s := range k.socks {
		if s.file != nil && !s.taken {
			cfg.Sockets = append(cfg.Sockets, s.file)
		}
	}
	return cfg
}

// create attaches the device. It saves the attachment first: a device that the kernel has
// and no file remembers would belong to nobody.
func (k *Keeper) create(l *locked, src *source) (err error) {
	if s := &src.device; s.State != remote.StateOpen {
		return fmt.Errorf("export %s is %s: %s", src.export, s.State, s.Cause)
	}
	if len(k.socks) > 1 && k.export.Flags&wire.FlagCanMultiConn == 0 {
		return fmt.Errorf("export %s does not take several connections", src.export)
	}
	a := &Attachment{
		Backend: "pmnbd:" + uuid.NewString(),
		Export:  src.export, Region: src.device.DeviceUUID(), Lineage: src.device.Lineage,
		Size: k.export.Size, BlockSize: uint64(max(k.sizes.Min, minBlock)), Flags: k.export.Flags,
		Connections: len(k.socks),
	}
	if err := l.save(a); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.forget(a.Backend))
		}
	}()
	c, err := k.host.client()
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	if err := c.Connect(k.config(a)); err != nil {
		return err
	}
	for i := range k.socks {
		k.socks[i].taken = true
	}
	if err := k.prepare(); err != nil {
		return errors.Join(err, c.Disconnect(k.Device.Index))
	}
	k.device = a
	return nil
}

// prepare readies a device that was just attached. It opens the device, so that the kernel
// looks for partitions now; if the server goes away, the first user would wait for that.
func (k *Keeper) prepare() error {
	if err := k.Device.LimitRequests(k.sizes.MaxPayload); err != nil {
		return err
	}
	f, err := k.Device.Hold(false)
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		return fmt.Errorf("%v cannot be opened: %w", k.Device, err)
	}
	return nil
}

// renew gives the kernel connections in place of those that ended. A server that waits for
// its target will do: it goes on where it was, or fails every request.
func (k *Keeper) renew(l *locked, a *Attachment, src *source) error {
	if err := a.follows(&src.device); err != nil {
		return fmt.Errorf("%w: %v stays without a server: run pmnbd detach --force %v, unmount it, and attach it again", err, l, l)
	}
	if s := &src.device; s.State != remote.StateOpen && s.State != remote.StateWaiting {
		return fmt.Errorf("export %s is %s: %s", src.export, s.State, s.Cause)
	}
	if a.Connections != len(k.socks) {
		return fmt.Errorf("%v was attached with another number of connections: use --connections %d, or detach it first", l, a.Connections)
	}
	f, err := l.Hold(false)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	now, err := l.attachment() // which stays what it is while we hold the device
	if err != nil {
		return err
	}
	if now == nil || now.Backend != a.Backend {
		return errDetached
	}
	largest, err := l.LargestRequest()
	if err != nil {
		return err
	}
	if err := a.fits(k.export, k.sizes, largest); err != nil {
		return fmt.Errorf("%v waits for a server like the one that it was attached to: %w", l, err)
	}
	c, err := k.host.client()
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	if err := errors.Join(c.Reconfigure(k.config(a)), k.look()); err != nil {
		return err
	}
	k.device = a
	return nil
}

// look finds out which connections the kernel took. It may have taken some although it
// refused the rest.
func (k *Keeper) look() (err error) {
	for i := range k.socks {
		s := &k.socks[i]
		switch {
		case s.file == nil || s.taken:
		case len(k.socks) == 1:
			s.taken = true // or the device did not need it
		default:
			taken, e := kernel.Taken(s.file)
			s.taken, err = taken, errors.Join(err, e)
		}
	}
	return err
}
