package main

import (
	"crypto/tls"
	"errors"
	"io/fs"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/pflag"

	"pmnbd/backend/remote"
	"pmnbd/cmd/internal/command"
	"pmnbd/cmd/internal/daemon"
	"pmnbd/cmd/internal/flags"
	"pmnbd/cmd/internal/status"
	"pmnbd/persist"
)

const serveHelp = `Opens regions of targets and serves each to NBD clients as an export, until SIGTERM; then it flushes, and
closes the regions. Once it serves, it prints one line: "ready" and, for each export, its URIs for NBD
clients.

Usage:
  pmnbd serve --target iwarp://HOST:PORT/REGION[,…] [--target …] --listen unix:/PATH|tcp:HOST:PORT [--listen …]
  pmnbd serve --config FILE [--check]

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

// A config holds the settings of serve: its flags, and those of the file of --config.
type config struct {
	file          string // of --config; "": none
	checkOnly     bool
	exports       []exportSpec // the first is the default
	listen        []listenSpec
	window        flags.Size // of each export
	ublk          []ublkSpec
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
	noArbiter     bool
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

// unread holds the flags whose text parse reads itself, so that its errors can say more than
// pflag's.
type unread struct {
	targets, names, listen []string
	ublk                   []string
	tls, certificates      string
	id, mode               string
	filed                  []string // the flags that the file sets
}

// parse reads the flags of serve, and the file of --config. The error has everything that is wrong.
func parse(call *command.Call) (config, error) {
	cfg := config{window: remote.DefaultWindow, control: status.DefaultPlace(), logLevel: daemon.NewLevel()}
	var u unread
	cfg.declare(call.Flags, &u)
	if err := call.Parse(); err != nil {
		return cfg, err
	}
	if slices.Contains(u.names, "") { // of a table in the file it is the region's name
		return cfg, flags.Usagef("--export is empty: give it a value, or leave the flag out")
	}
	if cfg.file != "" {
		if err := load(cfg.file, call, &u); err != nil {
			return cfg, err
		}
	}
	return cfg, cfg.read(call.Flags, &u)
}

// read reads what the flags in u say, and checks it all.
func (c *config) read(set *pflag.FlagSet, u *unread) (err error) {
	var wrong []error
	say := func(err error) {
		if err != nil {
			wrong = append(wrong, err)
		}
	}
	if c.exports, err = parseExports(u.targets, u.names); err != nil {
		say(err)
	} else if err = c.arbiter.parse(set, u.filed...); err != nil {
		say(err)
	} else {
		say(c.checkMirrors(set, u.filed))
		say(c.checkUblk(u.ublk))
	}
	for _, arg := range u.listen {
		l, err := parseListen(arg)
		if err == nil && slices.Contains(c.listen, l) && !l.anyPort() {
			err = flags.Usagef("--listen %s is given twice", arg)
		}
		say(err)
		c.listen = append(c.listen, l)
	}
	say(c.check(set))
	c.tls, c.requireTLS, err = serverTLS(u.tls, u.certificates, c.verifyPeer)
	if say(err); err == nil {
		say(c.checkListeners())
	}
	if u.id != "" {
		if c.id, err = uuid.Parse(u.id); err != nil || c.id == uuid.Nil {
			say(flags.Usagef("--id %q is not a UUID: use one as uuidgen prints it", u.id))
		}
	}
	bits, err := strconv.ParseUint(u.mode, 8, 32)
	if err != nil || bits > 0o777 {
		say(flags.Usagef("--socket-mode %q: use three octal digits, such as 660", u.mode))
	}
	c.socketMode = fs.FileMode(bits)
	return errors.Join(wrong...)
}

// declare declares the flags. What c holds are defaults.
func (c *config) declare(set *pflag.FlagSet, u *unread) {
	set.StringVar(&c.file, "config", "", "`FILE` with the same settings (docs/configuration.md); flags override it")
	set.BoolVar(&c.checkOnly, "check", false, "check flags and file, and exit")
	set.StringArrayVar(&u.targets, "target", nil, "a region to serve, `iwarp://HOST:PORT/REGION`, iwarps:// for the same encrypted, or rdma://, or the members of a mirror with commas between; the first is the default export")
	set.StringArrayVar(&u.names, "export", nil, "the `name` of an export; give none, or one for each --target, in the same order (default the region's name)")
	set.StringArrayVar(&u.listen, "listen", nil, "where NBD clients connect, `unix:/PATH or tcp:HOST:PORT`; without HOST it is 127.0.0.1, port 0 chooses one")
	set.StringArrayVar(&u.ublk, "ublk", nil, "a block device of this machine to make of an export, or to continue after a restart, `[EXPORT=]/dev/ublkbN`; needs root, Linux 6.5 and the module ublk_drv")
	set.BoolVar(&c.readOnly, "read-only", false, "refuse requests that would change an export's contents")
	set.Var(&c.window, "window", "how much acknowledged but not yet flushed data an export holds, `SIZE`; a quarter of it is the largest request")
	set.IntVar(&c.lanes, "lanes", remote.DefaultLanes, "how many connections to the target carry an export's data, `N`")
	set.IntVar(&c.connections, "max-connections", remote.DefaultConnections, "how many NBD clients may be connected, `N`; each may take 512K of memory in each export, and two threads")
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
	set.BoolVar(&c.noArbiter, "without-arbiter", false, "with --degraded, begin a mirror without the arbiter that it has, because that is gone for good: nothing then keeps another host from serving the mirror, too")
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
