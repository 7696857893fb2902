package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/pflag"
	"go.uber.org/zap"

	"pmnbd/backend/remote"
	"pmnbd/cmd/internal/daemon"
	"pmnbd/nbd"
	"pmnbd/rdma/iwarp"
	"pmnbd/status"
)

// openTimeout bounds OPEN. The target may have to flush what a former session
// left before it grants a new one.
const openTimeout = 60 * time.Second

func serve(args []string, stdout, stderr io.Writer) error {
	cfg, err := parse(args, stdout)
	if errors.Is(err, pflag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	signals, stop := daemon.Signals()
	defer stop()
	if cfg.id == uuid.Nil {
		if cfg.id, err = initiatorID(cfg.stateDir); err != nil {
			return err
		}
	}
	var listeners []net.Listener
	var closers []io.Closer
	closeAll := func() {
		for _, c := range closers {
			_ = c.Close() // nobody was served
		}
	}
	for _, spec := range cfg.listen {
		l, err := spec.listen(cfg.socketMode)
		if err != nil {
			closeAll()
			return fmt.Errorf("listen for NBD clients: %w", err)
		}
		listeners, closers = append(listeners, l), append(closers, l)
	}
	control, err := cfg.control.Listen(cfg.export)
	if err != nil {
		closeAll()
		return err
	}
	closers = append(closers, control)

	log := daemon.Log(stderr)
	ctx, cancel := context.WithTimeout(context.Background(), openTimeout)
	ctx, ignore := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	dev, err := remote.Dial(ctx, remote.Config{
		Provider: iwarp.New(iwarp.Config{}), Addr: cfg.target.Address(), Region: cfg.target.Region,
		ID: cfg.id, StateDir: cfg.stateDir, Window: uint64(cfg.window), Lanes: cfg.lanes, AllowVolatile: cfg.allowVolatile, Log: log,
	})
	ignore()
	cancel()
	if err != nil {
		closeAll()
		return err
	}
	server, err := nbd.New(nbd.Config{Logger: log, MaxConnections: remote.DefaultConnections}, nbd.Export{Name: cfg.export, Device: dev})
	if err != nil {
		closeAll()
		return errors.Join(err, dev.Close())
	}
	failed := make(chan error, len(listeners))
	var uris []string
	for _, l := range listeners {
		uris = append(uris, uri(l, cfg.export))
		go func() {
			if err := server.Serve(l); err != nil { // Shutdown ends it
				failed <- err
			}
		}()
	}
	header := status.NewHeader(program)
	shown := status.Serve(control, log, func() any {
		return report{header, uris, server.Snapshot()[0], dev.Snapshot()}
	})
	if err = daemon.Ready(stdout, uris); err == nil {
		select {
		case s := <-signals:
			log.Info("draining", zap.Stringer("signal", s), zap.Duration("timeout", cfg.drainTimeout))
		case err = <-failed:
		}
	}
	err = errors.Join(err, drain(server, dev, signals, cfg.drainTimeout))
	return errors.Join(err, shown.Close())
}

// drain finishes the requests that were read, flushes and gives the region back. A
// client that does not take its replies has half of timeout for it; what others
// wrote must not be lost for its sake. After timeout, or at the next signal, drain
// gives up and says what that costs.
func drain(server *nbd.Server, dev *remote.Device, signals <-chan os.Signal, timeout time.Duration) error {
	done := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), timeout/2)
		defer cancel()
		err := server.Shutdown(ctx)
		if !errors.Is(err, context.DeadlineExceeded) {
			done <- errors.Join(err, dev.Close())
			return
		}
		// Its connections are cut; what the device still owes them ends with it.
		done <- errors.Join(dev.Close(), server.Shutdown(context.Background()))
	}()
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	why := ""
	select {
	case err := <-done:
		return err
	case <-timer.C:
		why = fmt.Sprintf("not drained in %v", timeout)
	case s := <-signals:
		why = fmt.Sprintf("%v while draining", s)
	}
	return fmt.Errorf("%s: %d bytes that were acknowledged are not flushed, and may be lost", why, dev.Unflushed())
}
