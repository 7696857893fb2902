package nbd

import (
	"cmp"
	"slices"
	"time"

	"pmnbd/internal/latency"
	"pmnbd/nbd/wire"
)

// A Snapshot describes an export at one moment. Its JSON names do not change.
type Snapshot struct {
	Name string `json:"name"`
	// Connections counts the connections in transmission, Entered all that ever were.
	Connections int      `json:"connections"`
	Entered     uint64   `json:"connections_entered"`
	Commands    Commands `json:"commands"`
	// Latency is of the requests of all clients that ever were.
	Latency Latencies `json:"latency"`
	// Clients are the connections in transmission, the oldest first.
	Clients []Client `json:"clients"`
}

// A Client describes a connection in transmission.
type Client struct {
	Name string `json:"client"` // its address; of a unix socket that of the socket
	// Number counts the connections to the export: it is another one for each.
	Number   uint64    `json:"number"`
	Since    time.Time `json:"since"` // when it connected
	Commands Commands  `json:"commands"`
	Latency  Latencies `json:"latency"`
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
type Count = latency.Count

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

func (n *Commands) add(m Commands) {
	n.Read.Add(m.Read)
	n.Write.Add(m.Write)
	n.Flush.Add(m.Flush)
	n.Trim.Add(m.Trim)
	n.Cache.Add(m.Cache)
	n.WriteZeroes.Add(m.WriteZeroes)
	n.BlockStatus.Add(m.BlockStatus)
	n.Other.Add(m.Other)
}

// counted returns the connection and its counters.
func (c *conn) counted() Client {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Client{Name: clientName(c.nc), Number: c.number, Since: c.began.Round(time.Millisecond), Commands: c.counts, Latency: c.took}
}

// Snapshot describes all exports, in their order. It adds up the counters of the
// connections, so that requests need no shared counter.
func (s *Server) Snapshot() []Snapshot {
	exports := s.served()
	all := make([]Snapshot, 0, len(exports))
	for _, x := range exports {
		all = append(all, x.snapshot())
	}
	return all
}

func (x *export) snapshot() Snapshot {
	x.mu.Lock()
	defer x.mu.Unlock()
	all := Snapshot{Name: x.name, Connections: len(x.live), Entered: x.entered, Commands: x.past, Latency: x.took}
	for c := range x.live {
		one := c.counted()
		all.Commands.add(one.Commands)
		all.Latency.Add(&one.Latency)
		all.Clients = append(all.Clients, one)
	}
	slices.SortFunc(all.Clients, func(a, b Client) int { return cmp.Compare(a.Number, b.Number) })
	return all
}
