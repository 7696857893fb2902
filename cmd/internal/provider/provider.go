// Package provider chooses the transport that an address names.
//
// It exists so that both binaries know the same ones. It imports rdma and its
// providers.
package provider

import (
	"net/netip"
	"time"

	"pmnbd/rdma"
	"pmnbd/rdma/iwarp"
	"pmnbd/rdma/verbs"
)

// A Config is what some transport can be told.
type Config struct {
	// Spin is how long a lane polls before it sleeps; rdma:// alone has a use for it.
	Spin time.Duration
	// Refused is told of peers that were dropped before they became connections;
	// nil if nobody wants to know.
	Refused func(addr string, err error)
	// Admit decides about each connection that a listener accepts, by its addresses;
	// nil lets all in. Unadmitted is what a peer is told that is not let in. Adapters
	// have neither.
	Admit      func(local, remote netip.AddrPort) error
	Unadmitted string
}

// For returns the provider of scheme, iwarp or rdma.
func For(scheme string, cfg Config) (rdma.Provider, error) {
	if scheme == "rdma" {
		return verbs.New(verbs.Config{Spin: cfg.Spin, Refused: cfg.Refused})
	}
	return iwarp.New(iwarp.Config{Refused: cfg.Refused, Admit: cfg.Admit, Unadmitted: cfg.Unadmitted}), nil
}
