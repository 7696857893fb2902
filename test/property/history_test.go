package property

import (
	"bytes"
	"fmt"
	"slices"
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
	fua      bool // no FLUSH speaks for it: it may be under way still
	answered bool
	durable  bool
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

// answered notes that write n was answered, and may be so again.
func (h *history) answered(n int) {
	if n >= h.first {
		h.log[n-h.first].answered = true
	}
}

// survived says which byte of found the target must not have after a crash, or nil: what
// is durable is there, of the rest anything.
func (h *history) survived(found []byte) error {
	return h.check(found, func(e *entry) bool { return e.durable })
}

// adopted is survived for what comes of a window that outlived its process: what was
// answered is there, too.
func (h *history) adopted(found []byte) error {
	return h.check(found, func(e *entry) bool { return e.durable || e.answered })
}

// check says which byte of found is neither that of an entry which nothing certain hides,
// nor, if no certain entry hides it, that of the base.
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
			return fmt.Errorf("byte %d is %#x, which it may not be: the last that is certain is %#x, %d writes are newer",
				from+at, found[from+at], choices[len(choices)-1][at], len(choices)-1)
		}
	}
	return nil
}

// foreign is where found has a byte that none of choices has there; -1: nowhere.
func foreign(found []byte, choices [][]byte) int {
	if slices.ContainsFunc(choices, func(c []byte) bool { return bytes.Equal(c, found) }) {
		return -1
	}
	if len(found) == 1 {
		return 0
	}
	// Halves: most of what lies together is of one write.
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
	h.answered(0)
	among(h.adopted, "aa..", "abb.", "aab.")
	h.answered(1)
	among(h.adopted, "abb.")
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
	h.answered(2)
	require.Empty(t, h.log)

	reset() // a durable entry hides those before it
	h.add(at(0, "aa"), false)
	h.add(at(1, "bb"), true)
	h.written(1)
	allowed(".bb.", "abb.")
	h.closed()
	allowed("abb.")
}
