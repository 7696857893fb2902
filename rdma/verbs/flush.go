//go:build verbs && verbs_flush && cgo

package verbs

// Native FLUSH needs the headers of rdma-core 45.

// #cgo CFLAGS: -DSHIM_NATIVE_FLUSH
import "C"

// CanFlush reports whether this build can post OpFlush on devices that have it.
const CanFlush = true
