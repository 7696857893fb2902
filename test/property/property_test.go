// Package property drives devices with random requests and compares them with a model of what
// NBD allows. The code is real, the memory and the networks below it fail on purpose.
//
// Run it for longer with -rapid.checks=N, and TestCrashes and TestMirrorCrashes with -crashes=N. A
// failure prints its seed and the shortest sequence of requests that shows it. The seed fixes the
// requests and which cache lines are lost. It fixes the order in which goroutines run only in three
// quarters of the checks of those two (see turns), so a rare failure elsewhere may take some runs to
// show again. What it was is printed when it happens.
package property

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"pmnbd/backend"
	"pmnbd/backend/backendtest"
	"pmnbd/backend/mem"
	"pmnbd/backend/remote"
	"pmnbd/internal/testhost"
	"pmnbd/persist/region"
	"pmnbd/persist/region/regiontest"
	"pmnbd/persist/target"
	"pmnbd/rdma"
	"pmnbd/rdma/iwarp"
	"pmnbd/rdma/rdmafake"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// size of each device: three stripes and a bit, so that requests cross stripes.
const size = 3<<20 + 64<<10

// A subject is a device under test.
type subject struct {
	dev backend.Device
	// durable is the memory behind the device, compared after a FLUSH; nil if the test cannot
	// see it.
	durable []byte
	// close ends the subject. whole says that nothing has failed so far, so closing must not
	// fail.
	close func(whole bool)
	// network can lose the device's connections; nil if it must not.
	network *rdmafake.Provider
	// process runs the device; nil if the test does not kill it.
	process *process
}

// losing is a pair whose connections break.
func losing(t testing.TB, cfg rdmafake.Config, lanes int, domain region.Domain) subject {
	p := rdmafake.New(cfg)
	s := pairOn(t, p, "", lanes, domain)
	s.network = p
	return s
}

// pair opens a remote device with that many lanes, on a target of its own.
func pair(t testing.TB, p rdma.Provider, listen string, lanes int) subject {
	return pairOn(t, p, listen, lanes, region.DomainNone)
}

// pairOn is pair on persistent memory of the given domain.
func pairOn(t testing.TB, p rdma.Provider, listen string, lanes int, domain region.Domain) subject {
	path := region.PathMemfd
	if domain != region.DomainNone {
		dir := testhost.Memory(t)
		path = filepath.Join(dir, "region")
		defer func() { require.NoError(t, os.RemoveAll(dir)) }() // the region is open by then
	}
	r, err := region.Open(path, region.OpenOptions{Name: "r", CreateSize: size, AllowVolatile: true, Wrap: regiontest.Medium{PMem: domain}.Wrap})
	require.NoError(t, err)
	s := target.New(target.Config{Heartbeat: time.Hour, Lease: 2 * time.Hour}, []*region.Region{r})
	l, err := p.Listen(context.Background(), listen)
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	d, err := remote.Dial(context.Background(), remote.Config{
		Provider: p, Addr: l.Addr(), Region: "r", ID: [16]byte{1}, StateDir: t.TempDir(),
		Window: 8 << 20, Lanes: lanes, Connections: 16, AllowVolatile: true,
	})
	require.NoError(t, err)
	return subject{dev: d, durable: r.Data(), close: func(whole bool) {
		err := d.Close()
		clean := r.Superblock().Clean
		err = errors.Join(err, s.Close(), <-served, r.Close())
		if whole {
			require.NoError(t, err)
			require.True(t, clean)
		}
	}}
}

// TestProperty sends random requests of several clients. A READ returns what was written last,
// wherever it lies, whichever client wrote it and however the requests overlap. Every request
// completes, and a FLUSH makes the region equal to the model.
func TestProperty(t *testing.T) {
	fewer(t, 30)
	for name, open := range map[string]func(t *testing.T) subject{
		"memory": func(t *testing.T) subject {
			d, err := mem.New(size)
			require.NoError(t, err)
			return subject{dev: d, close: func(bool) { _ = d.Close() }}
		},
		"one lane":    func(t *testing.T) subject { return pair(t, rdmafake.New(rdmafake.Config{}), "", 1) },
		"three lanes": func(t *testing.T) subject { return pair(t, rdmafake.New(rdmafake.Config{}), "", 3) },
		"tiny queues": func(t *testing.T) subject {
			return pair(t, rdmafake.New(rdmafake.Config{MaxSendWR: 2, MaxReads: 1}), "", 2)
		},
		"losing connections, one lane": func(t *testing.T) subject { return losing(t, rdmafake.Config{}, 1, "") },
		"losing connections, tiny queues": func(t *testing.T) subject {
			return losing(t, rdmafake.Config{MaxSendWR: 2, MaxReads: 1}, 3, "")
		},
		"losing connections, apm": func(t *testing.T) subject { return losing(t, rdmafake.Config{}, 2, region.DomainCaches) },
		"losing connections, flush": func(t *testing.T) subject {
			return losing(t, rdmafake.Config{MaxSendWR: 3, PersistentFlush: true}, 2, region.DomainMemory)
		},
		"over TCP": func(t *testing.T) subject { return pair(t, iwarp.New(iwarp.Config{}), "127.0.0.1:0", 2) },
	} {
		t.Run(name, func(t *testing.T) {
			first := new(atomic.Pointer[rapid.T])
			rapid.Check(t, func(rt *rapid.T) {
				s := open(t)
				whole := false
				defer func() { s.close(whole) }()
				m := newModel(failing{t, rt, first}, s)
				actions := map[string]func(*rapid.T){"submit": m.submit, "wait": m.drain, "flush": m.flush, "hang up": m.hangUp}
				if s.network != nil {
					actions["lose"] = m.lose
				}
				rt.Repeat(actions)
				m.flush(rt)
				backendtest.AllBack(t, s.dev)
				whole = true
			})
		})
	}
}

// A model submits one batch at a time, from any client. So the device has to keep the order of
// submission.
type model struct {
	t       testing.TB
	s       subject
	clients []*backendtest.Client
	data    []byte  // what a READ returns
	past    history // what is durable
	writer  uint32
	open    []expectation
	held    int  // chunks that were written and may be in the window
	reading int  // chunks of open
	durable int  // FLUSHes and FUA writes that have completed
	doomed  bool // the device must fail
}

// An expectation is a request that may not have completed, and what a READ must return: the
// bytes at its submission, or those of a write that was under way with it. NBD allows the
// latter and RDMA does it, because a Write may overtake a Read.
type expectation struct {
	client *backendtest.Client
	req    *backendtest.Request
	reply  *reply // nil if the device cannot be killed
	off    int
	want   []byte
	later  []change
	entry  int // in the history: a write's or zero's own number, else that of the next entry
	what   string
}

// A change is the bytes that a write or zero stores.
type change struct {
	off  int
	data []byte
}

// right reports whether a READ may have got b for byte i.
func (e *expectation) right(i int, b byte) bool {
	return e.want[i] == b || slices.ContainsFunc(e.later, func(c change) bool {
		at := e.off + i - c.off
		return 0 <= at && at < len(c.data) && c.data[at] == b
	})
}

func newModel(t testing.TB, s subject) *model {
	m := &model{t: t, s: s, data: make([]byte, size), past: history{base: make([]byte, size)}}
	m.connect()
	return m
}

// connect makes the device's clients.
func (m *model) connect() {
	m.clients = nil
	for range 3 {
		m.clients = append(m.clients, backendtest.NewClient(m.t, m.s.dev))
	}
}

// submit hands a random batch of a random client to the device.
func (m *model) submit(rt *rapid.T) {
	m.room(rt)
	m.batch(rt)
}

// room makes sure that what an action submits finds room, even while the target is away. A
// request takes up to three chunks. There must be room for two batches, and for three on a
// device that can be killed, whose window is larger.
func (m *model) room(rt *rapid.T) {
	if m.held > 24 {
		m.flushed(rt, m.clients[0])
	}
	if len(m.open) > 12 || m.reading > 8 {
		m.drain(rt)
	}
}

func (m *model) batch(rt *rapid.T) {
	c, batch := m.draw(rt)
	c.Submit(batch...)
}

// draw makes a random batch.
func (m *model) draw(rt *rapid.T) (c *backendtest.Client, batch []*backendtest.Request) {
	c = m.clients[rapid.IntRange(0, len(m.clients)-1).Draw(rt, "client")]
	for range rapid.IntRange(1, 4).Draw(rt, "batch") {
		e := m.request(rt, c)
		batch = append(batch, e.req)
		m.open = append(m.open, e)
	}
	return c, batch
}

// hangUp makes a client hang up that may have requests under way. The device drops what it
// submits after that. Another client takes its place.
func (m *model) hangUp(rt *rapid.T) {
	m.room(rt)
	n := rapid.IntRange(0, len(m.clients)-1).Draw(rt, "client")
	c := m.clients[n]
	late := c.Write(uint64(rapid.IntRange(0, size-4096).Draw(rt, "offset")), backendtest.Pattern(4096, 0), 0)
	c.HangUp()
	require.ErrorIs(m.t, c.Do(late), backend.ErrGone)
	m.clients[n] = backendtest.NewClient(m.t, m.s.dev)
}

// lose breaks the connections: idle ones, or with requests held on the wire and lost.
func (m *model) lose(rt *rapid.T) {
	m.room(rt)
	if rapid.Bool().Draw(rt, "in flight") {
		m.s.network.Pause()
		m.batch(rt)
	}
	m.s.network.Cut()
	if rapid.Bool().Draw(rt, "while away") {
		m.batch(rt)
	}
	m.s.network.Resume()
}

// request makes a random request and applies it to the model.
func (m *model) request(rt *rapid.T, c *backendtest.Client) expectation {
	kind := rapid.SampledFrom([]string{"write", "write", "read", "read", "zero", "trim", "flush"}).Draw(rt, "kind")
	// Small and large, around stripes and anywhere.
	n := rapid.OneOf(rapid.IntRange(1, 600), rapid.Just(4096), rapid.IntRange(1, 400<<10)).Draw(rt, "length")
	off := rapid.OneOf(rapid.IntRange(0, size-n), rapid.SampledFrom([]int{0, 4096, 1<<20 - 100, 1 << 20, 2<<20 - 1, size - n})).Draw(rt, "offset")
	off = min(off, size-n)
	lead := rapid.SampledFrom([]int{0, 0, 1, 100}).Draw(rt, "lead")
	e := expectation{client: c, off: off, entry: m.past.end(), what: fmt.Sprintf("%s %d+%d", kind, off, n)}
	switch kind {
	case "write":
		m.writer++
		data := backendtest.Pattern(n, m.writer)
		e.req = c.Write(uint64(off), data, lead)
		e.req.FUA = rapid.Bool().Draw(rt, "FUA")
		m.change(off, data, e.req.FUA)
	case "zero":
		e.req = c.Zero(uint64(off), uint64(n))
		e.req.FUA = rapid.Bool().Draw(rt, "FUA")
		m.change(off, make([]byte, n), e.req.FUA)
	case "trim": // changes nothing, which NBD allows
		e.req = c.Flush()
		e.req.Cmd, e.req.Off, e.req.Len = backend.Trim, uint64(off), uint64(n)
	case "read":
		e.req = c.Read(uint64(off), n, lead)
		e.want = bytes.Clone(m.data[off : off+n])
	default:
		e.req = c.Flush()
	}
	if kind == "write" {
		m.held += len(e.req.Data)
	} else {
		m.reading += len(e.req.Data)
	}
	if m.s.process != nil {
		e.reply = m.s.process.listens(&e.req.Op)
	}
	return e
}

// change stores data in the model.
func (m *model) change(off int, data []byte, fua bool) {
	copy(m.data[off:], data)
	m.past.add(change{off, data}, fua)
	for i := range m.open {
		if m.open[i].want != nil {
			m.open[i].later = append(m.open[i].later, change{off, data})
		}
	}
}

// drain waits until every request has completed and checks what the READs returned.
func (m *model) drain(rt *rapid.T) {
	for _, e := range m.open {
		if err := e.client.Wait(e.req); err != nil {
			require.True(m.t, m.doomed, "%s: %v", e.what, err)
			require.ErrorIs(m.t, err, backend.ErrFailed, e.what)
			continue
		}
		m.completed(&e)
		e.check(m.t)
	}
	m.open, m.reading = m.open[:0], 0
}

// check checks what a READ returned.
func (e *expectation) check(t testing.TB) {
	if e.want == nil || bytes.Equal(e.want, e.req.Got) {
		return
	}
	for i, b := range e.req.Got {
		if !e.right(i, b) {
			require.Fail(t, "a READ returned other bytes", "%s: first at byte %d", e.what, i)
		}
	}
}

// completed notes what the success of e promises.
func (m *model) completed(e *expectation) {
	switch {
	case e.req.Cmd == backend.Flush:
		m.past.flushed(e.entry)
		m.durable++
	case e.req.FUA:
		m.past.written(e.entry)
		m.durable++
	case e.req.Cmd == backend.Write, e.req.Cmd == backend.WriteZeroes:
		m.past.completed(e.entry)
	}
}

// flush makes everything durable and compares the memory behind the device.
func (m *model) flush(rt *rapid.T) {
	m.flushed(rt, m.clients[rapid.IntRange(0, len(m.clients)-1).Draw(rt, "client")])
}

// flushed is flush by client c.
func (m *model) flushed(rt *rapid.T, c *backendtest.Client) {
	m.drain(rt)
	require.NoError(m.t, c.Do(c.Flush()))
	m.past.flushed(m.past.end())
	m.durable++
	m.held = 0
	if m.s.durable != nil && !bytes.Equal(m.data, m.s.durable) {
		require.Fail(m.t, "the region differs from what was written")
	}
}
