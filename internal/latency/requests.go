package latency

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

// Note counts one request of so many bytes.
func (n *Count) Note(bytes uint64, fua bool, err error) {
	n.Requests++
	if err != nil {
		n.Errors++
		return
	}
	n.Bytes += bytes
	if fua {
		n.FUA++
	}
}

// Add adds those of m to n.
func (n *Count) Add(m Count) {
	n.Requests += m.Requests
	n.Bytes += m.Bytes
	n.FUA += m.FUA
	n.Errors += m.Errors
}

// Requests says how long requests took.
type Requests struct {
	Read  Histogram `json:"READ"`
	Write Histogram `json:"WRITE"` // without FUA
	Flush Histogram `json:"FLUSH"`
	FUA   Histogram `json:"FUA"` // WRITE and WRITE_ZEROES with the flag
}

// Add adds those of m to r.
func (r *Requests) Add(m *Requests) {
	r.Read.Add(&m.Read)
	r.Write.Add(&m.Write)
	r.Flush.Add(&m.Flush)
	r.FUA.Add(&m.FUA)
}
