package main

import (
	"errors"
	"net/netip"
	"slices"

	"github.com/spf13/pflag"

	"pmnbd/backend/remote"
	"pmnbd/cmd/internal/flags"
)

// check refuses values of the flags in set that make no sense on any machine. The error has everything that is wrong.
func (c *config) check(set *pflag.FlagSet) error {
	var wrong []error
	refuse := func(bad bool, format string, args ...any) {
		if bad {
			wrong = append(wrong, flags.Usagef(format, args...))
		}
	}
	refuse(c.window < remote.MinWindow || c.window > remote.MaxWindow,
		"--window %v: use %v to %v", c.window, flags.Size(remote.MinWindow), flags.Size(remote.MaxWindow))
	refuse(c.lanes < 1 || c.lanes > remote.MaxLanes,
		"--lanes %d: use 1 to %d", c.lanes, remote.MaxLanes)
	refuse(c.connections < 1 || c.connections > maxConnections,
		"--max-connections %d: use 1 to %d", c.connections, maxConnections)
	refuse(c.windowDir == "",
		"--window-dir is empty: name a directory on a filesystem in memory, or leave the flag out for %s. What an earlier pmnbd left there must not be passed by", defaultWindowDir())
	refuse(c.stateDir == "",
		"--state-dir is empty: name a directory, or leave the flag out for %s", defaultStateDir())
	refuse(c.spin < 0,
		"--spin %v: use a duration, such as 50us, or 0", c.spin)
	refuse(c.lossTimeout < 0,
		"--loss-timeout %v: use a duration, such as 5m, or 0", c.lossTimeout)
	refuse(c.legTimeout < 0,
		"--leg-timeout %v: use a duration, such as 10s, or 0", c.legTimeout)
	refuse(c.asyncLag > c.window/4,
		"--async-lag %v: use at most %v, a quarter of --window, which holds what such a member lacks", c.asyncLag, c.window/4)
	refuse(c.asyncLag == 0 && set.Changed("async-lag"),
		"--async-lag 0: use a size, such as 16M, or leave the flag out")
	refuse(c.asyncLagTime <= 0,
		"--async-lag-time %v: use a duration, such as 5s", c.asyncLagTime)
	refuse(c.syncTimeout < 0,
		"--sync-timeout %v: use a duration, such as 1m, or 0", c.syncTimeout)
	refuse(c.handshake <= 0,
		"--handshake-timeout %v: use a duration, such as 10s", c.handshake)
	refuse(c.drainTimeout <= 0,
		"--drain-timeout %v: use a duration, such as 30s", c.drainTimeout)
	return errors.Join(wrong...)
}

// checkListeners is checkExposed for the addresses of --listen. What a host's name stands
// for shows only once it is bound.
func (c *config) checkListeners() error {
	for _, l := range c.listen {
		a, err := netip.ParseAddrPort(l.addr)
		if l.network != "tcp" || err != nil {
			continue
		}
		if err := c.checkExposed("--listen tcp:"+l.addr, a.Addr().Unmap().IsLoopback()); err != nil {
			return err
		}
	}
	return nil
}

// authenticated reports whether every TCP client must authenticate.
func (c *config) authenticated() bool { return c.requireTLS && c.verifyPeer }

// checkExposed refuses a listener that other hosts can reach, unless all its clients must
// authenticate: whoever connects owns the exports. --insecure-no-auth permits it.
func (c *config) checkExposed(listener string, loopback bool) error {
	if loopback || c.insecure || c.authenticated() {
		return nil
	}
	return flags.Usagef("%s is not a loopback address, and everybody who reaches it owns the exports: use --tls=require --tls-verify-peer, so that clients authenticate, or --insecure-no-auth on a network of your own", listener)
}

// mirrorFlags are the flags that only mirrors have.
var mirrorFlags = []string{"leg-timeout", "sync-timeout", "degraded", "without-arbiter", "resync-rate", "async-lag", "async-lag-time", "async-drop"}

// checkMirrors refuses flags of mirrors where no export is one. With --degraded or an arbiter each is a
// mirror, of which one member may be named. The flags in filed have their values from the file, which may be that
// of the mirror whose member --degraded-single serves.
func (c *config) checkMirrors(set *pflag.FlagSet, filed []string) error {
	if c.single && !slices.ContainsFunc(c.exports, func(e exportSpec) bool { return len(e.targets) == 1 }) {
		return flags.Usagef("--degraded-single is for one member of a mirror: name that alone in --target")
	}
	if c.single && c.arbiter.uri != "" {
		return flags.Usagef("--arbiter is for mirrors, and --degraded-single serves a member without its mirror: use one of them")
	}
	if c.single && c.degraded {
		return flags.Usagef("--degraded begins a mirror, and --degraded-single serves a member without it: use one of them")
	}
	if c.noArbiter && (!c.degraded || c.arbiter.uri != "") {
		return flags.Usagef("--without-arbiter is for --degraded, and not beside --arbiter")
	}
	if c.member = c.arbiter.uri != ""; c.member {
		return nil
	}
	if slices.ContainsFunc(c.exports, func(e exportSpec) bool { return len(e.targets) > 1 }) {
		return nil
	}
	if c.member = c.degraded; c.member {
		return nil
	}
	for _, name := range mirrorFlags {
		if set.Changed(name) && (!c.single || !slices.Contains(filed, name)) {
			return flags.Usagef("--%s is for mirrors: name all members in one --target, with commas between", name)
		}
	}
	return nil
}
