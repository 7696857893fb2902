package nbd

import "time"

const (
	// stallTimeout is a period of a client's pace.
	stallTimeout = 10 * time.Second
	// minProgress is how many bytes a period must bring. A network of 1 Mbit/s does,
	// and nobody attaches a disk by less; while the largest payload, 32 MiB, cannot
	// keep others waiting for longer than 32 periods.
	minProgress = 1 << 20
)

// A pace is how fast a client moves what it holds: space reserved for a payload
// (design §4.8), or READs that it does not fetch. While others wait for that, one that
// is too slow is cut off. It is judged by periods, not by silence, which a byte now and
// then would end.
type pace struct {
	end  time.Time // of the period
	done uint64    // bytes, when the period began
}

// begin begins a period, of length d, with done bytes moved so far.
func (p *pace) begin(done uint64, d time.Duration) { p.end, p.done = time.Now().Add(d), done }

// tooSlow reports, at the end of a period, whether it brought too little.
func (p *pace) tooSlow(done uint64) bool { return done-p.done < minProgress }
