//go:build !verbs || !cgo

package verbs

import (
	"fmt"

	"pmnbd/rdma"
)

// Built says whether this build has the provider.
const Built = false

// New says how to get a build that has the provider.
func New(Config) (rdma.Provider, error) {
	return nil, fmt.Errorf("this build has no RDMA verbs: install libibverbs-dev, librdmacm-dev and pkg-config, then make build: %w", rdma.ErrNotSupported)
}
