package remote

import (
	"context"

	"pmnbd/rdma"
)

// wrapped is a provider whose dialed connections are what wrap makes of them.
type wrapped struct {
	rdma.Provider
	wrap func(rdma.Conn) rdma.Conn
}

func (w wrapped) OpenDomain(ctx context.Context, addr string) (rdma.Domain, error) {
	d, err := w.Provider.OpenDomain(ctx, addr)
	return wrappedDomain{d, w.wrap}, err
}

type wrappedDomain struct {
	rdma.Domain
	wrap func(rdma.Conn) rdma.Conn
}

func (d wrappedDomain) Dial(ctx context.Context, addr string, cfg rdma.ConnConfig, recvs []rdma.WorkRequest) (rdma.Conn, error) {
	c, err := d.Domain.Dial(ctx, addr, cfg, recvs)
	if err != nil {
		return nil, err
	}
	return d.wrap(c), nil
}
