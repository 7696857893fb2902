package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/pflag"

	"pmnbd/backend/remote"
	"pmnbd/cmd/internal/flags"
	"pmnbd/status"
)

const serveHelp = `Opens a region of a target and serves it to NBD clients until SIGTERM, which flushes and gives the
region back. When it serves, it prints one line: "ready" and its addresses, as URIs for NBD clients.

Usage:
  pmnbd serve --target iwarp://HOST:PORT/REGION --listen unix:/PATH|tcp:HOST:PORT [--listen …]

  pmnbd serve --target iwarp://127.0.0.1:7204/log --listen unix:/run/pmnbd.sock
  nbdinfo 'nbd+unix:///log?socket=/run/pmnbd.sock'
  nbd-client -unix /run/pmnbd.sock -N log /dev/nbd0

`

// A config is what the flags of serve say.
type config struct {
	target        flags.Endpoint
	listen        []listenSpec
	export        string
	window        flags.Size
	lanes         int
	allowVolatile bool
	id            uuid.UUID // uuid.Nil: the one in the state directory
	stateDir      string
	control       status.Place
	socketMode    fs.FileMode
	drainTimeout  time.Duration
}

// parse reads the flags of serve. It returns pflag.ErrHelp after printing help.
func parse(args []string, stdout io.Writer) (config, error) {
	cfg := config{window: remote.DefaultWindow, control: status.DefaultPlace()}
	set := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	set.SortFlags = false
	set.Usage = func() {} // printed here, to where it belongs
	target := set.String("target", "", "the region to serve, `iwarp://HOST:PORT/REGION`")
	listen := set.StringArray("listen", nil, "where NBD clients connect, `unix:/PATH or tcp:HOST:PORT`; without HOST it is 127.0.0.1, port 0 chooses one")
	set.StringVar(&cfg.export, "export", "", "the export's `name`; it is the default export too (default the region's name)")
	set.Var(&cfg.window, "window", "how much acknowledged and not yet flushed data is held, `SIZE`; a quarter of it is the largest request")
	set.IntVar(&cfg.lanes, "lanes", remote.DefaultLanes, "how many connections to the target carry the data, `N`")
	set.BoolVar(&cfg.allowVolatile, "allow-volatile", false, "accept a region of class volatile: FLUSH then means visible at the target, not durable")
	id := set.String("id", "", "this initiator's id, a `UUID` (default one that is made once in the state directory)")
	set.StringVar(&cfg.stateDir, "state-dir", defaultStateDir(), "where the id and the locks of regions are, a `directory`")
	set.Var(&cfg.control, "control", "the control socket, for pmnbd status; unix:/DIR/ puts EXPORT-PID.sock into DIR")
	mode := set.String("socket-mode", "0600", "access rights of unix sockets, `octal`")
	set.DurationVar(&cfg.drainTimeout, "drain-timeout", 30*time.Second, "how long SIGTERM waits for clients' requests and the last flush")
	err := flags.Parse(set, args)
	if errors.Is(err, pflag.ErrHelp) {
		_, _ = fmt.Fprintf(stdout, "%sFlags:\n%s", serveHelp, set.FlagUsages())
		return cfg, err
	}
	if err != nil {
		return cfg, err
	}
	if *target == "" {
		return cfg, flags.Usagef("no region: name it with --target iwarp://HOST:PORT/REGION")
	}
	if cfg.target, err = flags.ParseTarget(*target); err != nil {
		return cfg, err
	}
	if len(*listen) == 0 {
		return cfg, flags.Usagef("nowhere to serve: use --listen unix:/PATH or --listen tcp:HOST:PORT")
	}
	for _, s := range *listen {
		l, err := parseListen(s)
		if err != nil {
			return cfg, err
		}
		cfg.listen = append(cfg.listen, l)
	}
	if cfg.window < remote.MinWindow || cfg.window > remote.MaxWindow {
		return cfg, flags.Usagef("--window %v: use %v to %v", &cfg.window, ptr(flags.Size(remote.MinWindow)), ptr(flags.Size(remote.MaxWindow)))
	}
	if cfg.lanes < 1 || cfg.lanes > remote.MaxLanes {
		return cfg, flags.Usagef("--lanes %d: use 1 to %d", cfg.lanes, remote.MaxLanes)
	}
	if *id != "" {
		if cfg.id, err = uuid.Parse(*id); err != nil || cfg.id == uuid.Nil {
			return cfg, flags.Usagef("--id %q is not a UUID: use one as uuidgen prints it", *id)
		}
	}
	bits, err := strconv.ParseUint(*mode, 8, 32)
	if err != nil || bits > 0o777 {
		return cfg, flags.Usagef("--socket-mode %q: use three octal digits, such as 660", *mode)
	}
	cfg.socketMode = fs.FileMode(bits)
	if cfg.drainTimeout <= 0 {
		return cfg, flags.Usagef("--drain-timeout %v: use a duration, such as 30s", cfg.drainTimeout)
	}
	if cfg.export == "" {
		cfg.export = cfg.target.Region
	}
	return cfg, nil
}

func ptr[T any](v T) *T { return &v }
