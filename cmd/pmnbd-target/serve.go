package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/spf13/pflag"
	"go.uber.org/zap"

	"pmnbd/cmd/internal/command"
	"pmnbd/cmd/internal/daemon"
	"pmnbd/cmd/internal/flags"
	"pmnbd/cmd/internal/localuser"
	"pmnbd/cmd/internal/provider"
	"pmnbd/cmd/internal/reload"
	"pmnbd/cmd/internal/status"
	"pmnbd/internal/sockio"
	"pmnbd/numa"
	"pmnbd/persist/region"
	"pmnbd/persist/target"
	"pmnbd/rdma"
)

const serveHelp = `Serves regions to initiators (pmnbd) until SIGTERM. Once it serves, it prints one line: "ready" and the
addresses that it has bound, as URIs.

Usage:
  pmnbd-target serve --region NAME=PATH [--region …] [--listen iwarp://HOST:PORT …]
  pmnbd-target serve --config FILE [--check]

  pmnbd-target serve --region log=/var/lib/pmnbd/log
  pmnbd-target serve --region log=/dev/shm/log,size=1G --allow-volatile --listen iwarp://127.0.0.1:0
`

// serve runs `pmnbd-target serve`.
func serve(call *command.Call) error {
	var checkOnly bool
	cfg, err := parse(call, func(set *pflag.FlagSet) {
		set.BoolVar(&checkOnly, "check", false, "check flags and file, and exit")
	})
	if err == nil {
		err = cfg.check()
	}
	if checkOnly && err != nil && !errors.Is(err, pflag.ErrHelp) {
		return command.Problems(call, err)
	}
	if err != nil {
		return err
	}
	if checkOnly {
		_, err = fmt.Fprintf(call.Stdout, "ok: %s, %s\n", flags.Count(len(cfg.Regions), "region"), flags.Count(len(cfg.Listen), "listener"))
		return err
	}
	sockio.Procs()
	daemon.CrashBySignal()
	daemon.HoldReload()
	power := daemon.HoldPowerFailure()
	signals, stop := daemon.Signals()
	defer stop()
	log := daemon.LogAt(call.Stderr, cfg.LogLevel)
	defer daemon.OnToggle(log, cfg.LogLevel)()
	s, err := open(cfg, log)
	if err != nil {
		return err
	}
	s.power = power
	s.args, s.file = call.Args, call.Flags.Lookup("config").Value.String()
	s.reloader.Nothing = cfg.KeyFile == "" && !call.Flags.Changed("config")
	return s.run(call.Stdout, signals)
}

// A service is everything that serve opened.
type service struct {
	cfg       config
	args      []string // of the command line
	file      string   // of --config, or ""
	said      config   // what these and the file said last
	reloader  *reload.Reloader
	power     daemon.PowerFailure
	log       *zap.Logger
	regions   []*region.Region
	target    *target.Server
	control   net.Listener
	metrics   net.Listener // nil: none
	listeners []rdma.Listener
	uris      []string // of the listeners
	last      lastSaves
}

// open opens everything, or nothing.
func open(cfg config, log *zap.Logger) (_ *service, err error) {
	s := &service{cfg: cfg, said: cfg, log: log}
	s.reloader = reload.New(log, s.reload)
	if err := cfg.place(log, numa.Sysfs, numa.Confine); err != nil {
		return nil, err
	}
	var keys target.Keys
	if cfg.KeyFile != "" {
		if s.cfg.Name, err = cfg.name(); err != nil {
			return nil, err
		}
		if keys, err = readKeys(&s.cfg, log); err != nil {
			return nil, err
		}
	}
	var opened daemon.Opened
	defer opened.CloseOn(&err)
	for _, r := range cfg.Regions {
		served, err := region.Open(r.Path.string, r.options(cfg.AllowVolatile))
		if err != nil {
			return nil, fmt.Errorf("region %s: %w", r.Name, err)
		}
		opened.Add(served)
		s.regions = append(s.regions, served)
	}
	s.target = target.New(target.Config{
		DirectWrite: cfg.DirectWrite, RelaxedOrdering: cfg.RelaxedOrdering,
		Keys: keys, Name: s.cfg.Name, Allow: cfg.allow(), Encrypted: cfg.encrypted(), Battery: cfg.Battery.asks(), Log: daemon.Slog(log),
	}, s.regions)
	opened.Add(s.target)
	if s.control, err = cfg.Control.Listen("target"); err != nil {
		return nil, err
	}
	opened.Add(s.control)
	if s.metrics, err = cfg.Metrics.Listen(); err != nil {
		return nil, err
	}
	opened.Add(s.metrics)
	for _, e := range cfg.Listen {
		p, err := provider.For(e.Provider, cfg.transport(s.target))
		var l rdma.Listener
		if err == nil {
			l, err = p.Listen(context.Background(), e.Address())
		}
		if err != nil {
			return nil, fmt.Errorf("listen on %s: %w", e, flags.Listening(err))
		}
		opened.Add(l)
		s.listeners = append(s.listeners, l)
		s.uris = append(s.uris, e.Provider+"://"+l.Addr())
	}
	return s, nil
}

// run serves until a signal comes or a listener fails, and closes everything.
func (s *service) run(stdout io.Writer, signals <-chan os.Signal) error {
	if !s.cfg.authenticated() && s.cfg.Insecure {
		s.log.Warn("sessions do not authenticate: everybody who reaches a listener owns the regions, every user of this machine too", zap.Strings("listeners", s.uris))
	}
	for _, r := range s.regions {
		s.logServed(r)
	}
	failed := make(chan error, len(s.listeners))
	var serving sync.WaitGroup
	for _, l := range s.listeners {
		serving.Go(func() {
			if err := s.target.Serve(l); err != nil {
				failed <- err
			}
		})
	}
	s.reloader.OnHangup()
	header := status.NewHeader(program)
	document := func() status.Document { return report{header, s.uris, s.target.Battery(), s.target.Snapshot()} }
	shown := status.Serve(s.control, s.metrics, s.log, document, append(s.saveCommands(), s.reloader.Command())...)
	defer s.onPowerFailure()()
	line := func() string { return document().Health().Line() }
	err := daemon.Ready(s.log, stdout, s.uris, line())
	follow := daemon.Follow(s.log, line)
	defer daemon.Every(daemon.SayEvery, func() { sayDoubt(s.log, s.target.Snapshot()) })()
	if err == nil {
		select {
		case sig := <-signals:
			s.log.Info("ending", zap.Stringer("signal", sig))
		case err = <-failed:
		}
	}
	err = errors.Join(err, follow.Close())
	s.ends()
	if ended := s.reloader.Close(); ended != nil {
		<-ended
	}
	err = errors.Join(err, s.target.Close(), shown.Close())
	serving.Wait()
	var last []*region.Region
	for _, r := range s.regions {
		if why := s.lastChance(r); why != "" {
			s.log.Warn("saving the region before the end: nobody else could", zap.String("region", r.Name()), zap.String("cause", why))
			last = append(last, r)
		}
	}
	err = errors.Join(err, errors.Join(s.saveLast(last)...))
	for _, r := range s.regions {
		err = errors.Join(err, r.Close())
	}
	return err
}

func (s *service) logServed(r *region.Region) {
	s.log.Info("region served", zap.String("region", r.Name()), zap.String("path", r.Path()),
		zap.Stringer("class", r.Class()), zap.Uint64("size", r.Size()), zap.NamedError("failed", r.Failed()))
	switch p, _ := r.Protection(); {
	case p.Lost != "":
		s.log.Error("region LOST: it has zeroes now, and another contents id; devices of initiators that had it fail",
			zap.String("region", r.Name()), zap.String("cause", p.Lost), zap.Uint32("losses", p.Losses))
	case p.Loaded:
		s.log.Info("region loaded from its image", zap.String("region", r.Name()), zap.String("image", p.Image),
			zap.Time("saved", p.SavedAt), zap.Duration("took", p.LoadTook))
	}
}

// savesFor returns how long the end may wait for the disks that regions are saved to: a save may be
// under way, or a grant on a disk that hangs.
func savesFor(all []target.RegionSnapshot) (left time.Duration) {
	for _, r := range all {
		p := r.Protection
		if p == nil {
			continue
		}
		left = max(left, 2*region.DiskPatience)
		if p.Halted && !p.Whole {
			left = max(left, seconds(p.Within))
		}
		if p.Saving != nil { // at the speed that the disk has today, and some more
			left = max(left, seconds(2*p.Saving.Left))
		}
	}
	return left
}

// sayDoubt logs how far the flush is that settles doubt, for regions whose owner waits for it.
func sayDoubt(log *zap.Logger, all []target.RegionSnapshot) {
	for _, r := range all {
		if r.Doubt && r.Held && !r.Failed {
			log.Info("settling doubt: barriers wait until everything readable is durable", zap.String("region", r.Name),
				zap.Uint64("left_bytes", r.DoubtLeft), zap.Uint64("of_bytes", r.Size))
		}
	}
}

// transport configures a listener's provider. Without keys listeners serve only the users of
// this machine who could read the regions' memory anyway, unless the operator lets in all.
func (c *config) transport(server *target.Server) provider.Config {
	p := provider.Config{Spin: c.Spin.Duration, Refused: server.Stranger}
	if !c.authenticated() && !c.Insecure {
		p.Allow, p.Denied = localuser.New().Allow, localuser.Told
	}
	return p
}
