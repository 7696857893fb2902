//go:build verbs && cgo

package verbs

// #include "shim.h"
import "C"

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"pmnbd/rdma"
)

// sysError makes an error of errno, from a call into the libraries; nil if it is 0.
func sysError(what string, errno C.int) error {
	if errno == 0 {
		return nil
	}
	return libError(what, syscall.Errno(max(errno, -errno))) // some libraries return it negated
}

// libError wraps err, an errno, and explains it where the errno alone would mislead.
func libError(what string, err error) error {
	switch {
	case errors.Is(err, syscall.ENODEV), errors.Is(err, syscall.ENOSYS), errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("%s: no RDMA device there (rdma link shows devices; modules ib_uverbs and rdma_ucm must be loaded): %w: %w", what, err, rdma.ErrLost)
	case errors.Is(err, syscall.EACCES):
		return fmt.Errorf("%s: no right to use /dev/infiniband: %w: %w", what, err, rdma.ErrLost)
	}
	return fmt.Errorf("%s: %w: %w", what, err, rdma.ErrLost)
}

// statusError makes an error of the status of a bad completion. No device reports more
// than that and a code of the vendor's.
func statusError(op rdma.Opcode, status, vendor C.uint32_t) error {
	kind := rdma.ErrLost
	switch status {
	case C.IBV_WC_REM_ACCESS_ERR:
		kind = rdma.ErrRemoteAccess
	case C.IBV_WC_REM_OP_ERR, C.IBV_WC_REM_INV_REQ_ERR, C.IBV_WC_RNR_RETRY_EXC_ERR, C.IBV_WC_REM_ABORT_ERR:
		kind = rdma.ErrRemoteOp
	case C.IBV_WC_LOC_PROT_ERR, C.IBV_WC_LOC_ACCESS_ERR: // LOC_QP_OP_ERR is not one: siw uses it for anything that breaks while it sends
		kind = rdma.ErrLocalAccess
	}
	text := C.GoString(C.ibv_wc_status_str(C.enum_ibv_wc_status(status)))
	return fmt.Errorf("operation %d ended with %q (vendor code %#x): %w", op, text, uint32(vendor), kind)
}
