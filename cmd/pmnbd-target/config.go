package main

import (
	"encoding"
	"errors"
	"net"
	"slices"
	"time"

	"github.com/spf13/pflag"

	"pmnbd/cmd/internal/command"
	"pmnbd/cmd/internal/daemon"
	"pmnbd/cmd/internal/flags"
	"pmnbd/cmd/internal/status"
	"pmnbd/internal/endpoint"
	"pmnbd/persist/region"
	"pmnbd/persist/wire"
)

// A config holds the settings of the configuration file and of the flags of serve. A field's
// key in the file is the name of its flag, which a test checks.
type config struct {
	Regions         []servedRegion `toml:"region"`
	Listen          []listenAddr   `toml:"listen"`
	KeyFile         string         `toml:"key-file"`
	Name            string         `toml:"name"`
	Insecure        bool           `toml:"insecure-no-auth"`
	AllowVolatile   bool           `toml:"allow-volatile"`
	DirectWrite     bool           `toml:"direct-write-to-pmem"`
	RelaxedOrdering bool           `toml:"relaxed-ordering"`
	NUMA            nodeChoice     `toml:"numa"`
	Spin            duration       `toml:"spin"`
	Control         status.Place   `toml:"control"`
	Metrics         status.Address `toml:"metrics"`
	LogLevel        *daemon.Level  `toml:"log-level"`
	Battery         batteryCommand `toml:"battery-command"`
}

var defaultListen = endpoint.Endpoint{Provider: "iwarp", Host: "127.0.0.1", Port: endpoint.DefaultPort}

func defaults() config {
	return config{Listen: []listenAddr{{defaultListen}}, Control: status.DefaultPlace(), LogLevel: daemon.NewLevel()}
}

// declare declares the flags. What c holds are their defaults.
func (c *config) declare(set *pflag.FlagSet) {
	set.Func("region", "a region to serve, `"+regionForm+"`; with a SIZE, pmnbd-target makes a PATH that does not exist; "+region.PathMemfd+" is anonymous memory;\n"+
		"a PATH with a comma in it stands in double quotes;\n"+
		"part=, which can be repeated, names the further parts of a region of several, in their order;\n"+
		"with allow=, which can be repeated, only those initiators may have the region;\n"+
		"with encrypted, only connections to iwarps:// may;\n"+
		"with save=, it is of class protected, and its image lies in that directory", each(&c.Regions, parseRegion))
	set.Func("listen", "where initiators connect, `iwarp://HOST:PORT`, iwarps:// for the same encrypted, or rdma://; port 0 chooses one (default "+defaultListen.String()+")",
		each(&c.Listen, func(s string) (listenAddr, error) {
			e, err := flags.ParseListen(s)
			return listenAddr{e}, err
		}))
	set.StringVar(&c.KeyFile, "key-file", c.KeyFile, "the `FILE` with the keys that initiators and this target share (docs/security.md), which SIGHUP reads again; an initiator without a key gets no session.\n"+
		"Without the flag, a listener on loopback serves root and the user that pmnbd-target runs as")
	set.StringVar(&c.Name, "name", c.Name, "the `NAME` of this target, which its keys belong to (default the host's name)")
	set.BoolVar(&c.Insecure, "insecure-no-auth", c.Insecure, "without --key-file, serve everybody who reaches a listener: other hosts, and on loopback every user of this machine.\n"+
		"Each of them owns the regions")
	set.BoolVar(&c.AllowVolatile, "allow-volatile", c.AllowVolatile, "serve regions of class volatile, whose contents a power cut loses")
	set.BoolVar(&c.DirectWrite, "direct-write-to-pmem", c.DirectWrite, "declare that what the adapters of this host write does not stay in CPU caches\n"+
		"(Intel DDIO, AMD SDCI and TPH are off): allows the method apm. If that is wrong, a power cut loses data")
	set.BoolVar(&c.RelaxedOrdering, "relaxed-ordering", c.RelaxedOrdering, "declare that this platform forces PCIe relaxed ordering: forbids the method apm")
	set.Func("battery-command", "the `COMMAND` that prints how the UPS is, as 'upsc ups@localhost' of NUT does: sessions on regions with save= are granted only\n"+
		"while the battery lasts for a save (docs/howto-protected.md)", into(&c.Battery))
	set.Func("numa", "confine the process to the CPUs of a node, `auto|off|NODE`: auto is that of the regions, else of the adapters (default auto)", into(&c.NUMA))
	set.Func("spin", "the `DURATION` for which a lane at rdma:// polls before it sleeps; worthwhile only with a core for each lane (default 0s)", into(&c.Spin))
	set.Var(&c.Control, "control", "the control socket, for pmnbd-target status; unix:/DIR/ puts target-PID.sock into DIR")
	set.Var(&c.Metrics, "metrics", "an address for Prometheus to scrape, beside the control socket (default none); everybody who reaches it sees names and counters")
	set.Var(c.LogLevel, "log-level", "the least level of lines that the log has; SIGUSR1 changes it to debug, and back")
}

// parse reads a command's flags, its own ones included, and the file that --config names.
func parse(call *command.Call, own func(*pflag.FlagSet)) (config, error) {
	var file string
	read := func(c *config) error {
		call.Reset()
		call.Flags.StringVar(&file, "config", "", "`FILE` with the same settings (docs/configuration.md); flags override it")
		c.declare(call.Flags)
		own(call.Flags)
		return call.Parse()
	}
	c := defaults()
	if err := read(&c); err != nil || file == "" {
		return c, err
	}
	// Parse again, with what the file says as defaults.
	c = defaults()
	if err := c.load(file); err != nil {
		return c, err
	}
	return c, read(&c)
}

// check refuses what cannot be served on any machine. The error has everything that is wrong.
func (c *config) check() error {
	var wrong []error
	say := func(err error) { wrong = append(wrong, err) }
	if len(c.Regions) == 0 {
		say(flags.Usagef("nothing to serve: name a region with --region NAME=PATH, or in the file of --config"))
	}
	secure := slices.ContainsFunc(c.Listen, func(l listenAddr) bool { return l.Encrypted() })
	for i, r := range c.Regions {
		if err := r.check(); err != nil {
			say(err)
		}
		if slices.ContainsFunc(c.Regions[:i], func(o servedRegion) bool { return o.Name == r.Name }) {
			say(errTwice(r.Name))
		}
		if r.Encrypted && !secure {
			say(r.usage("it is encrypted, and no address is: add --listen iwarps://HOST"))
		}
	}
	if len(c.Listen) == 0 {
		say(flags.Usagef("nowhere to listen: name an address with --listen iwarp://HOST:PORT, or in the file of --config"))
	}
	if c.Name != "" {
		if err := wire.CheckTarget(c.Name); err != nil {
			say(flags.Usagef("--name: %v", err))
		}
	}
	for i, l := range c.Listen {
		if err := c.checkListener(l); err != nil {
			say(err)
		}
		if l.Port != 0 && slices.Contains(c.Listen[:i], l) {
			say(flags.Usagef("--listen %s is given twice", l))
		}
	}
	return errors.Join(wrong...)
}

func errTwice(region string) error {
	return flags.Usagef("region %s is named twice: each needs a name of its own", region)
}

// checkListener refuses an address whose clients nobody knows.
func (c *config) checkListener(l listenAddr) error {
	switch {
	case l.Encrypted() && !c.authenticated():
		return flags.Usagef("%s needs --key-file: without keys nobody knows who is at the other end, and anybody in between could decrypt the connection", l)
	case c.authenticated() || c.Insecure:
	case !loopback(l.Host):
		return flags.Usagef("%s is not a loopback address: use --key-file, so that sessions authenticate, or --insecure-no-auth on a network of your own", l)
	case l.Provider != "iwarp":
		return flags.Usagef("%s: nobody knows which user of this machine connects by an adapter: use --key-file, so that sessions authenticate, or --insecure-no-auth to serve all of them", l)
	}
	return nil
}

// authenticated reports whether initiators must prove a key.
func (c *config) authenticated() bool { return c.KeyFile != "" }

// encrypted has the names of the regions that only encrypted connections may have.
func (c *config) encrypted() map[string]bool {
	names := make(map[string]bool)
	for _, r := range c.Regions {
		names[r.Name] = r.Encrypted
	}
	return names
}

// allow lists, by region, the initiators that may have it. A region that is not there is for
// all.
func (c *config) allow() map[string][][16]byte {
	allow := make(map[string][][16]byte)
	for _, r := range c.Regions {
		for _, id := range r.Allow {
			allow[r.Name] = append(allow[r.Name], id.UUID)
		}
	}
	return allow
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// A listenAddr is an address at which initiators connect.
type listenAddr struct{ endpoint.Endpoint }

// UnmarshalText reads iwarp://HOST:PORT.
func (a *listenAddr) UnmarshalText(b []byte) (err error) {
	a.Endpoint, err = flags.ParseListen(string(b))
	return err
}

// A duration is a time such as 50us.
type duration struct{ time.Duration }

// UnmarshalText reads a duration as flags.ParseDuration does, unless it is negative.
func (d *duration) UnmarshalText(b []byte) error {
	t, err := flags.ParseDuration(string(b))
	if err == nil && t < 0 {
		err = flags.Usagef("%q is negative: use 0 or a time such as 50us", b)
	}
	if err == nil {
		d.Duration = t
	}
	return err
}

// into returns a flag's function that sets v as the file does.
func into(v encoding.TextUnmarshaler) func(string) error {
	return func(s string) error { return v.UnmarshalText([]byte(s)) }
}

// each returns the function of a flag that can be given several times. The first one replaces
// what all held.
func each[T any](all *[]T, read func(string) (T, error)) func(string) error {
	given := false
	return func(s string) error {
		v, err := read(s)
		if err != nil {
			return err
		}
		if !given {
			*all, given = nil, true
		}
		*all = append(*all, v)
		return nil
	}
}
