// Package provider returns the RDMA provider that an address names.
//
// It exists so that all binaries know the same providers. The package imports rdma, rdma/iwarp
// and rdma/verbs.
package provider

import (
	"fmt"
	"net/netip"
	"time"

	"pmnbd/rdma"
	"pmnbd/rdma/iwarp"
	"pmnbd/rdma/verbs"
)

// A Config is what one provider or another needs to know.
type Config struct {
	// Spin is how long a lane polls before it sleeps. Only rdma uses it.
	Spin time.Duration
	// Refused, if not nil, is called for each peer that a listener drops before it becomes a
	// connection.
	Refused func(addr string, err error)
	// Allow, if not nil, decides by its addresses about each connection that a listener
	// accepts. Denied is what the listener tells a peer that it does not let in. rdma uses
	// neither.
	Allow  func(local, remote netip.AddrPort) error
	Denied string
}

// For returns the provider of scheme: iwarp, iwarps or rdma.
func For(scheme string, cfg Config) (rdma.Provider, error) {
	soft := iwarp.Config{Refused: cfg.Refused, Allow: cfg.Allow, Denied: cfg.Denied}
	switch scheme {
	case "rdma":
		return verbs.New(verbs.Config{Spin: cfg.Spin, Refused: cfg.Refused})
	case "iwarps":
		soft.Encrypt = true
		return iwarp.New(soft), nil
	case "iwarp":
		return iwarp.New(soft), nil
	}
	return nil, fmt.Errorf("no provider for %s://", scheme)
}
