package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/pflag"
	"go.uber.org/zap"

	"pmnbd/backend/remote"
	"pmnbd/cmd/internal/command"
	"pmnbd/cmd/internal/daemon"
	"pmnbd/cmd/internal/flags"
	"pmnbd/cmd/internal/provider"
	"pmnbd/cmd/internal/status"
	"pmnbd/cmd/pmnbd/internal/arbiter"
	"pmnbd/cmd/pmnbd/internal/report"
	"pmnbd/internal/endpoint"
	"pmnbd/internal/sockio"
	"pmnbd/nbd"
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
	metrics   net.Listener  // nil: none
	keys      *keys         // nil: none
	arbiter   *arbiter.Etcd // nil: none
	exports   []export
	nbd       *nbd.Server
	shown     shown
	follow    daemon.Follower // tells systemd how it is
	ordering  sync.Mutex      // held while an order is carried out
}

// An export is an open region, and the URIs by which clients reach it.
type export struct {
	name    string
	uris    []string
	dev     *remote.Device
	targets []endpoint.Endpoint // that the next start names; changed by orders
}

// exitLoss is the exit code of a pmnbd that would lose what an earlier one acknowledged, or whose
// mirror cannot begin. A person has to decide. Starting it again, as after other failures, does not
// help.
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
		_, err = fmt.Fprintf(call.Stdout, "ok: %d exports, %d listeners\n", len(cfg.exports), len(cfg.listen))
		return err
	}
	sockio.Procs()
	daemon.HoldReload()
	signals, stop := daemon.Signals()
	defer stop()
	log := daemon.LogAt(call.Stderr, cfg.logLevel)
	defer daemon.OnToggle(log, cfg.logLevel)()
	s, err := open(cfg, log)
	if err == nil {
		err = s.run(call.Stdout, signals)
	}
	if errors.As(err, new(*remote.LossError)) || errors.As(err, new(*remote.MirrorError)) {
		err = command.WithCode(err, exitLoss)
	}
	return err
}

// open opens everything, or nothing.
func open(cfg config, log *zap.Logger) (_ *initiator, err error) {
	s := &initiator{cfg: cfg, log: log, id: cfg.id}
	var opened daemon.Opened
	defer opened.CloseOn(&err)
	if s.listeners, err = handedOver(); err != nil {
		return nil, err
	}
	for _, l := range s.listeners {
		opened.Add(l)
	}
	if len(s.listeners)+len(cfg.listen) == 0 {
		return nil, flags.Usagef("nowhere to serve: use --listen unix:/PATH or --listen tcp:HOST:PORT")
	}
	if s.id == uuid.Nil {
		if s.id, err = remote.InitiatorID(cfg.stateDir); err != nil {
			return nil, err
		}
	}
	if cfg.keyFile != "" {
		if s.keys, err = readKeys(cfg.keyFile, s.id); err != nil {
			return nil, err
		}
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
	if err := s.connect(&opened); err != nil {
		return nil, err
	}
	served := make([]nbd.Export, 0, len(s.exports))
	for _, x := range s.exports {
		served = append(served, nbd.Export{Name: x.name, Device: x.dev, ReadOnly: cfg.readOnly})
	}
	s.nbd, err = nbd.New(nbd.Config{
		Log: daemon.Slog(log), MaxConnections: cfg.connections, HandshakeTimeout: cfg.handshake, TLS: cfg.tls, RequireTLS: cfg.requireTLS,
	}, served...)
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
	s.shown.door = door{log: s.log, control: s.control, metrics: s.metrics, commands: []status.Command{{Path: verifyPath, Run: s.verify}, {Path: orderPath, Run: s.order}}}
	opened.Add(&s.shown)
	s.follow = daemon.Follow(s.log, func() string { return s.shown.document().Health().Line() })
	opened.Add(s.follow)
	return nil
}

// connect opens the regions, unless a signal asks the process to end first.
func (s *initiator) connect(opened *daemon.Opened) error {
	signalled, stop := daemon.UntilSignal()
	defer stop()
	for _, e := range s.cfg.exports {
		s.shown.waits(report.Starting{Name: e.name, Target: uris(e.targets), Waits: "its region is being opened, and what an earlier pmnbd left is sent first"})
	}
	for _, e := range s.cfg.exports {
		dev, err := s.dial(signalled, e)
		err = advised(err)
		if signalled.Err() != nil && err != nil {
			err = fmt.Errorf("a signal ended the start; what was left is as it was: %w", err)
		}
		if err != nil {
			return fmt.Errorf("export %q: %w", e.name, err)
		}
		opened.Add(dev)
		x := export{name: e.name, dev: dev, targets: e.targets}
		for _, l := range s.listeners {
			for _, scheme := range s.cfg.schemes() {
				x.uris = append(x.uris, uri(l, scheme, e.name))
			}
		}
		s.exports = append(s.exports, x)
		s.shown.begins(e.name)
	}
	return nil
}

// advised adds to the error of a start which flag can help.
func advised(err error) error {
	advice := ""
	var refused *remote.RefusedError
	switch {
	case errors.As(err, new(*remote.LossError)):
		advice = "--accept-loss goes on without it, once nobody uses the device any more"
	case errors.As(err, &refused) && refused.Held():
		advice = "stop it, or take the region from it with --takeover"
	case errors.Is(err, remote.ErrVolatile):
		advice = "--allow-volatile permits that"
	case errors.Is(err, remote.ErrWantsKey):
		advice = "give this initiator's with --key-file"
	case errors.Is(err, remote.ErrWrongTarget):
		advice = "see what has the address, and which name --target gives the target, iwarp://NAME@HOST/REGION"
	default:
		return err
	}
	return fmt.Errorf("%w: %s", err, advice)
}

// dial opens a region, or a mirror of several. While a mirror waits for its members, the control socket
// says so.
func (s *initiator) dial(ctx context.Context, e exportSpec) (*remote.Device, error) {
	members, err := connecting(e.targets, s.cfg.spin, s.keys)
	if err != nil {
		return nil, err
	}
	cfg := remote.Config{
		ID: s.id, StateDir: s.cfg.stateDir, WindowDir: s.cfg.windowDir, AcceptLoss: s.cfg.acceptLoss,
		LocalClients: !slices.ContainsFunc(s.listeners, func(l net.Listener) bool { return l.Addr().Network() != "unix" }),
		Window:       uint64(s.cfg.window), Lanes: s.cfg.lanes, Connections: s.cfg.connections, Method: s.cfg.method,
		LossTimeout: s.cfg.lossTimeout, LegTimeout: s.cfg.legTimeout, SyncTimeout: s.cfg.syncTimeout, Degraded: s.cfg.degraded,
		WithoutArbiter: s.cfg.noArbiter, ResyncRate: uint64(s.cfg.resyncRate),
		AsyncLag: uint64(s.cfg.asyncLag), AsyncLagTime: s.cfg.asyncLagTime, AsyncDrop: s.cfg.asyncDrop,
		OpenTimeout: openTimeout, AllowVolatile: s.cfg.allowVolatile, Takeover: s.cfg.takeover, Log: daemon.Slog(s.log),
	}
	if s.keys != nil {
		cfg.Key = s.keys.get
	}
	if len(members) > 1 || s.cfg.member {
		cfg.Members = members
		cfg.Waits = func(why string) {
			s.shown.waits(report.Starting{Name: e.name, Target: uris(e.targets), Waits: why, Standby: strings.HasPrefix(why, arbiter.Standby)})
			daemon.Waiting(s.log, fmt.Sprintf("export %q: %s", e.name, why))
		}
		if s.arbiter != nil {
			cfg.Arbiter = s.arbiter
		}
	} else {
		cfg.Single = s.cfg.single
		m := members[0]
		cfg.Provider, cfg.Addr, cfg.Region, cfg.Target, cfg.Encrypted = m.Provider, m.Addr, m.Region, m.Name, m.Encrypted
	}
	return remote.Dial(ctx, cfg)
}

// connecting returns how to reach regions. Without keys it is a mistake to name a target.
func connecting(at []endpoint.Endpoint, spin time.Duration, k *keys) ([]remote.Target, error) {
	members := make([]remote.Target, 0, len(at))
	for _, e := range at {
		transport, err := provider.For(e.Provider, provider.Config{Spin: spin})
		if err != nil {
			return nil, err
		}
		m := remote.Target{Provider: transport, Addr: e.Address(), Region: e.Region, Encrypted: e.Encrypted()}
		if k != nil {
			if m.Name, err = k.target(e); err != nil {
				return nil, err
			}
		} else if e.Encrypted() {
			return nil, flags.Usagef("--target %s needs --key-file: without a key nobody knows who is at the other end, and anybody in between could decrypt the connection", e)
		} else if e.Name != "" {
			return nil, flags.Usagef("--target %s names the target, and without a key nobody can tell whether it is that one: use --key-file", e)
		}
		members = append(members, m)
	}
	return members, nil
}

// run serves until a signal comes or a listener fails, and drains.
func (s *initiator) run(stdout io.Writer, signals <-chan os.Signal) error {
	defer daemon.OnReload(s.log, s.cfg.keyFile, func() ([]zap.Field, error) { return nil, s.keys.read() })()
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
	s.shown.serve(s.report)
	var uris []string
	for _, x := range s.exports {
		uris = append(uris, x.uris...)
	}
	err := daemon.Ready(s.log, stdout, uris, s.shown.document().Health().Line())
	if err == nil {
		select {
		case sig := <-signals:
			s.log.Info("draining", zap.Stringer("signal", sig), zap.Duration("timeout", s.cfg.drainTimeout))
		case err = <-failed:
		}
	}
	err = errors.Join(err, s.follow.Close())
	daemon.Stopping(s.log, s.cfg.drainTimeout)
	err = errors.Join(err, s.drain(signals), s.shown.Close())
	if s.arbiter != nil {
		err = errors.Join(err, s.arbiter.Close())
	}
	return err
}

// report adds the exports to what the control socket says.
func (s *initiator) report(d *report.Document) {
	d.TLSHandshakes = s.nbd.TLSHandshakes()
	for i, shot := range s.nbd.Snapshot() { // in the order of the exports
		x := &s.exports[i]
		d.Exports = append(d.Exports, report.Export{Snapshot: shot, ReadOnly: s.cfg.readOnly, Listen: x.uris, Device: x.dev.Snapshot()})
	}
}

// drain finishes the requests that were read, flushes, and closes the regions. A client that
// does not take its replies has half of --drain-timeout for that, so that the writes of others
// are not lost for its sake. After --drain-timeout, or at the next signal, drain gives up and
// returns an error that says what that costs.
func (s *initiator) drain(signals <-chan os.Signal) error {
	defer daemon.Every(daemon.SayEvery, s.sayDrain)()
	done := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), s.cfg.drainTimeout/2)
		defer cancel()
		err := s.nbd.Shutdown(ctx)
		if !errors.Is(err, context.DeadlineExceeded) {
			done <- errors.Join(err, s.closeDevices())
			return
		}
		// Shutdown has cut the connections. It ends once the devices have completed what
		// they still owe these.
		done <- errors.Join(s.closeDevices(), s.nbd.Shutdown(context.Background()))
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
	var unflushed uint64
	for _, x := range s.exports {
		unflushed += x.dev.Unflushed()
	}
	return notDrained(why, unflushed)
}

// sayDrain logs how far draining is.
func (s *initiator) sayDrain() {
	clients := 0
	for _, x := range s.nbd.Snapshot() {
		clients += x.Connections
	}
	for _, x := range s.exports {
		shot := x.dev.Snapshot()
		s.log.Info("draining: the rest is flushed first", zap.String("export", x.name), zap.String("state", string(shot.State)),
			zap.Uint64("unflushed_bytes", shot.Window.Unflushed), zap.Int("clients", clients))
	}
}

// notDrained is the error of a drain that gave up, with unflushed bytes.
func notDrained(why string, unflushed uint64) error {
	if unflushed == 0 {
		return fmt.Errorf("%s: nothing is lost: all that was acknowledged is flushed; the next start takes the regions back", why)
	}
	return fmt.Errorf("%s: %d bytes that were acknowledged are not flushed: start pmnbd again on this host before it reboots, or they are lost", why, unflushed)
}

// closeDevices closes all devices at once, so that a slow one takes no time from the others.
func (s *initiator) closeDevices() error {
	errs := make([]error, len(s.exports))
	var closing sync.WaitGroup
	for i, x := range s.exports {
		closing.Go(func() {
			if err := x.dev.Close(); err != nil {
				errs[i] = fmt.Errorf("export %q: %w", x.name, err)
			}
		})
	}
	closing.Wait()
	return errors.Join(errs...)
}
