package main

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/spf13/pflag"
	"go.uber.org/zap"

	"pmnbd/cmd/internal/command"
	"pmnbd/cmd/internal/daemon"
	"pmnbd/cmd/internal/flags"
	"pmnbd/cmd/internal/keyfile"
	"pmnbd/cmd/internal/localuser"
	"pmnbd/cmd/internal/provider"
	"pmnbd/numa"
	"pmnbd/persist/region"
	"pmnbd/persist/target"
	"pmnbd/rdma"
	"pmnbd/status"
)

const serveHelp = `Serves regions to initiators (pmnbd) until SIGTERM. When it does, it prints one line:
"ready" and the addresses bound, as URIs.

Usage:
  pmnbd-target serve --region NAME=PATH [--region …] [--listen iwarp://HOST:PORT …]
  pmnbd-target serve --config FILE [--check]

  pmnbd-target serve --region log=/var/lib/pmnbd/log
  pmnbd-target serve --region log=/dev/shm/log,size=1G --allow-volatile --listen iwarp://127.0.0.1:0
`

// serve runs `pmnbd-target serve`.
func serve(call *command.Call) (err error) {
	var checkOnly bool
	cfg, err := parse(call, func(set *pflag.FlagSet) {
		set.BoolVar(&checkOnly, "check", false, "check flags and file, and exit")
	})
	if err == nil {
		err = cfg.check()
	}
	if err != nil {
		return err
	}
	if checkOnly {
		_, err = fmt.Fprintf(call.Stdout, "ok: %d regions, %d listeners\n", len(cfg.Regions), len(cfg.Listen))
		return err
	}
	log := daemon.Log(call.Stderr)
	if err := cfg.place(log, numa.Sysfs, numa.Confine); err != nil {
		return err
	}
	var keys target.Keys
	if cfg.KeyFile != "" {
		if keys, err = keyfile.Read(cfg.KeyFile); err != nil {
			return err
		}
	}
	daemon.HoldReload()
	signals, stop := daemon.Signals()
	defer stop()
	var regions []*region.Region
	defer func() {
		for _, r := range regions {
			err = errors.Join(err, r.Close())
		}
	}()
	for _, s := range cfg.Regions {
		r, err := region.Open(s.Path.string, region.OpenOptions{Name: s.Name, AllowVolatile: cfg.AllowVolatile, CreateSize: uint64(s.Size)})
		if err != nil {
			return fmt.Errorf("region %s: %w", s.Name, err)
		}
		regions = append(regions, r)
	}
	server := target.New(target.Config{
		DirectWrite: cfg.DirectWrite, RelaxedOrdering: cfg.RelaxedOrdering,
		Keys: keys, Allow: cfg.allow(), Log: log,
	}, regions)
	control, err := cfg.Control.Listen("target")
	if err != nil {
		return errors.Join(err, server.Close())
	}
	metrics, err := cfg.Metrics.Listen()
	if err != nil {
		return errors.Join(err, server.Close(), control.Close())
	}
	var listeners []rdma.Listener
	var uris []string
	for _, e := range cfg.Listen {
		p, err := provider.For(e.Provider, cfg.transport(server))
		var l rdma.Listener
		if err == nil {
			l, err = p.Listen(context.Background(), e.Address())
		}
		if err != nil {
			for _, l := range listeners {
				err = errors.Join(err, l.Close())
			}
			if metrics != nil {
				err = errors.Join(err, metrics.Close())
			}
			return fmt.Errorf("listen on %s: %w", e, errors.Join(flags.Listening(err), server.Close(), control.Close()))
		}
		listeners = append(listeners, l)
		uris = append(uris, e.Provider+"://"+l.Addr())
	}

	if !cfg.authenticated() && cfg.Insecure {
		log.Warn("sessions do not authenticate: everybody who reaches a listener owns the regions, every user of this machine too", zap.Strings("listeners", uris))
	}
	for _, r := range regions {
		log.Info("region served", zap.String("region", r.Name()), zap.String("path", r.Path()),
			zap.Stringer("class", r.Class()), zap.Uint64("size", r.Size()), zap.NamedError("failed", r.Failed()))
	}
	failed := make(chan error, len(listeners))
	var serving sync.WaitGroup
	for _, l := range listeners {
		serving.Go(func() {
			if err := server.Serve(l); err != nil {
				failed <- err
			}
		})
	}
	defer daemon.OnReload(func() { reloadKeys(server, cfg.KeyFile, log) })()
	header := status.NewHeader(program)
	shown := status.Serve(control, metrics, log, func() status.Document { return report{header, uris, server.Snapshot()} })
	if err = daemon.Ready(log, call.Stdout, uris, fmt.Sprintf("serving %d regions", len(regions))); err == nil {
		select {
		case s := <-signals:
			log.Info("ending", zap.Stringer("signal", s))
		case err = <-failed:
		}
	}
	daemon.Stopping(log, 0)
	err = errors.Join(err, server.Close(), shown.Close())
	serving.Wait()
	return err
}

// transport is what listeners are told. Without keys they serve the users of this
// machine that could read the regions' memory anyway, unless the operator wants all.
func (c *config) transport(server *target.Server) provider.Config {
	p := provider.Config{Spin: c.Spin.Duration, Refused: server.Stranger}
	if !c.authenticated() && !c.Insecure {
		p.Admit, p.Unadmitted = localuser.New().Admit, localuser.Told
	}
	return p
}

// reloadKeys reads the keys again. If that fails they stay what they were.
func reloadKeys(server *target.Server, path string, log *zap.Logger) {
	if path == "" {
		daemon.NothingToReload(log)
		return
	}
	keys, err := keyfile.Read(path)
	if err != nil {
		log.Error("keys not changed", zap.Error(err))
		return
	}
	server.SetKeys(keys)
	log.Info("keys read again: they count from the next handshake", zap.String("file", path), zap.Int("initiators", len(keys)))
}
