package remote

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/backend"
	"pmnbd/persist"
)

// A fakeEnv is a device of which the group commit's tests see and decide everything.
type fakeEnv struct {
	streams []fakeStream
	legs    int // 0 counts as 1
	failure error
	lost    bool
	full    bool
	out     bool // a member of the mirror is out
	unequal bool // a member of F is not equal
	posts   int
	follows bool     // somebody takes barriers later
	taken   uint64   // the last one of those
	events  []string // in their order
}

// A fakeStream is a ring of writes of one byte.
type fakeStream struct {
	head, covered, freed uint64
	slice                uint64 // how far a replay goes next; 0 without one
	sent                 []fakeBarrier
}

type fakeBarrier struct {
	seq          uint64
	force, doubt bool
}

func (e *fakeEnv) failed() error     { return e.failure }
func (e *fakeEnv) bits() bool        { return e.out }
func (e *fakeEnv) answers() bool     { return !e.unequal }
func (e *fakeEnv) up() bool          { return !e.lost && e.failure == nil }
func (e *fakeEnv) legCount() int     { return max(e.legs, 1) }
func (e *fakeEnv) streamCount() int  { return len(e.streams) }
func (e *fakeEnv) head(i int) uint64 { return e.streams[i].head }
func (e *fakeEnv) halfFull() bool    { return e.full }
func (e *fakeEnv) post()             { e.posts++ }
func (e *fakeEnv) retired(*barrier)  {}

func (e *fakeEnv) needed(b *barrier) bool { return b.seq > e.taken && e.follows }

func (e *fakeEnv) enqueue(i int, seq uint64, force, doubt bool) (s share, behind bool) {
	f := &e.streams[i]
	s = share{from: f.covered, to: f.head, wrote: f.head}
	if f.slice > 0 {
		s.to = min(f.covered+f.slice, f.head)
		behind = s.to < f.head
	}
	if s.from != s.to || force {
		for leg := range max(e.legs, 1) {
			s.owes |= persist.Member(leg)
		}
		f.sent = append(f.sent, fakeBarrier{seq, force, doubt})
	}
	return s, behind
}

func (e *fakeEnv) cover(i int, s *share) {
	e.streams[i].covered = s.to
	e.events = append(e.events, "cover")
}

func (e *fakeEnv) free(i int, s *share) {
	if e.streams[i].freed != s.from {
		panic("places come back out of order")
	}
	e.streams[i].freed = s.to
	e.events = append(e.events, "free")
}

// flush asks for a barrier that covers all that is there.
func (e *fakeEnv) flush(c *groupCommit, name string) *fakeSink {
	s := &fakeSink{env: e, name: name}
	c.add(&backend.Op{Cmd: backend.Flush, Sink: s})
	c.start(false)
	return s
}

type fakeSink struct {
	ignore
	env  *fakeEnv
	name string
	done int
	err  error
}

func (s *fakeSink) Complete(op *backend.Op) {
	s.done++
	s.err = op.Err
	s.env.events = append(s.env.events, s.name)
}

func newFakeCommit(streams int) (*fakeEnv, *groupCommit) {
	e := &fakeEnv{streams: make([]fakeStream, streams)}
	return e, &groupCommit{env: e}
}

// A barrier goes to the dirty streams, waits for all of them, and retires in this order: marks,
// replies, spans.
func TestCommitOrder(t *testing.T) {
	e, c := newFakeCommit(3)
	e.streams[0].head, e.streams[2].head = 1, 5
	f := e.flush(c, "reply")
	require.Empty(t, e.streams[1].sent, "it is clean")
	c.done(2, 0, 1)
	c.done(0, 0, 99)
	require.Zero(t, f.done)
	require.Empty(t, e.events)
	c.done(0, 0, 1)
	require.Equal(t, 1, f.done)
	require.NoError(t, f.err)
	require.Equal(t, []string{"cover", "cover", "cover", "reply", "free", "free", "free"}, e.events)
	require.EqualValues(t, 5, e.streams[2].freed)
	require.Equal(t, 1, e.posts)
	require.EqualValues(t, 1, c.succeeded())
}

// What a barrier covered comes back when everybody has it who takes it later, in the order of the index.
func TestHeldBarriersAreNotFreed(t *testing.T) {
	e, c := newFakeCommit(1)
	e.follows = true
	for seq := uint64(1); seq <= 3; seq++ {
		e.streams[0].head = 10 * seq
		f := e.flush(c, "reply")
		c.done(0, 0, seq)
		require.Equal(t, 1, f.done, "nobody waits for those")
	}
	require.Zero(t, e.streams[0].freed)
	e.taken = 2
	c.mu.Lock()
	c.freeLocked()
	c.mu.Unlock()
	require.EqualValues(t, 20, e.streams[0].freed)
	e.follows = false
	e.streams[0].head = 40
	e.flush(c, "reply")
	c.done(0, 0, 4)
	require.EqualValues(t, 40, e.streams[0].freed)
}

// A FLUSH joins the barrier in flight if that covers all that is there. Else it waits for the
// next, together with those that come meanwhile.
func TestCommitJoins(t *testing.T) {
	e, c := newFakeCommit(1)
	e.streams[0].head = 1
	first, joined := e.flush(c, "first"), e.flush(c, "joined")
	e.streams[0].head = 2
	later, last := e.flush(c, "later"), e.flush(c, "last")
	require.Equal(t, []fakeBarrier{{seq: 1}}, e.streams[0].sent)
	c.done(0, 0, 1)
	require.Equal(t, []int{1, 1, 0, 0}, []int{first.done, joined.done, later.done, last.done})
	require.Equal(t, []fakeBarrier{{seq: 1}, {seq: 2}}, e.streams[0].sent)
	c.done(0, 0, 2)
	require.Equal(t, []int{1, 1, 1, 1}, []int{first.done, joined.done, later.done, last.done})
	clean := e.flush(c, "clean")
	require.Equal(t, 1, clean.done, "nothing is dirty")
	require.Len(t, e.streams[0].sent, 2)
}

// Under inherited doubt a FLUSH has a barrier although nothing is dirty. Only the target's CPU
// ends it. The first that succeeds ends the doubt.
func TestCommitUnderDoubt(t *testing.T) {
	e, c := newFakeCommit(2)
	c.doubts = 1
	c.start(true)
	require.Empty(t, e.streams[0].sent, "nobody asks")
	f := e.flush(c, "reply")
	require.Zero(t, f.done)
	require.Equal(t, []fakeBarrier{{2, true, true}}, e.streams[0].sent)
	require.Empty(t, e.streams[1].sent)
	c.done(0, 0, 2)
	require.Equal(t, 1, f.done)
	require.Equal(t, 1, e.flush(c, "again").done)
}

// Lost connections stop all barriers. The ops of the one that broke wait for the next. If the target
// made it durable it is retired instead, and they are its ops again.
func TestCommitOverAnOutage(t *testing.T) {
	for name, durable := range map[string]bool{"sent again": false, "durable": true} {
		t.Run(name, func(t *testing.T) {
			e, c := newFakeCommit(1)
			e.streams[0].head = 1
			f := e.flush(c, "first")
			e.lost = true
			c.mu.Lock()
			c.interruptLocked(7)
			c.mu.Unlock()
			e.streams[0].head = 2
			later := e.flush(c, "later")
			c.done(0, 0, 1)
			require.Equal(t, []int{0, 0}, []int{f.done, later.done}, "late news does not count")
			b := c.resumeLocked(0, false, func(i int, epoch, seq uint64) bool {
				require.Equal(t, [3]uint64{0, 7, 1}, [3]uint64{uint64(i), epoch, seq})
				return durable
			})
			e.lost = false
			if durable {
				b.answer(nil)
				c.free(b)
				require.Equal(t, 1, f.done)
			} else {
				require.Nil(t, b)
			}
			c.start(true)
			require.Equal(t, []fakeBarrier{{seq: 1}, {seq: 2}}, e.streams[0].sent)
			c.done(0, 0, 2)
			require.Equal(t, []int{1, 1}, []int{f.done, later.done})
			require.EqualValues(t, 2, e.streams[0].freed)
		})
	}
}

// A replay has a barrier for each slice. One that reaches what an op came after answers that op.
func TestCommitOverSlices(t *testing.T) {
	e, c := newFakeCommit(1)
	s := &e.streams[0]
	s.head, s.slice = 4, 2
	f := e.flush(c, "first")
	s.head = 10
	later := e.flush(c, "later")
	var answered [][2]int
	for seq := uint64(1); s.covered < s.head; seq++ {
		c.done(0, 0, seq)
		answered = append(answered, [2]int{f.done, later.done})
	}
	require.Equal(t, [][2]int{{0, 0}, {1, 0}, {1, 0}, {1, 0}, {1, 1}}, answered)
	require.EqualValues(t, 10, s.freed)
}

// A device that has failed says never again that anything is durable.
func TestCommitOfAFailedDevice(t *testing.T) {
	e, c := newFakeCommit(1)
	e.streams[0].head = 1
	waits := e.flush(c, "waits")
	e.streams[0].head = 2
	other := e.flush(c, "other")
	e.failure = backend.ErrFailed
	c.mu.Lock()
	b := c.abandonLocked()
	c.mu.Unlock()
	c.done(0, 0, 1)
	require.Zero(t, waits.done)
	b.answer(e.failure)
	late := e.flush(c, "late")
	for _, f := range []*fakeSink{waits, other, late} {
		require.Equal(t, 1, f.done)
		require.ErrorIs(t, f.err, backend.ErrFailed)
	}
	require.False(t, slices.Contains(e.events, "cover"))
}

// A window that is half full starts the next barrier by itself.
func TestCommitRelievesTheWindow(t *testing.T) {
	e, c := newFakeCommit(1)
	e.streams[0].head, e.full = 1, true
	c.relieve()
	e.streams[0].head = 2
	c.done(0, 0, 1)
	require.Equal(t, []fakeBarrier{{seq: 1}, {seq: 2}}, e.streams[0].sent)
	e.full = false
	c.done(0, 0, 2)
	require.Len(t, e.streams[0].sent, 2)
	require.EqualValues(t, 2, e.streams[0].freed)
}

// A barrier of a mirror waits for every leg on every dirty stream. One that was cut off never counts,
// even if a target calls it durable: the others may not have it.
func TestCommitOfAMirror(t *testing.T) {
	e, c := newFakeCommit(2)
	e.legs = 2
	e.streams[0].head, e.streams[1].head = 1, 1
	f := e.flush(c, "reply")
	c.done(0, 0, 1)
	c.done(1, 0, 1)
	c.done(0, 1, 1)
	require.Zero(t, f.done, "a lane of the second leg has not answered")
	e.lost = true
	c.mu.Lock()
	c.interruptLocked(7)
	durable := c.resumeLocked(1, false, func(int, uint64, uint64) bool { return true })
	c.mu.Unlock()
	require.Nil(t, durable)
	c.done(1, 1, 1)
	require.Zero(t, f.done, "late news does not count")
	e.lost = false
	c.start(true)
	for i := range 2 {
		for leg := range 2 {
			require.Zero(t, f.done)
			c.done(i, leg, 2)
		}
	}
	require.Equal(t, 1, f.done)
}
