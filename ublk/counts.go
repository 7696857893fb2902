package ublk

import (
	"time"

	"pmnbd/backend"
	"pmnbd/internal/latency"
)

// Commands counts requests since the server has the device, by command. A request counts when it
// is answered.
type Commands struct {
	Read        latency.Count `json:"READ"`
	Write       latency.Count `json:"WRITE"`
	Flush       latency.Count `json:"FLUSH"`
	Trim        latency.Count `json:"TRIM"`
	WriteZeroes latency.Count `json:"WRITE_ZEROES"`
}

func (n *Commands) of(cmd backend.Command) *latency.Count {
	switch cmd {
	case backend.Read:
		return &n.Read
	case backend.Write:
		return &n.Write
	case backend.WriteZeroes:
		return &n.WriteZeroes
	case backend.Trim:
		return &n.Trim
	}
	return &n.Flush
}

// Add adds those of m to n.
func (n *Commands) Add(m *Commands) {
	n.Read.Add(m.Read)
	n.Write.Add(m.Write)
	n.Flush.Add(m.Flush)
	n.Trim.Add(m.Trim)
	n.WriteZeroes.Add(m.WriteZeroes)
}

// noteLocked counts op, which took d since the server saw it.
func (q *queue) noteLocked(op *backend.Op, d time.Duration) {
	q.counts.of(op.Cmd).Note(op.Len, op.FUA, op.Err)
	switch {
	case op.FUA:
		q.took.FUA.Note(d)
	case op.Cmd == backend.Read:
		q.took.Read.Note(d)
	case op.Cmd == backend.Write:
		q.took.Write.Note(d)
	case op.Cmd == backend.Flush:
		q.took.Flush.Note(d)
	}
}
