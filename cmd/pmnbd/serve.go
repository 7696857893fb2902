package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/pflag"
	"go.uber.org/zap"

	"pmnbd/backend/remote"
	"pmnbd/cmd/internal/command"
	"pmnbd/cmd/internal/daemon"
	"pmnbd/cmd/internal/flags"
	"pmnbd/cmd/internal/reload"
	"pmnbd/cmd/internal/status"
	"pmnbd/cmd/pmnbd/internal/arbiter"
	"pmnbd/cmd/pmnbd/internal/report"
	"pmnbd/internal/endpoint"
	"pmnbd/internal/sockio"
	"pmnbd/nbd"
	"pmnbd/ublk"
)

// openTimeout bounds each request to the target at a start, and how long the replay of a
// window that an earlier run left may make no progress. Before the target grants a session it
// may have to flush what the one before wrote.
const openTimeout = 60 * time.Second

// An initiator is everything that serve opened.
type initiator struct {
	cfg       config
	log       *zap.Logger
	id        uuid.UUID
	listeners []net.Listener
	control   net.Listener
	metrics   net.Listener // nil: none
	keys      keyring
	arbiter   *arbiter.Etcd // nil: none
	ublks     ublks
	nbd       *nbd.Server
	shown     shown
	follow    daemon.Follower   // tells systemd how it is
	ordering  chan struct{}     // has one while an order, a reload or an attach --ublk goes on: see turn
	args      []string          // of the command line
	said      map[string]string // what its flags and the file said last, by flag
	reloader  *reload.Reloader

	mu      sync.Mutex // guards what follows
	all     []*export  // the first is the default
	leaving []*export  // that nobody is served any more, and that are being flushed
	left    time.Time  // since when
}

// exports returns the exports that are open.
func (s *initiator) exports() []*export {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.all)
}

func (s *initiator) setExports(all []*export) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = all
}

// setLeaving notes which exports a reload is ending.
func (s *initiator) setLeaving(all []*export) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.leaving) == 0 {
		s.left = time.Now()
	}
	s.leaving = all
}

// reportLeaving adds the exports that a reload is ending.
func (s *initiator) reportLeaving(d *report.Document) {
	s.mu.Lock()
	leaving, since := s.leaving, s.left.UTC().Round(time.Millisecond)
	s.mu.Unlock()
	for _, x := range leaving {
		if shot := x.dev.Snapshot(); shot.State != remote.StateClosed {
			d.Removing = append(d.Removing, report.Removing{Name: x.name, Since: since, Device: shot})
		}
	}
}

// unflushed counts the bytes that were acknowledged and are not flushed, of exports that a reload is
// ending, too.
func (s *initiator) unflushed() (n uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range slices.Concat(s.all, s.leaving) {
		n += x.dev.Unflushed()
	}
	return n
}

// An export is an open region, and the URIs by which clients reach it.
type export struct {
	name    string
	uris    []string
	dev     *remote.Device
	targets []endpoint.Endpoint // that the next start names; changed by orders
	said    []endpoint.Endpoint // that the command line or the file named
	keys    []string            // the names of targets, for whose keys it asks; "" without keys
}

// has tells whether e leads to a region of the export.
func (x *export) has(e endpoint.Endpoint) bool { return slices.ContainsFunc(x.targets, e.Same) }

// drop forgets the members that gone names.
func (x *export) drop(gone func(endpoint.Endpoint) bool) {
	var targets []endpoint.Endpoint // targets may be what the file said, too
	var keys []string
	for i, e := range x.targets {
		if !gone(e) {
			targets, keys = append(targets, e), append(keys, x.keys[i])
		}
	}
	x.targets, x.keys = targets, keys
}

// exitLoss is the exit code of a pmnbd that would lose what an earlier one acknowledged, whose mirror
// cannot begin, or whose ublk device cannot. A person has to decide. Starting it again, as after other
// failures, does not help.
const exitLoss = 3

// serve runs `pmnbd serve`.
func serve(call *command.Call) error {
	cfg, err := parse(call)
	switch {
	case cfg.checkOnly && err != nil && !errors.Is(err, pflag.ErrHelp):
		return command.Problems(call, err)
	case err != nil:
		return err
	case cfg.checkOnly:
		_, err = fmt.Fprintf(call.Stdout, "ok: %s, %s\n", flags.Count(len(cfg.exports), "export"), flags.Count(len(cfg.listen), "listener"))
		return err
	}
	sockio.Procs()
	daemon.CrashBySignal()
	daemon.HoldReload()
	signalled, forget := daemon.UntilSignal() // first: a signal that comes before Signals ends the start
	defer forget()
	signals, stop := daemon.Signals()
	defer stop()
	log := daemon.LogAt(call.Stderr, cfg.logLevel)
	defer daemon.OnToggle(log, cfg.logLevel)()
	s, err := open(signalled, call, cfg, log)
	if err == nil {
		err = s.run(call.Stdout, signals)
	}
	if errors.As(err, new(*remote.LossError)) || errors.As(err, new(*remote.MirrorError)) {
		err = command.WithCode(err, exitLoss)
	}
	return err
}

// open opens everything, or nothing. If signalled ends, a signal has asked the process to end, also one that
// came before the first region is opened.
func open(signalled context.Context, call *command.Call, cfg config, log *zap.Logger) (_ *initiator, err error) {
	s := &initiator{cfg: cfg, log: log, id: cfg.id, ordering: make(chan struct{}, 1), args: call.Args, said: settings(call.Flags)}
	s.reloader = reload.New(log, s.reload)
	s.reloader.Nothing, s.reloader.Starting = cfg.keyFile == "" && cfg.file == "", s.reloadKeys
	s.ublks.failed, s.ublks.closing = make(chan error, 1), make(chan struct{})
	s.ublks.kernel, s.ublks.again = ublkKernel{find: ublk.Find, inspect: ublk.Inspect}, s.continueUblk
	var opened daemon.Opened
	defer opened.CloseOn(&err)
	if s.listeners, err = handedOver(); err != nil {
		return nil, err
	}
	for _, l := range s.listeners {
		opened.Add(l)
	}
	if len(s.listeners)+len(cfg.listen)+len(cfg.ublk) == 0 {
		return nil, flags.Usagef("nowhere to serve: use --listen unix:/PATH, --listen tcp:HOST:PORT or --ublk /dev/ublkbN")
	}
	if s.id == uuid.Nil {
		if s.id, err = remote.InitiatorID(cfg.stateDir); err != nil {
			return nil, err
		}
	}
	defer func() {
		if err != nil {
			if ended := s.reloader.Close(); ended != nil {
				<-ended
			}
		}
	}()
	if err := s.firstKeys(); err != nil {
		return nil, err
	}
	if s.arbiter, err = cfg.arbiter.open(); err != nil {
		return nil, err
	}
	if s.arbiter != nil {
		opened.Add(s.arbiter)
	}
	if err := s.listen(&opened); err != nil {
		return nil, err
	}
	if err := s.connect(signalled, &opened); err != nil {
		return nil, err
	}
	s.nbd, err = nbd.New(nbd.Config{
		Log: daemon.Slog(log), MaxConnections: cfg.connections, HandshakeTimeout: cfg.handshake, TLS: cfg.tls, RequireTLS: cfg.requireTLS,
	}, s.offer(s.exports())...)
	return s, err
}

// listen binds the addresses of --listen, --control and --metrics.
func (s *initiator) listen(opened *daemon.Opened) (err error) {
	for _, spec := range s.cfg.listen {
		l, err := spec.listen(s.cfg.socketMode)
		if err != nil {
			return fmt.Errorf("listen for NBD clients: %w", err)
		}
		opened.Add(l)
		s.listeners = append(s.listeners, l)
	}
	for _, l := range s.listeners { // those of systemd, too
		if err := s.cfg.checkExposed("the listener tcp:"+l.Addr().String(), !beyondLoopback(l)); err != nil {
			return err
		}
	}
	if s.control, err = s.cfg.control.Listen(s.cfg.exports[0].name); err != nil {
		return err
	}
	if s.metrics, err = s.cfg.metrics.Listen(); err != nil {
		return errors.Join(err, s.control.Close())
	}
	s.shown.door = door{log: s.log, control: s.control, metrics: s.metrics, commands: []status.Command{{Path: verifyPath, Run: s.verify}, {Path: orderPath, Run: s.order}, s.reloader.Command(), {Path: ublkPath, Run: s.attachUblk}}}
	opened.Add(&s.shown)
	s.follow = daemon.Follow(s.log, func() string { return s.shown.document().Health().Line() })
	opened.Add(s.follow)
	return nil
}

// connect opens the regions, unless signalled ends first.
func (s *initiator) connect(signalled context.Context, opened *daemon.Opened) error {
	for _, e := range s.cfg.exports {
		s.shown.waits(report.Starting{Name: e.name, Target: uris(e.targets), Waits: "its region is being opened, and what an earlier pmnbd left is sent first"})
	}
	for _, e := range s.cfg.exports {
		x, err := s.dial(signalled, &s.cfg, e)
		err = advised(err)
		if signalled.Err() != nil && err != nil {
			err = fmt.Errorf("a signal ended the start; what was left is as it was: %w", err)
		}
		if err != nil {
			return fmt.Errorf("export %q: %w", e.name, err)
		}
		opened.Add(x.dev)
		s.all = append(s.all, x)
		s.shown.begins(e.name)
	}
	return nil
}

// run serves until a signal comes or a listener fails, and drains.
func (s *initiator) run(stdout io.Writer, signals <-chan os.Signal) error {
	failed := make(chan error, len(s.listeners))
	for _, l := range s.listeners {
		if beyondLoopback(l) && !s.cfg.authenticated() {
			s.log.Warn("clients of this address do not authenticate, so everybody who reaches it owns the exports: use --tls=require --tls-verify-peer, or a network of your own",
				zap.Stringer("listener", l.Addr()))
		}
		go func() {
			if err := s.nbd.Serve(l); err != nil { // drain ends it
				failed <- err
			}
		}()
	}
	sig, err := s.beginUblks(signals)
	if err == nil && sig == nil {
		err = s.ready(stdout)
	}
	if err == nil && sig == nil {
		select {
		case sig = <-signals:
		case err = <-failed:
		case err = <-s.ublks.failed:
		}
	}
	if sig != nil {
		s.log.Info("draining", zap.Stringer("signal", sig), zap.Duration("timeout", s.cfg.drainTimeout))
	}
	err = errors.Join(err, s.follow.Close(), s.drain(signals), s.shown.Close())
	if s.arbiter != nil {
		err = errors.Join(err, s.arbiter.Close())
	}
	return err
}

// ready shows the exports, and says that the process serves.
func (s *initiator) ready(stdout io.Writer) error {
	s.shown.serve(s.report)
	s.reloader.Serve()
	var uris []string
	for _, x := range s.exports() {
		uris = append(uris, x.uris...)
	}
	return daemon.Ready(s.log, stdout, uris, s.shown.document().Health().Line())
}

// report adds the exports to what the control socket says.
func (s *initiator) report(d *report.Document) {
	d.TLSHandshakes = s.nbd.TLSHandshakes()
	exports := s.exports()
	for _, shot := range s.nbd.Snapshot() { // in the order of the exports
		i := slices.IndexFunc(exports, func(x *export) bool { return x.name == shot.Name })
		if i < 0 {
			continue // a reload is under way
		}
		x := exports[i]
		d.Exports = append(d.Exports, report.Export{Snapshot: shot, ReadOnly: s.cfg.readOnly, Listen: x.uris, Device: x.dev.Snapshot()})
		s.ublks.report(&d.Exports[len(d.Exports)-1])
	}
	s.reportLeaving(d)
}
