//go:build verbs && cgo

package verbs

import (
	"context"
	"fmt"

	"pmnbd/rdma"
)

// Built says whether this build has the provider.
const Built = true

// Defaults and limits of a connection.
const (
	// defaultQueue and defaultReads are what a ConnConfig leaves open, as in
	// rdma/iwarp.
	defaultQueue, defaultReads = 128, 16
	// maxQueue bounds what a ConnConfig may ask for; devices bound it too.
	maxQueue = 1 << 14
	// maxReads is what the connection managers carry.
	maxReads = 255
)

// New returns the provider.
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

// complete returns cfg with its defaults and with as many Reads as d can do, or says
// which of its values is out of range.
func (d *device) complete(cfg rdma.ConnConfig) (rdma.ConnConfig, error) {
	queue := min(maxQueue, int(d.caps.max_qp_wr))
	for _, f := range []struct {
		name        string
		v           *int
		preset, top int
	}{
		{"MaxSendWR", &cfg.MaxSendWR, defaultQueue, queue},
		{"MaxRecvWR", &cfg.MaxRecvWR, defaultQueue, queue},
		{"MaxReads", &cfg.MaxReads, defaultReads, maxReads},
		{"MaxReadsIn", &cfg.MaxReadsIn, defaultReads, maxReads},
	} {
		if *f.v == 0 {
			*f.v = f.preset
		}
		if *f.v < 1 || *f.v > f.top {
			return cfg, fmt.Errorf("%s is %d, it must be 1 to %d: %w", f.name, *f.v, f.top, rdma.ErrNotSupported)
		}
	}
	if len(cfg.PrivateData) > rdma.MaxPrivateData {
		return cfg, fmt.Errorf("%d bytes of private data, %d fit: %w", len(cfg.PrivateData), rdma.MaxPrivateData, rdma.ErrNotSupported)
	}
	cfg.MaxReads = min(cfg.MaxReads, int(d.caps.max_reads_out))
	cfg.MaxReadsIn = min(cfg.MaxReadsIn, int(d.caps.max_reads_in))
	return cfg, nil
}
