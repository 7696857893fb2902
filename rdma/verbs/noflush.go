//go:build !(verbs && verbs_flush && cgo)

package verbs

// CanFlush reports whether this build can post OpFlush on devices that have it.
const CanFlush = false
