// Package report is what a serving pmnbd says of itself on its control socket: a JSON
// document, the same as text for people, and the same as metrics.
//
// It exists for the three that must agree on the document: serve makes it, status shows it,
// and attach finds exports by it. The package imports backend/remote, nbd, status, and
// cmd/internal/flags for how sizes are written.
package report

import (
	"fmt"

	"pmnbd/backend/remote"
	"pmnbd/cmd/internal/status"
	"pmnbd/internal/latency"
	"pmnbd/nbd"
	"pmnbd/ublk"
)

// Program is the name of this binary's processes on their control sockets.
const Program = "pmnbd"

// A Document is what one process says. Its JSON names stay once published.
type Document struct {
	status.Header
	Exports []Export `json:"exports"` // the first is the default
	// Starting are the exports that wait for members of their mirrors. Exports is empty meanwhile.
	Starting []Starting `json:"starting,omitempty"`
	// Removing are the exports that a reload has removed, and that are not flushed and closed yet.
	Removing []Removing `json:"removing,omitempty"`
	// TLSHandshakes is how long TLS handshakes with clients took, those that failed too.
	TLSHandshakes latency.Histogram `json:"tls_handshakes"`
}

// A Starting is what a Document says of an export that is not served yet.
type Starting struct {
	Name   string `json:"name"`
	Target string `json:"target"` // as --target has it
	Waits  string `json:"waits"`  // for whom, and why
	// Standby: another pmnbd has the mirror, and all is well.
	Standby bool `json:"standby,omitempty"`
}

// Text is the export for people.
func (s *Starting) Text(h *status.Header) string {
	state := "STARTING, and not ready: "
	if s.Standby {
		state = ""
	}
	return fmt.Sprintf("export %s: %s%s\n  process  %d\n  members  %s\n", s.Name, state, s.Waits, h.PID, s.Target)
}

// An Export is what a Document says of one export.
type Export struct {
	nbd.Snapshot
	ReadOnly bool     `json:"read_only"`
	Listen   []string `json:"listen"` // URIs for NBD clients
	// Ublk are the block devices that the process serves by itself.
	Ublk   []ublk.Snapshot `json:"ublk,omitempty"`
	Device remote.Snapshot `json:"device"`
}
