package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"pmnbd/cmd/internal/flags"
	"pmnbd/cmd/pmnbd/internal/arbiter"
)

// defaultArbiterLease is how long a standby waits for a silent initiator: long enough for etcd to elect a
// leader meanwhile.
const defaultArbiterLease = 5 * time.Second

// arbiterPrefix is where the keys of mirrors are in etcd, unless --arbiter says it.
const arbiterPrefix = "/pmnbd"

// An arbiterSpec says which arbiter decides about mirrors. Its files have the defaults that etcdctl takes
// from the environment, and so has the password, which is no argument: everybody could see it.
type arbiterSpec struct {
	uri           string // "": none
	ca, cert, key string
	lease         time.Duration
	standby       bool

	endpoints []string
	prefix    string
	tls       bool // by the URI
}

// declare declares the flags of all commands.
func (a *arbiterSpec) declare(set *pflag.FlagSet) {
	a.lease = defaultArbiterLease
	set.StringVar(&a.uri, "arbiter", "", "the etcd that holds the generation of mirrors, `etcd://HOST:PORT[,HOST:PORT…][/PREFIX]`, or etcds:// for TLS; user and password are ETCDCTL_USER and ETCDCTL_PASSWORD in the environment")
	set.StringVar(&a.ca, "arbiter-ca", os.Getenv("ETCDCTL_CACERT"), "with TLS, a `file` with the CA of the certificates of etcd (default ETCDCTL_CACERT, or the system's)")
	set.StringVar(&a.cert, "arbiter-cert", os.Getenv("ETCDCTL_CERT"), "with TLS, a `file` with the certificate by which etcd knows this host (default ETCDCTL_CERT)")
	set.StringVar(&a.key, "arbiter-key", os.Getenv("ETCDCTL_KEY"), "with TLS, a `file` with the key of --arbiter-cert (default ETCDCTL_KEY)")
}

// declareServe declares the flags of serve.
func (a *arbiterSpec) declareServe(set *pflag.FlagSet) {
	a.declare(set)
	set.DurationVar(&a.lease, "arbiter-lease", defaultArbiterLease, "how long a standby waits when it hears nothing of this initiator, in whole seconds")
	set.BoolVar(&a.standby, "standby", false, "wait while another initiator has the mirrors, and take them over when its lease at the arbiter is over")
}

// parse reads what the flags of set say; those in filed have their values from the file.
func (a *arbiterSpec) parse(set *pflag.FlagSet, filed ...string) error {
	// Where the command line decides about the arbiter, the file may still have what belongs to another one.
	decides := set.Changed("arbiter") && !slices.Contains(filed, "arbiter") || set.Changed("without-arbiter") || set.Changed("degraded-single")
	idle := func(name string) bool { return set.Changed(name) && (!decides || !slices.Contains(filed, name)) }
	if a.uri == "" {
		if a.standby && idle("standby") {
			return flags.Usagef("--standby waits for a lease at an arbiter: name that with --arbiter, or leave --standby out")
		}
		for _, name := range []string{"arbiter-ca", "arbiter-cert", "arbiter-key", "arbiter-lease"} {
			if idle(name) {
				return flags.Usagef("--%s is for an arbiter: name that with --arbiter, or leave --%s out", name, name)
			}
		}
		return nil
	}
	rest, ok := strings.CutPrefix(a.uri, "etcd://")
	if !ok {
		rest, a.tls = strings.CutPrefix(a.uri, "etcds://")
		if !a.tls {
			return flags.Usagef("--arbiter %q: use etcd://HOST:PORT, or etcds://HOST:PORT for TLS", a.uri)
		}
	}
	for _, name := range []string{"arbiter-ca", "arbiter-cert", "arbiter-key"} {
		if !a.tls && idle(name) { // from the environment it may be for other etcds
			return flags.Usagef("--%s is for TLS, and --arbiter %s has none: use etcds://", name, a.uri)
		}
	}
	hosts, prefix, found := strings.Cut(rest, "/")
	a.endpoints, a.prefix = strings.Split(hosts, ","), arbiterPrefix
	if found {
		a.prefix = "/" + prefix
	}
	for _, e := range a.endpoints {
		host, port, err := net.SplitHostPort(e)
		if _, bad := strconv.ParseUint(port, 10, 16); err != nil || bad != nil || host == "" {
			return flags.Usagef("--arbiter %q: %q is not HOST:PORT; etcd's usual port is 2379", a.uri, e)
		}
	}
	switch {
	case (a.cert == "") != (a.key == ""):
		return flags.Usagef("--arbiter-cert and --arbiter-key belong together")
	case a.lease < arbiter.MinLease || a.lease > arbiter.MaxLease || a.lease%time.Second != 0:
		return flags.Usagef("--arbiter-lease %v: use whole seconds, from %v to %v", a.lease, arbiter.MinLease, arbiter.MaxLease)
	}
	return nil
}

// open returns the arbiter, nil if there is none.
func (a *arbiterSpec) open() (*arbiter.Etcd, error) {
	if a.uri == "" {
		return nil, nil
	}
	cfg := arbiter.Config{Endpoints: a.endpoints, Prefix: a.prefix, Lease: a.lease, Standby: a.standby}
	cfg.User, cfg.Password, _ = strings.Cut(os.Getenv("ETCDCTL_USER"), ":")
	if p := os.Getenv("ETCDCTL_PASSWORD"); p != "" {
		cfg.Password = p
	}
	if a.tls {
		cfg.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
		if a.ca != "" {
			pem, err := os.ReadFile(a.ca)
			if err != nil {
				return nil, fmt.Errorf("--arbiter-ca: %w", err)
			}
			cfg.TLS.RootCAs = x509.NewCertPool()
			if !cfg.TLS.RootCAs.AppendCertsFromPEM(pem) {
				return nil, fmt.Errorf("--arbiter-ca: %s has no certificate", a.ca)
			}
		}
		if a.cert != "" {
			// Both files are read at each handshake, so that a certificate can be renewed.
			if _, err := loadPair(a.cert, a.key); err != nil {
				return nil, fmt.Errorf("--arbiter-cert and --arbiter-key: %w", err)
			}
			cfg.TLS.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
				c, err := loadPair(a.cert, a.key)
				return &c, err
			}
		}
	}
	return arbiter.New(cfg)
}
