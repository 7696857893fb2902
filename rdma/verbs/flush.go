//go:build verbs && verbs_flush && cgo

package verbs

// Native FLUSH needs the headers of rdma-core 45.

// #cgo CFLAGS: -DSHIM_NATIVE_FLUSH
import "C"

// CanFlush says whether this build can post OpFlush, where the device has it.
const CanFlush = true
