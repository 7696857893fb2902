package main

import (
	"cmp"
	"crypto/tls"
	"io/fs"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/pflag"

	"pmnbd/backend/remote"
	"pmnbd/cmd/internal/command"
	"pmnbd/cmd/internal/daemon"
	"pmnbd/cmd/internal/flags"
	"pmnbd/cmd/internal/status"
	"pmnbd/internal/endpoint"
	"pmnbd/nbd/wire"
	"pmnbd/persist"
	"pmnbd/persist/region"
)

const serveHelp = `Opens regions of targets and serves each to NBD clients as an export, until SIGTERM; then it flushes, and
closes the regions. Once it serves, it prints one line: "ready" and, for each export, its URIs for NBD
clients.

Usage:
  pmnbd serve --target iwarp://HOST:PORT/REGION[,…] [--target …] --listen unix:/PATH|tcp:HOST:PORT [--listen …]

  pmnbd serve --target iwarp://127.0.0.1:7204/log --listen unix:/run/pmnbd.sock
  nbdinfo 'nbd+unix:///log?socket=/run/pmnbd.sock'
  nbd-client -unix /run/pmnbd.sock -N log /dev/nbd0

Several regions in one --target, with commas between, are the members of a mirror (pmnbd mirror create, docs/mirror.md):
one export, every write on all of them. It begins when it knows which members have the flushed data, and waits for those
that it needs. Exit code 3 means that waiting cannot help.

  pmnbd serve --target iwarp://pm1/log,iwarp://pm2/log --listen unix:/run/pmnbd.sock

With --arbiter an etcd holds which generation a mirror is in, and which host has it. Then one member in sync is enough
to begin, and a second host can take the mirror over from a first one that is lost: it runs the same command with
--standby.

  pmnbd serve --target iwarp://pm1/log,iwarp://pm2/log --arbiter etcd://e1:2379,e2:2379,e3:2379 --standby --listen …

Under systemd it also serves the sockets of a .socket unit (ListenStream=, unix or TCP), and Type=notify
works: docs/systemd.md.
`

// defaultLegTimeout is how long a mirror waits for a leg: a target that restarts is back sooner.
const defaultLegTimeout = 10 * time.Second

// defaultSyncTimeout is how long a mirror waits for a disk: syncs of a disk that is slow take tens of
// seconds.
const defaultSyncTimeout = time.Minute

// maxConnections bounds --max-connections. Each connection may hold a receive chunk of each
// export and as much of its read memory, so an export may use 2 GiB for all of them.
const maxConnections = 4096

// A config holds the flags of serve.
type config struct {
	exports       []exportSpec // the first is the default
	listen        []listenSpec
	window        flags.Size // of each export
	lanes         int
	readOnly      bool
	method        persist.Method // 0: the best sound one
	lossTimeout   time.Duration
	legTimeout    time.Duration // of mirrors, as degraded
	syncTimeout   time.Duration
	asyncLag      flags.Size // of members that follow; 0: the default
	asyncLagTime  time.Duration
	asyncDrop     bool
	degraded      bool
	resyncRate    flags.Size // a second; 0: no limit
	single        bool       // of exports that are no mirrors
	arbiter       arbiterSpec
	member        bool // every export is one member of a mirror
	allowVolatile bool
	takeover      bool
	keyFile       string // "": no key
	connections   int    // of clients, the most
	spin          time.Duration
	handshake     time.Duration
	id            uuid.UUID // uuid.Nil: the one in the state directory
	windowDir     string
	acceptLoss    bool
	stateDir      string
	control       status.Place
	metrics       status.Address
	logLevel      *daemon.Level
	socketMode    fs.FileMode
	drainTimeout  time.Duration
	tls           *tls.Config // nil: none
	requireTLS    bool
	verifyPeer    bool // with requireTLS: every client has a certificate
	insecure      bool // clients of other hosts need not authenticate
}

// schemes returns the schemes of the URIs that clients can use. With --tls=on these are two,
// the safer one first.
func (c *config) schemes() []string {
	switch {
	case c.tls == nil:
		return []string{"nbd"}
	case c.requireTLS:
		return []string{"nbds"}
	}
	return []string{"nbds", "nbd"}
}

// An exportSpec is a region, or a mirror of several, and the name of its export.
type exportSpec struct {
	name    string
	targets []endpoint.Endpoint // several of a mirror
}

// unread holds the flags whose text parse reads itself, so that its errors can say more than
// pflag's.
type unread struct {
	targets, names, listen []string
	tls, certificates      string
	id, mode               string
}

// parse reads the flags of serve.
func parse(call *command.Call) (config, error) {
	cfg := config{window: remote.DefaultWindow, control: status.DefaultPlace(), logLevel: daemon.NewLevel()}
	var u unread
	cfg.declare(call.Flags, &u)
	err := call.Parse()
	if err == nil {
		cfg.exports, err = parseExports(u.targets, u.names)
	}
	if err == nil {
		err = cfg.arbiter.parse()
	}
	if err == nil {
		err = cfg.checkMirrors(call.Flags)
	}
	for _, arg := range u.listen {
		var l listenSpec
		if err == nil {
			l, err = parseListen(arg)
		}
		cfg.listen = append(cfg.listen, l)
	}
	if err == nil {
		err = cfg.check()
	}
	if err == nil {
		cfg.tls, cfg.requireTLS, err = serverTLS(u.tls, u.certificates, cfg.verifyPeer)
	}
	if err == nil {
		err = cfg.checkListeners()
	}
	if err == nil && u.id != "" {
		if cfg.id, err = uuid.Parse(u.id); err != nil || cfg.id == uuid.Nil {
			err = flags.Usagef("--id %q is not a UUID: use one as uuidgen prints it", u.id)
		}
	}
	if err != nil {
		return cfg, err
	}
	bits, err := strconv.ParseUint(u.mode, 8, 32)
	if err != nil || bits > 0o777 {
		return cfg, flags.Usagef("--socket-mode %q: use three octal digits, such as 660", u.mode)
	}
	cfg.socketMode = fs.FileMode(bits)
	return cfg, nil
}

// declare declares the flags. What c holds are defaults.
func (c *config) declare(set *pflag.FlagSet, u *unread) {
	set.StringArrayVar(&u.targets, "target", nil, "a region to serve, `iwarp://HOST:PORT/REGION`, iwarps:// for the same encrypted, or rdma://, or the members of a mirror with commas between; the first is the default export")
	set.StringArrayVar(&u.names, "export", nil, "the `name` of an export; give none, or one for each --target, in the same order (default the region's name)")
	set.StringArrayVar(&u.listen, "listen", nil, "where NBD clients connect, `unix:/PATH or tcp:HOST:PORT`; without HOST it is 127.0.0.1, port 0 chooses one")
	set.BoolVar(&c.readOnly, "read-only", false, "refuse requests that would change an export's contents")
	set.Var(&c.window, "window", "how much acknowledged but not yet flushed data an export holds, `SIZE`; a quarter of it is the largest request")
	set.IntVar(&c.lanes, "lanes", remote.DefaultLanes, "how many connections to the target carry an export's data, `N`")
	set.IntVar(&c.connections, "max-connections", remote.DefaultConnections, "how many NBD clients may be connected, `N`; each may take 512K of memory in each export")
	set.DurationVar(&c.handshake, "handshake-timeout", 10*time.Second, "how long an NBD client may negotiate")
	set.StringVar(&u.tls, "tls", "off", "`off, on or require`: clients cannot use TLS, may, or must; ready shows nbds:// where they can and nbd:// where they need not")
	set.StringVar(&u.certificates, "tls-certificates", "", "a `directory` with server-cert.pem and server-key.pem, and ca-cert.pem (and ca-crl.pem) to verify clients by")
	set.BoolVar(&c.verifyPeer, "tls-verify-peer", false, "with TLS, admit only clients with a certificate of the CA in ca-cert.pem")
	set.BoolVar(&c.insecure, "insecure-no-auth", false, "listen on TCP beyond loopback without --tls=require --tls-verify-peer: everybody who reaches the port owns the exports")
	set.Var(&c.method, "method", "the only durability method to accept, `gpspm, apm or flush` (default the best that is sound for the region)")
	set.DurationVar(&c.lossTimeout, "loss-timeout", 0, "how long an export waits for a target that is away, or that takes so long for one FLUSH, before it fails for good; 0 is for ever, as for a disk")
	set.DurationVar(&c.legTimeout, "leg-timeout", defaultLegTimeout, "how long a mirror waits for a target that is away before it goes on without that copy; 0 goes on at once")
	set.DurationVar(&c.syncTimeout, "sync-timeout", defaultSyncTimeout, "how long a mirror waits for a target that lives, while its disk makes no progress and others have everything; 0 is for ever")
	set.Var(&c.asyncLag, "async-lag", "how much flushed data a member that follows may lack, `SIZE`; at most a quarter of --window (default 16M, or that quarter)")
	set.DurationVar(&c.asyncLagTime, "async-lag-time", remote.DefaultAsyncLagTime, "how old the oldest FLUSH may be that a member that follows lacks; at the bound FLUSHes wait for it")
	set.BoolVar(&c.asyncDrop, "async-drop", false, "go on without a member that follows when it is at the bound, and copy to it later what it lacks")
	set.BoolVar(&c.degraded, "degraded", false, "begin a mirror although members that are away may have newer data: what only those have is lost")
	set.BoolVar(&c.single, "degraded-single", false, "serve a region alone although it is a member of a mirror, which then takes it for one that lost its contents")
	set.Var(&c.resyncRate, "resync-rate", "how much to compare and copy a second to a member of a mirror that is behind, `SIZE`; 0 is as much as there is room for")
	c.arbiter.declareServe(set)
	set.BoolVar(&c.allowVolatile, "allow-volatile", false, "accept regions of class volatile: FLUSH then means visible at the target, not durable")
	set.BoolVar(&c.takeover, "takeover", false, "take the regions from another initiator, though its lease runs; that initiator loses what it has not flushed")
	set.StringVar(&c.keyFile, "key-file", "", "the `file` with this initiator's key (docs/security.md); SIGHUP reads it again. The target must have it too")
	set.StringVar(&u.id, "id", "", "this initiator's id, a `UUID` (default the one in the state directory, made by the first start)")
	set.StringVar(&c.stateDir, "state-dir", defaultStateDir(), "where the id and the locks of regions are, a `directory`")
	set.StringVar(&c.windowDir, "window-dir", defaultWindowDir(), "where windows are, so that the next pmnbd goes on where this one was killed: a `directory` on a filesystem in memory")
	set.BoolVar(&c.acceptLoss, "accept-loss", false, "serve although writes that an earlier pmnbd acknowledged may be lost; detach or unmount the device first")
	set.Var(&c.control, "control", "the control socket, for pmnbd status; unix:/DIR/ puts EXPORT-PID.sock into DIR, named for the first export")
	set.Var(&c.metrics, "metrics", "an address for Prometheus to scrape, beside the control socket (default none); everybody who reaches it sees names and counters")
	set.Var(c.logLevel, "log-level", "the least level of lines that the log has; SIGUSR1 changes it to debug, and back")
	set.DurationVar(&c.spin, "spin", 0, "how long a connection to a target at rdma:// polls before it sleeps; worthwhile only with a core for each lane")
	set.StringVar(&u.mode, "socket-mode", "0600", "access rights of unix sockets, `octal`")
	set.DurationVar(&c.drainTimeout, "drain-timeout", 30*time.Second, "how long SIGTERM waits for clients' requests and the last flush")
}

// check refuses values that make no sense on any machine.
func (c *config) check() error {
	switch {
	case c.window < remote.MinWindow || c.window > remote.MaxWindow:
		return flags.Usagef("--window %v: use %v to %v", c.window, flags.Size(remote.MinWindow), flags.Size(remote.MaxWindow))
	case c.lanes < 1 || c.lanes > remote.MaxLanes:
		return flags.Usagef("--lanes %d: use 1 to %d", c.lanes, remote.MaxLanes)
	case c.connections < 1 || c.connections > maxConnections:
		return flags.Usagef("--max-connections %d: use 1 to %d", c.connections, maxConnections)
	case c.windowDir == "":
		return flags.Usagef("--window-dir is empty: name a directory on a filesystem in memory, or leave the flag out for %s. What an earlier pmnbd left there must not be passed by", defaultWindowDir())
	case c.stateDir == "":
		return flags.Usagef("--state-dir is empty: name a directory, or leave the flag out for %s", defaultStateDir())
	case c.lossTimeout < 0:
		return flags.Usagef("--loss-timeout %v: use a duration, such as 5m, or 0", c.lossTimeout)
	case c.legTimeout < 0:
		return flags.Usagef("--leg-timeout %v: use a duration, such as 10s, or 0", c.legTimeout)
	case c.asyncLag > c.window/4:
		return flags.Usagef("--async-lag %v: use at most %v, a quarter of --window, which holds what such a member lacks", c.asyncLag, c.window/4)
	case c.asyncLagTime <= 0:
		return flags.Usagef("--async-lag-time %v: use a duration, such as 5s", c.asyncLagTime)
	case c.syncTimeout < 0:
		return flags.Usagef("--sync-timeout %v: use a duration, such as 1m, or 0", c.syncTimeout)
	case c.handshake <= 0:
		return flags.Usagef("--handshake-timeout %v: use a duration, such as 10s", c.handshake)
	case c.drainTimeout <= 0:
		return flags.Usagef("--drain-timeout %v: use a duration, such as 30s", c.drainTimeout)
	}
	return nil
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
var mirrorFlags = []string{"leg-timeout", "sync-timeout", "degraded", "resync-rate", "async-lag", "async-lag-time", "async-drop"}

// checkMirrors refuses flags of mirrors where no export is one. With --degraded or an arbiter each is a
// mirror, of which one member may be named.
func (c *config) checkMirrors(set *pflag.FlagSet) error {
	if c.single && !slices.ContainsFunc(c.exports, func(e exportSpec) bool { return len(e.targets) == 1 }) {
		return flags.Usagef("--degraded-single is for one member of a mirror: name that alone in --target")
	}
	if c.single && c.arbiter.uri != "" {
		return flags.Usagef("--arbiter is for mirrors, and --degraded-single serves a member without its mirror: use one of them")
	}
	if c.single && c.degraded {
		return flags.Usagef("--degraded begins a mirror, and --degraded-single serves a member without it: use one of them")
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
		if set.Changed(name) {
			return flags.Usagef("--%s is for mirrors: name all members in one --target, with commas between", name)
		}
	}
	return nil
}

// parseExports pairs every --target with its --export. A mirror is called as its first member unless
// it has a name.
func parseExports(targets, names []string) ([]exportSpec, error) {
	if len(targets) == 0 {
		return nil, flags.Usagef("no region: name it with --target iwarp://HOST:PORT/REGION")
	}
	if len(names) > 0 && len(names) != len(targets) {
		return nil, flags.Usagef("--export is given %d times and --target %d times: name every export, or none", len(names), len(targets))
	}
	all := make([]exportSpec, 0, len(targets))
	for i, s := range targets {
		members, err := parseMembers(strings.Split(s, ","))
		if err != nil {
			return nil, err
		}
		e := exportSpec{members[0].Region, members}
		if len(names) > 0 {
			e.name = cmp.Or(names[i], e.name)
		}
		if len(e.name) > wire.MaxString {
			return nil, flags.Usagef("--export has %d bytes: an export's name has at most %d", len(e.name), wire.MaxString)
		}
		for _, other := range all {
			if other.name == e.name {
				return nil, flags.Usagef("two exports are named %q: give every --target a name of its own with --export", e.name)
			}
			for _, m := range e.targets {
				if slices.ContainsFunc(other.targets, m.Same) {
					return nil, flags.Usagef("--target %s is given twice: a region is one export", m)
				}
			}
		}
		all = append(all, e)
	}
	return all, nil
}

// parseMembers reads the URIs of a region, or of the members of a mirror.
func parseMembers(uris []string) ([]endpoint.Endpoint, error) {
	if len(uris) > persist.MaxMembers {
		return nil, flags.Usagef("--target names %d regions: a mirror has at most %d members", len(uris), persist.MaxMembers)
	}
	members := make([]endpoint.Endpoint, 0, len(uris))
	for _, s := range uris {
		m, err := flags.ParseTarget(s)
		if err != nil {
			return nil, err
		}
		if err := region.CheckName(m.Region); err != nil {
			return nil, flags.Usagef("--target %s: %v", s, err)
		}
		if slices.ContainsFunc(members, m.Same) {
			return nil, flags.Usagef("--target names %s twice: the members of a mirror are different regions", m)
		}
		members = append(members, m)
	}
	return members, nil
}
