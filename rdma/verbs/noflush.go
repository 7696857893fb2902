//go:build !(verbs && verbs_flush && cgo)

package verbs

// CanFlush says whether this build can post OpFlush, where the device has it.
const CanFlush = false
