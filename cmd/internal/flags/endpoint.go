package flags

import (
	"pmnbd/internal/endpoint"
	"pmnbd/persist/wire"
	"pmnbd/rdma/verbs"
)

// ParseTarget reads what --target takes.
func ParseTarget(s string) (endpoint.Endpoint, error) {
	e, err := endpoint.ParseTarget(s)
	if err == nil && e.Name != "" {
		err = wire.CheckTarget(e.Name)
	}
	return usable(e, err, s, "iwarp://HOST:PORT/REGION")
}

// ParseListen reads what the target's --listen takes.
func ParseListen(s string) (endpoint.Endpoint, error) {
	e, err := endpoint.Parse(s, "iwarp://HOST:PORT")
	if err == nil && e.Name != "" {
		return e, Usagef("listener %q names the target: use iwarp://HOST:PORT, and --name for the name", s)
	}
	if err == nil && e.Region != "" {
		return e, Usagef("listener %q names a region: use iwarp://HOST:PORT, and --region for regions", s)
	}
	return usable(e, err, s, "iwarp://HOST:PORT")
}

// usable makes err, of reading s, a usage error. It refuses e if this build lacks its provider.
func usable(e endpoint.Endpoint, err error, s, form string) (endpoint.Endpoint, error) {
	switch {
	case err != nil:
		return e, Usagef("%v", err)
	case e.Provider == "rdma" && !verbs.Built:
		return e, Usagef("%q: this build has no RDMA verbs; use %s, or install libibverbs-dev, librdmacm-dev and pkg-config and make build", s, form)
	}
	return e, nil
}
