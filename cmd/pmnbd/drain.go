package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"go.uber.org/zap"

	"pmnbd/cmd/internal/daemon"
)

// drain finishes the requests that were read, flushes, and closes the regions. A client that
// does not take its replies has half of --drain-timeout for that, so that the writes of others
// are not lost for its sake. After --drain-timeout, or at the next signal, drain gives up and
// returns an error that says what that costs.
func (s *initiator) drain(signals <-chan os.Signal) error {
	daemon.Stopping(s.log, s.cfg.drainTimeout)
	if ended := s.reloader.Close(); ended != nil {
		// What the reload has removed may take as long.
		select {
		case <-ended:
		case sig := <-signals:
			return notDrained(fmt.Sprintf("%v while a reload was ending", sig), s.unflushed())
		}
		daemon.Stopping(s.log, s.cfg.drainTimeout)
	}
	defer daemon.Every(daemon.SayEvery, s.sayDrain)()
	done := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), s.cfg.drainTimeout/2)
		defer cancel()
		err := s.endClients(ctx)
		if !errors.Is(err, context.DeadlineExceeded) {
			done <- errors.Join(err, s.closeDevices())
			return
		}
		// Shutdown has cut the connections. It ends once the devices have completed what
		// they still owe these. A block device leaves that to the next pmnbd.
		err = errors.Join(s.closeDevices(), s.nbd.Shutdown(context.Background()))
		s.ublks.wait()
		done <- err
	}()
	timer := time.NewTimer(s.cfg.drainTimeout)
	defer timer.Stop()
	why := ""
	select {
	case err := <-done:
		return err
	case <-timer.C:
		why = fmt.Sprintf("not drained in %v", s.cfg.drainTimeout)
	case sig := <-signals:
		why = fmt.Sprintf("%v while draining", sig)
	}
	return notDrained(why, s.unflushed())
}

// endClients ends the block devices and the connections of NBD clients, all at once, so that one whose
// target is away takes no time from the others.
func (s *initiator) endClients(ctx context.Context) error {
	blocks := make(chan error, 1)
	go func() { blocks <- s.ublks.shutdown(ctx) }()
	err := s.nbd.Shutdown(ctx)
	return errors.Join(<-blocks, err)
}

// sayDrain logs how far draining is.
func (s *initiator) sayDrain() {
	clients := 0
	for _, x := range s.nbd.Snapshot() {
		clients += x.Connections
	}
	s.sayUnflushed("draining: the rest is flushed first", s.exports(), zap.Int("clients", clients))
}

// sayUnflushed logs what exports still have to flush.
func (s *initiator) sayUnflushed(what string, exports []*export, more ...zap.Field) {
	for _, x := range exports {
		shot := x.dev.Snapshot()
		s.log.Info(what, append([]zap.Field{zap.String("export", x.name), zap.String("state", string(shot.State)),
			zap.Uint64("unflushed_bytes", shot.Window.Unflushed)}, more...)...)
	}
}

// notDrained is the error of a drain that gave up, with unflushed bytes.
func notDrained(why string, unflushed uint64) error {
	if unflushed == 0 {
		return fmt.Errorf("%s: nothing is lost: all that was acknowledged is flushed; the next start takes the regions back", why)
	}
	return fmt.Errorf("%s: %d bytes that were acknowledged are not flushed: start pmnbd again on this host before it reboots, or they are lost", why, unflushed)
}

// closeDevices closes all devices.
func (s *initiator) closeDevices() error {
	return closing(s.exports(), func(x *export) error { return x.dev.Close() })
}

// closing closes exports at once, so that a slow one takes no time from the others.
func closing(exports []*export, closes func(*export) error) error {
	errs := make([]error, len(exports))
	var all sync.WaitGroup
	for i, x := range exports {
		all.Go(func() {
			if err := closes(x); err != nil {
				errs[i] = fmt.Errorf("export %q: %w", x.name, err)
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}
