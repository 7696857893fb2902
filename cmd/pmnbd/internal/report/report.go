// Package report is what a serving pmnbd says of itself on its control socket: a JSON
// document, the same as text for people, and the same as metrics.
//
// It exists for the three that must agree on the document: serve makes it, status shows it,
// and attach finds exports by it. The package imports backend/remote, nbd, status, and
// cmd/internal/flags for how sizes are written.
package report

import (
	"pmnbd/backend/remote"
	"pmnbd/cmd/internal/status"
	"pmnbd/nbd"
)

// Program is the name of this binary's processes on their control sockets.
const Program = "pmnbd"

// A Document is what one process says. Its JSON names stay once published.
type Document struct {
	status.Header
	Exports []Export `json:"exports"` // the first is the default
}

// An Export is what a Document says of one export.
type Export struct {
	nbd.Snapshot
	ReadOnly bool            `json:"read_only"`
	Listen   []string        `json:"listen"` // URIs for NBD clients
	Device   remote.Snapshot `json:"device"`
}
