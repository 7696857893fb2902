package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"pmnbd/backend/remote"
	"pmnbd/cmd/internal/daemon"
	"pmnbd/cmd/internal/flags"
	"pmnbd/cmd/internal/provider"
	"pmnbd/cmd/pmnbd/internal/arbiter"
	"pmnbd/cmd/pmnbd/internal/report"
	"pmnbd/internal/endpoint"
	"pmnbd/nbd"
	"pmnbd/ublk"
)

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

// dial opens the export of a region, or of a mirror of several, as c says. While a mirror waits for its members, the
// control socket says so.
func (s *initiator) dial(ctx context.Context, c *config, e exportSpec) (*export, error) {
	keys := s.keys.latest()
	members, err := connecting(e.targets, c.spin, keys)
	if err != nil {
		return nil, err
	}
	// An export is one ublk device at most (ublkDevice), whose queues take chunks as NBD connections do.
	cfg := remote.Config{
		ID: s.id, StateDir: c.stateDir, WindowDir: c.windowDir, AcceptLoss: c.acceptLoss,
		LocalClients: !slices.ContainsFunc(s.listeners, func(l net.Listener) bool { return l.Addr().Network() != "unix" }),
		Window:       uint64(c.window), Lanes: c.lanes, Connections: c.connections + ublk.Queues(), Method: c.method,
		LossTimeout: c.lossTimeout, LegTimeout: c.legTimeout, SyncTimeout: c.syncTimeout, Degraded: c.degraded,
		WithoutArbiter: c.noArbiter, ResyncRate: uint64(c.resyncRate),
		AsyncLag: uint64(c.asyncLag), AsyncLagTime: c.asyncLagTime, AsyncDrop: c.asyncDrop,
		OpenTimeout: openTimeout, AllowVolatile: c.allowVolatile, Takeover: c.takeover, Log: daemon.Slog(s.log),
	}
	if keys != nil {
		cfg.Key = s.keys.of(keys)
	}
	if len(members) > 1 || c.member {
		cfg.Members = members
		cfg.Waits = func(why string) {
			s.shown.waits(report.Starting{Name: e.name, Target: uris(e.targets), Waits: why, Standby: strings.HasPrefix(why, arbiter.Standby)})
			if !s.shown.serving() { // then the Follower tells systemd
				daemon.Waiting(s.log, fmt.Sprintf("export %q: %s", e.name, why))
			}
		}
		if s.arbiter != nil {
			cfg.Arbiter = s.arbiter
		}
	} else {
		cfg.Single = c.single
		m := members[0]
		cfg.Provider, cfg.Addr, cfg.Region, cfg.Target, cfg.Encrypted = m.Provider, m.Addr, m.Region, m.Name, m.Encrypted
	}
	dev, err := remote.Dial(ctx, cfg)
	if err != nil {
		return nil, err
	}
	x := &export{name: e.name, dev: dev, targets: e.targets, said: e.targets}
	for _, m := range members {
		x.keys = append(x.keys, m.Name)
	}
	for _, l := range s.listeners {
		for _, scheme := range s.cfg.schemes() {
			x.uris = append(x.uris, uri(l, scheme, e.name))
		}
	}
	return x, nil
}

// offer returns exports as the NBD server takes them.
func (s *initiator) offer(exports []*export) []nbd.Export {
	served := make([]nbd.Export, 0, len(exports))
	for _, x := range exports {
		served = append(served, nbd.Export{Name: x.name, Device: x.dev, ReadOnly: s.cfg.readOnly})
	}
	return served
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
