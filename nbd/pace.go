package nbd

import "time"

const (
	// stallTimeout is the length of the periods in which the pace of a client is judged.
	stallTimeout = 10 * time.Second
	// minProgress is how many bytes a client must move in a period. A network of
	// 1 Mbit/s is fast enough, and nobody attaches a disk by a slower one. The largest
	// payload, 32 MiB, keeps others waiting for 32 periods at most.
	minProgress = 1 << 20
)

// A pace measures how fast a client sends a payload for which it holds a reservation, or
// fetches the data of its READs (design §4.8). The server cuts a client off that is too
// slow while others wait for the memory. It judges whole periods. Were it to judge
// silence, a byte now and then would be enough.
type pace struct {
	end  time.Time // of the period
	done uint64    // bytes that were moved before the period
}

// begin begins a period of length d. So far the client has moved done bytes.
func (p *pace) begin(done uint64, d time.Duration) { p.end, p.done = time.Now().Add(d), done }

// tooSlow reports whether the client has moved too little. It is called when the period is
// over; by now the client has moved done bytes.
func (p *pace) tooSlow(done uint64) bool { return done-p.done < minProgress }
