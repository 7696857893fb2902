package property

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// A history is what was written to a region, and which of it must be durable. For each byte it
// knows the set of values that the medium may hold.
//
//	base ──► entry ──► entry, durable ──► entry ──► entry
//	          where the newer, durable entry overlaps it, this one is gone
type history struct {
	base  []byte  // durable
	log   []entry // oldest first
	first int     // the number of log[0]
	trail *trail  // nil unless a member follows
}

// An entry is a write, a zero, or the whole contents as a new owner found them.
type entry struct {
	change
	fua       bool // no FLUSH covers it: it may still be under way
	completed bool
	durable   bool
}

// add appends c.
func (h *history) add(c change, fua bool) {
	h.log = append(h.log, entry{change: c, fua: fua})
	h.trail.add(c, fua)
}

// end is the number of the next entry.
func (h *history) end() int { return h.first + len(h.log) }

// written notes that FUA write n has completed.
func (h *history) written(n int) {
	if n >= h.first {
		h.log[n-h.first].durable = true
	}
	h.trail.promised(n, n+1, true)
	h.fold()
}

// flushed notes that a FLUSH has completed. end was the number of the next entry when it was
// submitted; it covers the writes that had completed by then.
func (h *history) flushed(end int) {
	for i := range h.log[:max(0, end-h.first)] {
		if e := &h.log[i]; !e.fua {
			e.durable = true
		}
	}
	h.trail.promised(0, end, false)
	h.fold()
}

// closed notes that everything is durable.
func (h *history) closed() {
	for i := range h.log {
		h.log[i].durable = true
	}
	h.trail.promised(0, h.end(), true)
	h.fold()
}

// fold moves the durable entries at the head of the log into base.
func (h *history) fold() {
	for i := len(h.log) - 1; i > 0; i-- {
		if h.log[i].durable && len(h.log[i].data) == len(h.base) {
			h.log = h.log[i:] // it hides everything before it
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

// completed notes that write n has completed. A later call for the same n changes nothing.
func (h *history) completed(n int) {
	if n >= h.first {
		h.log[n-h.first].completed = true
	}
}

// survived returns an error that names a byte of found which the target must not hold after a
// crash. The medium must hold what is durable, and may hold any of the other writes.
func (h *history) survived(found []byte) error {
	return h.check(found, func(e *entry) bool { return e.durable })
}

// adopted is survived for a region into which a process has replayed an adopted window: there
// the writes that had completed must be too.
func (h *history) adopted(found []byte) error {
	return h.check(found, func(e *entry) bool { return e.durable || e.completed })
}

// check returns an error for the first byte of found that no entry explains. A byte may come
// from the newest entry that is certain to be there, from any newer entry, or from base if no
// entry is certain.
func (h *history) check(found []byte, certain func(*entry) bool) error {
	cuts := []int{0, len(found)}
	for i := range h.log {
		cuts = append(cuts, h.log[i].off, h.log[i].off+len(h.log[i].data))
	}
	slices.Sort(cuts)
	cuts = slices.Compact(cuts)
	for i, from := range cuts[:len(cuts)-1] {
		to := cuts[i+1]
		var choices [][]byte // newest first
		for j := len(h.log) - 1; ; j-- {
			if j < 0 {
				choices = append(choices, h.base[from:to])
				break
			}
			e := &h.log[j]
			if e.off <= from && to <= e.off+len(e.data) {
				choices = append(choices, e.data[from-e.off:to-e.off])
				if certain(e) {
					break
				}
			}
		}
		if at := foreign(found[from:to], choices); at >= 0 {
			return fmt.Errorf("byte %d is %#x, but may only be %#x, which is certain, or one of %d newer writes",
				from+at, found[from+at], choices[len(choices)-1][at], len(choices)-1)
		}
	}
	return nil
}

// foreign returns the first index at which found has a byte that no choice has there, or -1.
func foreign(found []byte, choices [][]byte) int {
	if slices.ContainsFunc(choices, func(c []byte) bool { return bytes.Equal(c, found) }) {
		return -1
	}
	if len(found) == 1 {
		return 0
	}
	// Halves, because neighbouring bytes mostly come from the same write.
	half := len(found) / 2
	halves := func(from, to int) (part [][]byte) {
		for _, c := range choices {
			part = append(part, c[from:to])
		}
		return part
	}
	if at := foreign(found[:half], halves(0, half)); at >= 0 {
		return at
	}
	if at := foreign(found[half:], halves(half, len(found))); at >= 0 {
		return half + at
	}
	return -1
}

func TestHistory(t *testing.T) {
	at := func(off int, data string) change { return change{off, []byte(data)} }
	var h history
	reset := func() { h = history{base: []byte("....")} }
	reset()
	h.add(at(0, "aa"), false)
	h.add(at(1, "bb"), false)
	among := func(check func([]byte) error, want ...string) {
		t.Helper()
		var got []string
		for _, s := range []string{"....", "aa..", ".bb.", "abb.", "aab.", "a.b.", "...c", "abbc", "xa.."} {
			if check([]byte(s)) == nil {
				got = append(got, s)
			}
		}
		require.Equal(t, want, got)
	}
	allowed := func(want ...string) {
		t.Helper()
		among(h.survived, want...)
	}
	allowed("....", "aa..", ".bb.", "abb.", "aab.", "a.b.")
	h.completed(0)
	among(h.adopted, "aa..", "abb.", "aab.")
	h.completed(1)
	among(h.adopted, "abb.")
	allowed("....", "aa..", ".bb.", "abb.", "aab.", "a.b.")
	h.flushed(1)
	allowed("aa..", "abb.", "aab.")
	require.Equal(t, 1, h.first)
	h.flushed(2)
	allowed("abb.")
	h.add(at(3, "c"), true)
	h.flushed(3)
	allowed("abb.", "abbc") // a FUA write is durable by itself
	h.written(2)
	allowed("abbc")
	h.written(2)
	h.completed(2)
	require.Empty(t, h.log)

	reset() // a durable entry hides those before it
	h.add(at(0, "aa"), false)
	h.add(at(1, "bb"), true)
	h.written(1)
	allowed(".bb.", "abb.")
	h.closed()
	allowed("abb.")
}
