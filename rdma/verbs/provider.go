//go:build verbs && cgo

package verbs

import (
	"context"

	"pmnbd/rdma"
	"pmnbd/rdma/internal/queue"
)

// Built reports whether this build has the provider.
const Built = true

// maxReads bounds ORD and IRD: the connection managers carry 8 bits.
const maxReads = 255

// New returns a provider configured by cfg.
func New(cfg Config) (rdma.Provider, error) { return &provider{cfg}, nil }

type provider struct{ cfg Config }

// OpenDomain implements rdma.Provider.
func (p *provider) OpenDomain(ctx context.Context, addr string) (rdma.Domain, error) {
	e, err := resolve(ctx, addr)
	if err != nil {
		return nil, dialError(ctx, addr, err)
	}
	d, err := newDomain(p.cfg, e)
	if err != nil {
		return nil, err
	}
	return d, nil
}

// complete returns cfg with its defaults filled in and at most as many Reads as d can do.
// A value out of range is ErrNotSupported, and the error names it.
func (d *device) complete(cfg rdma.ConnConfig) (rdma.ConnConfig, error) {
	cfg, err := queue.Complete(cfg, min(queue.MaxDepth, int(d.caps.max_qp_wr)), maxReads)
	cfg.MaxReads = min(cfg.MaxReads, int(d.caps.max_reads_out))
	cfg.MaxReadsIn = min(cfg.MaxReadsIn, int(d.caps.max_reads_in))
	return cfg, err
}
