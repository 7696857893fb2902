package nbd

import "pmnbd/nbd/wire"

// A Snapshot describes an export at one moment. Its JSON names do not change.
type Snapshot struct {
	Name string `json:"name"`
	// Connections counts the connections in transmission, Entered all that ever were.
	Connections int      `json:"connections"`
	Entered     uint64   `json:"connections_entered"`
	Commands    Commands `json:"commands"`
}

// Commands counts requests since the server was made, by command. A request counts when
// the server has queued its reply.
type Commands struct {
	Read        Count `json:"READ"`
	Write       Count `json:"WRITE"`
	Flush       Count `json:"FLUSH"`
	Trim        Count `json:"TRIM"`
	Cache       Count `json:"CACHE"`
	WriteZeroes Count `json:"WRITE_ZEROES"`
	BlockStatus Count `json:"BLOCK_STATUS"`
	// Other counts commands that this server does not know. All of them are errors.
	Other Count `json:"OTHER"`
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

// of returns the counter of a command.
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

// count counts rq when it is done.
func (n *Count) count(rq *request) {
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

// counted returns the counters of the connection.
func (c *conn) counted() Commands {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.counts
}

// Snapshot describes all exports, in their order. It adds up the counters of the
// connections, so that requests need no shared counter.
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
