//go:build !verbs || !cgo

package verbs

import (
	"fmt"

	"pmnbd/rdma"
)

// Built reports whether this build has the provider.
const Built = false

// New returns an error that says how to make a build with the provider. It is
// rdma.ErrNotSupported.
func New(Config) (rdma.Provider, error) {
	return nil, fmt.Errorf("this build has no RDMA verbs: install libibverbs-dev, librdmacm-dev and pkg-config, then make build: %w", rdma.ErrNotSupported)
}
