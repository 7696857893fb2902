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

var errDetached = errors.New("the device was detached")

// A keeper gives a device its connections.
type keeper struct {
	host    *host
	dev     kernel.Device
	control status.Place
	want    want
	timeout time.Duration // kernel.Config.DeadConnTimeout
	socks   []sock        // one for each connection of the device

	// What the server said of the export.
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
	a, err := k.supply(true)
	if err != nil {
		return err
	}
	if err := k.scan(); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(stdout, "attached %v to %s: %d bytes, connections: %d\n", k.dev, a.Export, k.export.Size, len(k.socks)); err != nil {
		return err
	}
	if len(k.socks) == 1 {
		return nil
	}

	signals, ignore := daemon.Signals()
	defer ignore()
	stop, end, err := os.Pipe()
	if err != nil {
		return err
	}
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case <-signals:
		case <-done:
		}
		_ = end.Close() // stop shows it
	}()
	err = k.keep(stop, daemon.Log(stderr).With(zap.Stringer("device", k.dev)))
	close(done)
	<-ended
	return errors.Join(err, stop.Close())
}

// scan opens the device, whereupon the kernel looks for partitions. That shall not wait
// for somebody who opens it when the server has gone.
func (k *keeper) scan() error {
	f, err := k.dev.Hold(false)
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		return fmt.Errorf("%v is attached, and cannot be opened: %w", k.dev, err)
	}
	return nil
}

// keep replaces connections that hang up, until stop is closed at its other end, the
// device is detached, or the server is one that must not follow.
func (k *keeper) keep(stop *os.File, log *zap.Logger) error {
	last := "" // what went wrong: a line when it changes, not for each try
	for {
		stopped, err := k.wait(stop)
		if err != nil {
			return err
		}
		if stopped {
			log.Info("ending: the device stays attached, and nobody replaces its connections")
			return nil
		}
		_, err = k.supply(false)
		switch {
		case errors.Is(err, errDetached):
			log.Info("ending", zap.Error(err))
			return nil
		case errors.Is(err, errNotFollowing), errors.Is(err, errForeign):
			return err
		case err != nil && err.Error() != last:
			last = err.Error()
			log.Warn("connections ended", zap.Error(err))
		case err == nil && k.whole():
			last = ""
			log.Info("connections replaced")
		}
	}
}

// wait waits until a connection hangs up, which it closes, or until it is time to try
// again to have them all.
func (k *keeper) wait(stop *os.File) (stopped bool, err error) {
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
	hung, stopped, err := kernel.WaitHangUp(files, stop, timeout)
	for i, gone := range hung {
		if gone {
			socks[i].close()
		}
	}
	return stopped, err
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

// supply connects what is not connected, and gives the kernel what it has not. first
// attaches the device if it is not; else that is errDetached.
func (k *keeper) supply(first bool) (*attachment, error) {
	ctx := context.Background()
	src, err := findSource(ctx, &k.control, k.want)
	if err != nil {
		return nil, err
	}
	k.want.export = src.export // others may come
	for i := range k.socks {
		if k.socks[i].file == nil {
			if k.socks[i].file, k.export, k.sizes, err = src.connect(ctx); err != nil {
				return nil, err
			}
		}
	}
	// Asked again, now that there are connections: to the process that answers, or to
	// one that is gone.
	if src, err = findSource(ctx, &k.control, k.want); err != nil {
		return nil, err
	}
	if s := &src.device; s.State != remote.StateOpen {
		return nil, fmt.Errorf("export %s is %s: %s", src.export, s.State, s.Cause)
	}
	unlock, err := k.host.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	a, err := k.host.load(k.dev)
	switch {
	case err != nil:
		return nil, err
	case a == nil && first:
		return k.create(src)
	case !first && (a == nil || a.Detached):
		return nil, errDetached
	case a.Detached:
		return nil, fmt.Errorf("%v was detached, but somebody has it open or mounted still", k.dev)
	}
	return a, k.renew(a, src)
}

// config is the device, with the connections that the kernel has not.
func (k *keeper) config(a *attachment) kernel.Config {
	cfg := kernel.Config{
		Index: k.dev.Index, Size: k.export.Size, BlockSize: uint64(max(k.sizes.Min, 512)), Flags: k.export.Flags,
		DeadConnTimeout: k.timeout, Backend: a.Backend,
	}
	if len(k.socks) > 1 {
		cfg.Timeout = requestTimeout
	}
	for _, s := range k.socks {
		if !s.taken {
			cfg.Sockets = append(cfg.Sockets, s.file)
		}
	}
	return cfg
}

// create attaches the device. It is remembered first: what the kernel has and nobody
// remembers is nobody's.
func (k *keeper) create(src *source) (_ *attachment, err error) {
	if len(k.socks) > 1 && k.export.Flags&wire.FlagCanMultiConn == 0 {
		return nil, fmt.Errorf("export %s does not take several connections", src.export)
	}
	a := &attachment{
		Backend: "pmnbd:" + uuid.NewString(), Export: src.export,
		Region: src.device.RegionUUID, Epoch: src.device.Epoch, Connections: len(k.socks),
	}
	if err := k.host.save(k.dev, a); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, k.host.forget(k.dev))
		}
	}()
	c, err := k.host.client()
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.Close() }()
	if err := c.Connect(k.config(a)); err != nil {
		return nil, err
	}
	for i := range k.socks {
		k.socks[i].taken = true
	}
	if err := k.dev.LimitRequests(k.sizes.MaxPayload); err != nil {
		return nil, errors.Join(err, c.Disconnect(k.dev.Index))
	}
	return a, nil
}

// renew replaces connections that died.
func (k *keeper) renew(a *attachment, src *source) error {
	if err := a.follows(&src.device); err != nil {
		return fmt.Errorf("%w: %v stays without a server: run pmnbd detach --force %v, unmount it, and attach it again", err, k.dev, k.dev)
	}
	if a.Connections != len(k.socks) {
		return fmt.Errorf("%v was attached with %d connections: use --connections %d, or detach it first", k.dev, a.Connections, a.Connections)
	}
	f, err := k.dev.Hold(false)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if s, err := k.dev.State(); err != nil || s.Backend != a.Backend {
		return errors.Join(errDetached, err)
	}
	c, err := k.host.client()
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	if err := c.Reconfigure(k.config(a)); err != nil {
		return err
	}
	for i := range k.socks {
		s := &k.socks[i]
		if len(k.socks) == 1 {
			s.taken = true // or it was not needed
		} else if s.taken, err = kernel.Taken(s.file); err != nil {
			return err
		}
	}
	a.Epoch = src.device.Epoch
	return k.host.save(k.dev, a)
}
