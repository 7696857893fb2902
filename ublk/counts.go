package ublk

import (
	"time"

	"pmnbd/backend"
	"pmnbd/internal/latency"
)

// Commands counts requests since the server has the device, by command. A request counts when it
// is answered.
type Commands struct {
	Read        Count `json:"READ"`
	Write       Count `json:"WRITE"`
	Flush       Count `json:"FLUSH"`
	Trim        Count `json:"TRIM"`
	WriteZeroes Count `json:"WRITE_ZEROES"`
}

// A Count counts the requests of one command.
type Count struct {
	Requests uint64 `json:"requests"`
	// Bytes is the sum of the lengths of those that succeeded.
	Bytes uint64 `json:"bytes"`
	// FUA counts those with the flag FUA that succeeded.
	FUA uint64 `json:"fua"`
	// Errors counts those that failed.
	Errors uint64 `json:"errors"`
}

// Latencies says how long requests took, from when the server saw them until it answered.
type Latencies struct {
	Read  latency.Histogram `json:"READ"`
	Write latency.Histogram `json:"WRITE"` // without FUA
	Flush latency.Histogram `json:"FLUSH"`
	FUA   latency.Histogram `json:"FUA"` // WRITE and WRITE_ZEROES with the flag
}

func (n *Commands) of(cmd backend.Command) *Count {
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

func (n *Commands) add(m *Commands) {
	n.Read.add(&m.Read)
	n.Write.add(&m.Write)
	n.Flush.add(&m.Flush)
	n.Trim.add(&m.Trim)
	n.WriteZeroes.add(&m.WriteZeroes)
}

func (n *Count) count(op *backend.Op) {
	n.Requests++
	if op.Err != nil {
		n.Errors++
		return
	}
	n.Bytes += op.Len
	if op.FUA {
		n.FUA++
	}
}

func (n *Count) add(m *Count) {
	n.Requests += m.Requests
	n.Bytes += m.Bytes
	n.FUA += m.FUA
	n.Errors += m.Errors
}

func (n *Latencies) note(op *backend.Op, d time.Duration) {
	switch {
	case op.FUA:
		n.FUA.Note(d)
	case op.Cmd == backend.Read:
		n.Read.Note(d)
	case op.Cmd == backend.Write:
		n.Write.Note(d)
	case op.Cmd == backend.Flush:
		n.Flush.Note(d)
	}
}

func (n *Latencies) add(m *Latencies) {
	n.Read.Add(&m.Read)
	n.Write.Add(&m.Write)
	n.Flush.Add(&m.Flush)
	n.FUA.Add(&m.FUA)
}
