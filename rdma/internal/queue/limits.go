package queue

import (
	"errors"
	"fmt"

	"pmnbd/rdma"
)

const (
	// MaxDepth bounds the depth of each work queue, in requests.
	MaxDepth = 1 << 14
	// defaultDepth is the depth of each queue that a ConnConfig leaves open: two
	// batches of the deepest queues that clients use.
	defaultDepth = 128
	// defaultReads is the ORD and the IRD that a ConnConfig leaves open: enough to
	// fill a link whose round trip is 16 Reads long.
	defaultReads = 16
)

// ErrRecvFull is the error of posting more receives than there is room for.
var ErrRecvFull = errors.New("the receive queue is full")

// Complete returns cfg with its defaults filled in. depth bounds each work queue, reads
// bounds ORD and IRD. A value out of range is ErrNotSupported, and the error names it.
func Complete(cfg rdma.ConnConfig, depth, reads int) (rdma.ConnConfig, error) {
	for _, f := range []struct {
		name        string
		v           *int
		preset, top int
	}{
		{"MaxSendWR", &cfg.MaxSendWR, defaultDepth, depth},
		{"MaxRecvWR", &cfg.MaxRecvWR, defaultDepth, depth},
		{"MaxReads", &cfg.MaxReads, defaultReads, reads},
		{"MaxReadsIn", &cfg.MaxReadsIn, defaultReads, reads},
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
	return cfg, nil
}

// CheckLocal says why a request that needs the rights need must not use sge, as an
// ErrLocalAccess. registered says whether the domain knows sge.Region; if it does, the
// region has size bytes and the rights granted.
func CheckLocal(sge rdma.SGE, registered bool, size uint64, granted, need rdma.Access) error {
	switch {
	case sge.Region == nil && sge.Len == 0:
		return nil
	case sge.Region == nil:
		return fmt.Errorf("%d bytes without a region: %w", sge.Len, rdma.ErrLocalAccess)
	case !registered:
		return fmt.Errorf("a region that is not registered here: %w", rdma.ErrLocalAccess)
	case sge.Off > size || uint64(sge.Len) > size-sge.Off:
		return fmt.Errorf("bytes %d+%d of a region of %d: %w", sge.Off, sge.Len, size, rdma.ErrLocalAccess)
	case granted&need != need:
		return fmt.Errorf("a region that does not grant LocalWrite: %w", rdma.ErrLocalAccess)
	}
	return nil
}
