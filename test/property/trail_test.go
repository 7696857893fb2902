package property

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// A trail is everything that was written since a moment, in the order of submission, and when clients
// heard that which of it is durable. A member that follows is a crash of it (mirror §7.1): there is a
// promise k so that the member has all that the promises up to k cover, and nothing that was submitted
// after a client had heard promise k+1.
//
//	submitted    a   b   c   d   e   f
//	promises           1: a      2: b, c
//	a crash of promise 1 has a, any of b, c and d, and not e or f
type trail struct {
	base  []byte
	first int // the number of log[0] in the history
	log   []entry
	by    []int // by entry: the first promise that covers it; 0: none does
	heard []int // by promise, from 1: how many entries there were when a client heard it
	has   int   // a promise up to which the member surely had everything
}

// add adds an entry of the history.
func (t *trail) add(c change, fua bool) {
	if t == nil {
		return
	}
	t.log, t.by = append(t.log, entry{change: c, fua: fua}), append(t.by, 0)
}

// promised notes that entries from to to of the history are durable, those with FUA only if fua.
func (t *trail) promised(from, to int, fua bool) {
	if t == nil {
		return
	}
	news := false
	for i := max(0, from-t.first); i < min(to-t.first, len(t.log)); i++ {
		if t.by[i] == 0 && (fua || !t.log[i].fua) {
			t.by[i], news = len(t.heard)+1, true
		}
	}
	if news {
		t.heard = append(t.heard, len(t.log))
	}
}

// check returns an error if found is no crash of the trail, or has less than what was found before.
func (t *trail) check(found []byte) (err error) {
	for k := t.has; k <= len(t.heard); k++ {
		was := t.crash(k, found)
		if was == nil {
			t.has = k
			return nil
		}
		err = errors.Join(err, fmt.Errorf("it is no crash after promise %d of %d: %w", k, len(t.heard), was))
	}
	return err
}

// crash returns an error if found is no crash of promise k.
func (t *trail) crash(k int, found []byte) error {
	end := len(t.log)
	if k < len(t.heard) {
		end = t.heard[k]
	}
	h := history{base: t.base, log: append([]entry(nil), t.log[:end]...)}
	for i := range h.log {
		h.log[i].durable = t.by[i] != 0 && t.by[i] <= k
	}
	return h.survived(found)
}

func TestTrail(t *testing.T) {
	all := []string{"....", "a...", ".b..", "ab..", "..c.", "a.c.", ".bc.", "abc.", "...d", "a..d", "ab.d", ".bcd", "abcd"}
	of := func(has int, check func(*trail)) (right []string) {
		for _, s := range all {
			h := history{base: []byte("....")}
			h.trail = &trail{base: []byte("....")}
			for i, c := range "abc" {
				h.add(change{i, []byte{byte(c)}}, c == 'b')
			}
			check(h.trail)
			h.flushed(3) // a and c
			h.add(change{3, []byte("d")}, false)
			h.written(1)
			h.closed()
			h.trail.has = has
			if h.trail.check([]byte(s)) == nil {
				right = append(right, s)
			}
		}
		return right
	}
	// c and a come in any order before the promise, d only after both.
	require.Equal(t, []string{"....", "a...", ".b..", "ab..", "..c.", "a.c.", ".bc.", "abc.", "abcd"}, of(0, func(*trail) {}))
	require.Equal(t, []string{"a.c.", "abc.", "abcd"}, of(1, func(*trail) {}))
	require.Equal(t, []string{"abc.", "abcd"}, of(2, func(*trail) {}))
	require.Equal(t, []string{"abcd"}, of(3, func(*trail) {}))
}
