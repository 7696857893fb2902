package nbd

import "pmnbd/nbd/wire"

// A Snapshot is how an export was at one moment. It is a copy; its JSON names are
// kept once published.
type Snapshot struct {
	Name string `json:"name"`
	// Connections counts those in transmission, Entered all that ever were.
	Connections int      `json:"connections"`
	Entered     uint64   `json:"connections_entered"`
	Commands    Commands `json:"commands"`
}

// Commands counts what clients asked for since the server was made, by the
// commands of NBD. A request counts when it is answered.
type Commands struct {
	Read        Count `json:"READ"`
	Write       Count `json:"WRITE"`
	Flush       Count `json:"FLUSH"`
	Trim        Count `json:"TRIM"`
	Cache       Count `json:"CACHE"`
	WriteZeroes Count `json:"WRITE_ZEROES"`
	BlockStatus Count `json:"BLOCK_STATUS"`
	// Other are commands that this server does not know; all are errors.
	Other Count `json:"OTHER"`
}

// A Count counts the requests of one command.
type Count struct {
	Requests uint64 `json:"requests"`
	// Bytes is what those that succeeded read, wrote, or named.
	Bytes uint64 `json:"bytes"`
	// FUA counts those that succeeded and asked for durability with it.
	FUA uint64 `json:"fua"`
	// Errors counts those that were answered with an error.
	Errors uint64 `json:"errors"`
}

// of is the counter of a command.
func (n *Commands) of(cmd wire.Command) *Count {
	switch cmd {
	case wire.CmdRead:
		return &n.Read
	case wire.CmdWrite:
		return &n.Write
	case wire.CmdFlush:
		return &n.Flush
	case wire.CmdTrim:
		return &n.Trim
	case wire.CmdCache:
		return &n.Cache
	case wire.CmdWriteZeroes:
		return &n.WriteZeroes
	case wire.CmdBlockStatus:
		return &n.BlockStatus
	}
	return &n.Other
}

// answered counts rq, which is done.
func (n *Count) answered(rq *request) {
	n.Requests++
	if rq.op.Err != nil {
		n.Errors++
		return
	}
	n.Bytes += rq.length
	if rq.op.FUA {
		n.FUA++
	}
}

func (n *Count) add(m Count) {
	n.Requests += m.Requests
	n.Bytes += m.Bytes
	n.FUA += m.FUA
	n.Errors += m.Errors
}

func (n *Commands) add(m Commands) {
	n.Read.add(m.Read)
	n.Write.add(m.Write)
	n.Flush.add(m.Flush)
	n.Trim.add(m.Trim)
	n.Cache.add(m.Cache)
	n.WriteZeroes.add(m.WriteZeroes)
	n.BlockStatus.add(m.BlockStatus)
	n.Other.add(m.Other)
}

// counted is what the connection has counted.
func (c *conn) counted() Commands {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.counts
}

// Snapshot is how the exports are now, in their order. The counters are those of
// the connections, added up here, so that no request touches one that is shared.
func (s *Server) Snapshot() []Snapshot {
	all := make([]Snapshot, 0, len(s.exports))
	for _, x := range s.exports {
		all = append(all, x.snapshot())
	}
	return all
}

func (x *export) snapshot() Snapshot {
	x.mu.Lock()
	defer x.mu.Unlock()
	total := x.past
	for c := range x.live {
		total.add(c.counted())
	}
	return Snapshot{Name: x.name, Connections: len(x.live), Entered: x.entered.Load(), Commands: total}
}
