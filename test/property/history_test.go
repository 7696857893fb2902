package property

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// A history is what was written to a region, and what of it is promised to be
// durable: per byte, the set of values that may be found on the medium.
//
//	base ──► entry ──► entry, durable ──► entry ──► entry
//	          gone: the newer one, where they overlap, is durable
type history struct {
	base  []byte  // durable
	log   []entry // oldest first
	first int     // the number of log[0]
}

// An entry is a write or zero, or what a new owner found.
type entry struct {
	change
	fua     bool // no FLUSH speaks for it: it may be under way still
	durable bool
}

// add appends c.
func (h *history) add(c change, fua bool) { h.log = append(h.log, entry{change: c, fua: fua}) }

// end is the number of the next entry.
func (h *history) end() int { return h.first + len(h.log) }

// written notes that the FUA write n was answered.
func (h *history) written(n int) {
	if n >= h.first {
		h.log[n-h.first].durable = true
	}
	h.settle()
}

// flushed notes that a FLUSH was answered which was submitted when end was the next
// entry: it speaks for what was answered before.
func (h *history) flushed(end int) {
	for i := range h.log[:max(0, end-h.first)] {
		if e := &h.log[i]; !e.fua {
			e.durable = true
		}
	}
	h.settle()
}

// closed notes that all is durable.
func (h *history) closed() {
	for i := range h.log {
		h.log[i].durable = true
	}
	h.settle()
}

// settle moves what is durable, and only newer than what is, to base.
func (h *history) settle() {
	for i := len(h.log) - 1; i > 0; i-- {
		if h.log[i].durable && len(h.log[i].data) == len(h.base) {
			h.log = h.log[i:] // hides all before
			h.first += i
			break
		}
	}
	for len(h.log) > 0 && h.log[0].durable {
		copy(h.base[h.log[0].off:], h.log[0].data)
		h.log = h.log[1:]
		h.first++
	}
}

// check says which byte of found it must not be, or nil.
func (h *history) check(found []byte) error {
	right := make([]bool, len(found))
	final := make([]bool, len(found)) // an entry that was looked at is durable
	for i := len(h.log) - 1; i >= 0; i-- {
		e := &h.log[i]
		for j, b := range e.data {
			if at := e.off + j; !final[at] {
				right[at] = right[at] || found[at] == b
				final[at] = e.durable
			}
		}
	}
	for at, b := range found {
		if !right[at] && (final[at] || h.base[at] != b) {
			return fmt.Errorf("byte %d is %#x, which it may not be: the durable base has %#x, %d writes are newer", at, b, h.base[at], len(h.log))
		}
	}
	return nil
}

func TestHistory(t *testing.T) {
	at := func(off int, data string) change { return change{off, []byte(data)} }
	var h history
	reset := func() { h = history{base: []byte("....")} }
	reset()
	h.add(at(0, "aa"), false)
	h.add(at(1, "bb"), false)
	allowed := func(want ...string) {
		t.Helper()
		var got []string
		for _, s := range []string{"....", "aa..", ".bb.", "abb.", "aab.", "a.b.", "...c", "abbc", "xa.."} {
			if h.check([]byte(s)) == nil {
				got = append(got, s)
			}
		}
		require.Equal(t, want, got)
	}
	allowed("....", "aa..", ".bb.", "abb.", "aab.", "a.b.")
	h.flushed(1)
	allowed("aa..", "abb.", "aab.")
	require.Equal(t, 1, h.first)
	h.flushed(2)
	allowed("abb.")
	h.add(at(3, "c"), true)
	h.flushed(3)
	allowed("abb.", "abbc") // a FUA write speaks for itself
	h.written(2)
	allowed("abbc")
	h.written(2)
	require.Empty(t, h.log)

	reset() // a durable entry hides those before it
	h.add(at(0, "aa"), false)
	h.add(at(1, "bb"), true)
	h.written(1)
	allowed(".bb.", "abb.")
	h.closed()
	allowed("abb.")
}
