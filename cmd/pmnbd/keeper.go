package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"pmnbd/backend/remote"
	"pmnbd/cmd/internal/daemon"
	"pmnbd/nbd/kernel"
	"pmnbd/nbd/wire"
	"pmnbd/status"
)

// retryEvery is how often a keeper tries again: for a server that has gone, and where
// the kernel has not yet seen that a connection ended.
const retryEvery = time.Second

// lockTimeout is how long another command is waited for. What is done under the lock
// takes milliseconds, but for a detach that waits in the kernel for a server.
const lockTimeout = 10 * time.Second

var errDetached = errors.New("the device was detached")

// A keeper gives a device its connections.
type keeper struct {
	host    *host
	dev     kernel.Device
	control status.Place
	want    want
	timeout time.Duration // kernel.Config.DeadConnTimeout
	socks   []sock        // one for each connection of the device
	// device is what was attached, or found attached: nil before, and never another
	// one after.
	device *attachment

	// src is whom the connections that the kernel has not taken are to, and what it
	// said of the export.
	src    *source
	export wire.Export
	sizes  wire.BlockSizes
}

// A sock is a connection, or the place for one.
type sock struct {
	file  *os.File // nil: not connected
	taken bool     // by the kernel
}

// run attaches the device, and with several connections keeps it.
func (k *keeper) run(stdout, stderr io.Writer) error {
	defer k.close()
	err := k.supply(context.Background())
	if k.device == nil {
		return err
	}
	if _, err := fmt.Fprintf(stdout, "attached %v to %s: %d bytes, connections: %d\n", k.dev, k.device.Export, k.device.Size, len(k.socks)); err != nil {
		return err
	}
	if len(k.socks) == 1 {
		return err
	}

	signals, ignore := daemon.Signals()
	defer ignore()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case <-signals:
			cancel()
		case <-ctx.Done():
		}
	}()
	log := daemon.Log(stderr).With(zap.Stringer("device", k.dev))
	daemon.Started(log, fmt.Sprintf("%v is export %s", k.dev, k.device.Export))
	err = k.keep(ctx, log)
	cancel()
	<-ended
	return err
}

// keep replaces connections that hang up, until ctx ends, the device is detached, or the
// server is one that must not follow.
func (k *keeper) keep(ctx context.Context, log *zap.Logger) error {
	stop, end, err := os.Pipe()
	if err != nil {
		return err
	}
	closing := context.AfterFunc(ctx, func() { _ = end.Close() }) // stop shows it
	defer func() { _, _, _ = closing(), end.Close(), stop.Close() }()
	last := "" // what went wrong: a line when it changes, not for each try
	for {
		if err := k.wait(stop); err != nil {
			return err
		}
		if ctx.Err() == nil {
			err = k.supply(ctx)
		}
		if ctx.Err() != nil {
			log.Info("ending: the device stays attached, and nobody replaces its connections")
			return nil
		}
		switch {
		case errors.Is(err, errDetached), errors.Is(err, errForeign):
			log.Info("ending", zap.Error(err))
			return nil
		case errors.Is(err, errNotFollowing):
			return err
		case err != nil && err.Error() != last:
			last = err.Error()
			log.Warn("connections are missing", zap.Error(err))
		case err == nil && k.whole():
			last = ""
			log.Info("connections replaced")
		}
	}
}

// wait waits until a connection hangs up, which it closes, or until it is time to try
// again to have them all, or until stop is closed at its other end.
func (k *keeper) wait(stop *os.File) error {
	var files []*os.File
	var socks []*sock
	timeout := time.Duration(-1)
	for i := range k.socks {
		s := &k.socks[i]
		if s.file != nil {
			files, socks = append(files, s.file), append(socks, s)
		}
		if !s.taken {
			timeout = retryEvery
		}
	}
	hung, _, err := kernel.WaitHangUp(files, stop, timeout)
	for i, gone := range hung {
		if gone {
			socks[i].close()
		}
	}
	return err
}

// whole says that every connection is the kernel's.
func (k *keeper) whole() bool {
	return !slices.ContainsFunc(k.socks, func(s sock) bool { return !s.taken })
}

// close closes our descriptors. The kernel has its own.
func (s *sock) close() {
	if s.file != nil {
		_ = s.file.Close()
	}
	*s = sock{}
}

func (k *keeper) close() {
	for i := range k.socks {
		k.socks[i].close()
	}
}

// supply connects what is not connected, and gives the kernel what it has not. The first
// time it attaches the device if it is not; later that is errDetached.
func (k *keeper) supply(ctx context.Context) error {
	// The device first: if it is not ours any more its server is no business of ours.
	err := k.locked(ctx, func(*attachment) error { return nil })
	if err != nil {
		return err
	}
	missing := k.connect(ctx)
	if missing != nil && !slices.ContainsFunc(k.socks, func(s sock) bool { return s.file != nil && !s.taken }) {
		return missing
	}
	// Asked again, now that there are connections: it is about the process that they
	// are to.
	src, err := findSource(ctx, &k.control, k.want)
	if err != nil {
		return err
	}
	if !src.same(k.src) {
		return fmt.Errorf("another process serves export %s since a moment", src.export)
	}
	return k.locked(ctx, func(a *attachment) error {
		switch {
		case a != nil:
			return errors.Join(k.renew(a, src), missing)
		case missing != nil:
			return missing // the kernel takes no more of them later
		}
		return k.create(src)
	})
}

// locked does something while no other command has the device, which is a's. a is nil,
// before the first attachment, if it is not attached.
func (k *keeper) locked(ctx context.Context, do func(a *attachment) error) error {
	ctx, cancel := context.WithTimeout(ctx, lockTimeout)
	defer cancel()
	unlock, err := k.host.lock(ctx, k.dev)
	if err != nil {
		return err
	}
	defer unlock()
	a, err := k.load()
	if err != nil {
		return err
	}
	return do(a)
}

// load reads the device's attachment, which is the same one as before.
func (k *keeper) load() (*attachment, error) {
	a, err := k.host.load(k.dev)
	switch {
	case err != nil:
		return nil, err
	case k.device != nil && (a == nil || a.Detached || a.Backend != k.device.Backend):
		return nil, errDetached
	case a != nil && a.Detached:
		return nil, fmt.Errorf("%v was detached, but somebody has it open or mounted still", k.dev)
	}
	return a, nil
}

// connect makes the connections that are missing, as many as it can.
func (k *keeper) connect(ctx context.Context) error {
	src, err := findSource(ctx, &k.control, k.want)
	if err != nil {
		return err
	}
	k.want.export = src.export // others may come
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

// config is the device, with the connections that the kernel has not.
func (k *keeper) config(a *attachment) kernel.Config {
	cfg := kernel.Config{
		Index: k.dev.Index, Size: a.Size, BlockSize: a.BlockSize, Flags: a.Flags,
		DeadConnTimeout: k.timeout, Backend: a.Backend,
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

// create attaches the device. It is remembered first: what the kernel has and nobody
// remembers is nobody's.
func (k *keeper) create(src *source) (err error) {
	if s := &src.device; s.State != remote.StateOpen {
		return fmt.Errorf("export %s is %s: %s", src.export, s.State, s.Cause)
	}
	if len(k.socks) > 1 && k.export.Flags&wire.FlagCanMultiConn == 0 {
		return fmt.Errorf("export %s does not take several connections", src.export)
	}
	a := &attachment{
		Backend: "pmnbd:" + uuid.NewString(),
		Export:  src.export, Region: src.device.RegionUUID, Lineage: src.device.Lineage,
		Size: k.export.Size, BlockSize: uint64(max(k.sizes.Min, minBlock)), Flags: k.export.Flags,
		Connections: len(k.socks),
	}
	if err := k.host.save(k.dev, a); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, k.host.forget(k.dev, a.Backend))
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
		return errors.Join(err, c.Disconnect(k.dev.Index))
	}
	k.device = a
	return nil
}

// minBlock is the least logical block of a block device, in bytes.
const minBlock = 512

// prepare readies a device that was just attached. Opening it lets the kernel look for
// partitions, which shall not wait for somebody who does when the server has gone.
func (k *keeper) prepare() error {
	if err := k.dev.LimitRequests(k.sizes.MaxPayload); err != nil {
		return err
	}
	f, err := k.dev.Hold(false)
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		return fmt.Errorf("%v cannot be opened: %w", k.dev, err)
	}
	return nil
}

// renew replaces connections that died. A server that waits for its target will do:
// it goes on where it was, or fails all that it is sent.
func (k *keeper) renew(a *attachment, src *source) error {
	if err := a.follows(&src.device); err != nil {
		return fmt.Errorf("%w: %v stays without a server: run pmnbd detach --force %v, unmount it, and attach it again", err, k.dev, k.dev)
	}
	if s := &src.device; s.State != remote.StateOpen && s.State != remote.StateWaiting {
		return fmt.Errorf("export %s is %s: %s", src.export, s.State, s.Cause)
	}
	if a.Connections != len(k.socks) {
		return fmt.Errorf("%v was attached with %d connections: use --connections %d, or detach it first", k.dev, a.Connections, a.Connections)
	}
	f, err := k.dev.Hold(false)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	// Held now, it stays what it is.
	now, err := k.host.load(k.dev)
	if err != nil {
		return err
	}
	if now == nil || now.Backend != a.Backend {
		return errDetached
	}
	largest, err := k.dev.LargestRequest()
	if err != nil {
		return err
	}
	if err := a.fits(k.export, k.sizes, largest); err != nil {
		return fmt.Errorf("%v waits for a server like the one that it was attached to: %w", k.dev, err)
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

// look asks which connections the kernel took. It may have, when it refused others.
func (k *keeper) look() (err error) {
	for i := range k.socks {
		s := &k.socks[i]
		switch {
		case s.file == nil || s.taken:
		case len(k.socks) == 1:
			s.taken = true // or it was not needed
		default:
			taken, e := kernel.Taken(s.file)
			s.taken, err = taken, errors.Join(err, e)
		}
	}
	return err
}
