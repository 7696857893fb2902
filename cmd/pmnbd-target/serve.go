package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"

	"github.com/spf13/pflag"
	"go.uber.org/zap"

	"pmnbd/cmd/internal/daemon"
	"pmnbd/cmd/internal/flags"
	"pmnbd/persist/region"
	"pmnbd/persist/target"
	"pmnbd/rdma"
	"pmnbd/rdma/iwarp"
	"pmnbd/status"
)

const serveHelp = `Serves regions to initiators (pmnbd) until SIGTERM. When it does, it prints one line:
"ready" and the addresses bound, as URIs.

Usage:
  pmnbd-target serve --region NAME=PATH [--region …] [--listen iwarp://HOST:PORT …]

  pmnbd-target serve --region log=/var/lib/pmnbd/log
  pmnbd-target serve --region log=/dev/shm/log,size=1G --allow-volatile --listen iwarp://127.0.0.1:0

`

// runServe runs `pmnbd-target serve` and returns the exit code.
func runServe(args []string, stdout, stderr io.Writer) int {
	err := serve(args, stdout, stderr)
	return flags.Exit(stderr, "pmnbd-target serve", err)
}

// A serveConfig is what the flags of serve say.
type serveConfig struct {
	listen        []flags.Endpoint
	regions       []servedRegion
	allowVolatile bool
	control       status.Place
}

// parseServe reads the flags of serve. It returns pflag.ErrHelp after printing help.
func parseServe(args []string, stdout io.Writer) (serveConfig, error) {
	cfg := serveConfig{control: status.DefaultPlace()}
	set := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	set.SortFlags = false
	set.Usage = func() {} // printed here, to where it belongs
	regions := set.StringArray("region", nil, "a region to serve, `NAME=PATH[,size=SIZE]`; a PATH that does not exist is made if a size is given; "+
		region.PathMemfd+" is anonymous memory")
	listen := set.StringArray("listen", []string{"iwarp://127.0.0.1:7204"}, "where initiators connect, `iwarp://HOST:PORT`; port 0 chooses one")
	set.BoolVar(&cfg.allowVolatile, "allow-volatile", false, "serve regions of class volatile: what is on them is lost with the power")
	set.Var(&cfg.control, "control", "the control socket, for pmnbd-target status; unix:/DIR/ puts target-PID.sock into DIR")
	insecure := set.Bool("insecure-no-auth", false, "listen beyond loopback although sessions do not authenticate: whoever reaches the port owns the regions")
	err := flags.Parse(set, args)
	if errors.Is(err, pflag.ErrHelp) {
		_, _ = fmt.Fprintf(stdout, "%sFlags:\n%s", serveHelp, set.FlagUsages())
		return cfg, err
	}
	if err != nil {
		return cfg, err
	}
	if len(*regions) == 0 {
		return cfg, flags.Usagef("nothing to serve: name a region with --region NAME=PATH")
	}
	seen := make(map[string]bool)
	for _, s := range *regions {
		r, err := parseRegion(s)
		if err != nil {
			return cfg, err
		}
		if seen[r.name] {
			return cfg, flags.Usagef("--region %s is named twice: each needs a name of its own", r.name)
		}
		seen[r.name] = true
		cfg.regions = append(cfg.regions, r)
	}
	for _, s := range *listen {
		e, err := flags.ParseListen(s)
		if err != nil {
			return cfg, err
		}
		if !*insecure && !loopback(e.Host) {
			return cfg, flags.Usagef("--listen %s is not a loopback address, and sessions do not authenticate yet: use 127.0.0.1, or --insecure-no-auth on a network of your own", s)
		}
		cfg.listen = append(cfg.listen, e)
	}
	return cfg, nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func serve(args []string, stdout, stderr io.Writer) (err error) {
	cfg, err := parseServe(args, stdout)
	if errors.Is(err, pflag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	signals, stop := daemon.Signals()
	defer stop()
	var regions []*region.Region
	defer func() {
		for _, r := range regions {
			err = errors.Join(err, r.Close())
		}
	}()
	for _, s := range cfg.regions {
		r, err := region.Open(s.path, region.OpenOptions{Name: s.name, AllowVolatile: cfg.allowVolatile, CreateSize: uint64(s.size)})
		if err != nil {
			return fmt.Errorf("region %s: %w", s.name, err)
		}
		regions = append(regions, r)
	}
	log := daemon.Log(stderr)
	server := target.New(target.Config{Log: log}, regions)
	control, err := cfg.control.Listen("target")
	if err != nil {
		return errors.Join(err, server.Close())
	}
	provider := iwarp.New(iwarp.Config{Refused: server.Stranger})
	var listeners []rdma.Listener
	var uris []string
	for _, e := range cfg.listen {
		l, err := provider.Listen(context.Background(), e.Address())
		if err != nil {
			for _, l := range listeners {
				err = errors.Join(err, l.Close())
			}
			return fmt.Errorf("listen on %s: %w", e, errors.Join(err, server.Close(), control.Close()))
		}
		listeners = append(listeners, l)
		uris = append(uris, e.Provider+"://"+l.Addr())
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
	header := status.NewHeader(program)
	shown := status.Serve(control, log, func() any { return report{header, uris, server.Snapshot()} })
	if err = daemon.Ready(log, stdout, uris, fmt.Sprintf("serving %d regions", len(regions))); err == nil {
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
