package target

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/persist"
	"pmnbd/persist/region"
	"pmnbd/persist/region/regiontest"
	"pmnbd/persist/wire"
)

func TestMerge(t *testing.T) {
	type ranges = []persist.Range
	for name, c := range map[string]struct{ in, want ranges }{
		"none":          {},
		"one":           {ranges{{Off: 5, Len: 1}}, ranges{{Off: 5, Len: 1}}},
		"apart":         {ranges{{Off: 5, Len: 1}, {Off: 1, Len: 1}}, ranges{{Off: 1, Len: 1}, {Off: 5, Len: 1}}},
		"adjacent":      {ranges{{Off: 1, Len: 4}, {Off: 5, Len: 1}}, ranges{{Off: 1, Len: 5}}},
		"overlapping":   {ranges{{Off: 4, Len: 4}, {Off: 1, Len: 4}}, ranges{{Off: 1, Len: 7}}},
		"the same":      {ranges{{Off: 1, Len: 4}, {Off: 1, Len: 4}, {Off: 1, Len: 4}}, ranges{{Off: 1, Len: 4}}},
		"one in other":  {ranges{{Off: 1, Len: 9}, {Off: 3, Len: 1}, {Off: 10, Len: 1}}, ranges{{Off: 1, Len: 10}}},
		"empty ones":    {ranges{{Off: 9}, {Off: 1, Len: 2}, {Off: 2}}, ranges{{Off: 1, Len: 2}, {Off: 9}}},
		"to the end":    {ranges{{Off: 1, Len: 1<<64 - 2}, {Off: 1<<64 - 2, Len: 1}}, ranges{{Off: 1, Len: 1<<64 - 2}}},
		"two of them":   {ranges{{Off: 1, Len: 1}, {Off: 9, Len: 1}, {Off: 2, Len: 1}, {Off: 10, Len: 1}}, ranges{{Off: 1, Len: 2}, {Off: 9, Len: 2}}},
		"equal offsets": {ranges{{Off: 1, Len: 1}, {Off: 1, Len: 9}}, ranges{{Off: 1, Len: 9}}},
	} {
		t.Run(name, func(t *testing.T) {
			require.ElementsMatch(t, c.want, merge(c.in))
		})
	}
}

// A lines hook records which bytes of a region are written back.
type lines struct {
	mu     sync.Mutex
	s      *site
	pieces []persist.Range
}

func (l *lines) note(off, n uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pieces = append(l.pieces, persist.Range{Off: off, Len: n})
}

// amplified returns as many ranges as a message can name, each with all bytes of g.
func amplified(g persist.Range) []persist.Range {
	ranges := make([]persist.Range, wire.MaxRanges(wire.MaxMessage))
	for i := range ranges {
		ranges[i] = g
	}
	return ranges
}

const step = 64 << 10

// Whatever a barrier names, the target writes each byte back once, a step at a time.
func TestBarrierWritesBackOnce(t *testing.T) {
	whole := persist.Range{Len: size}
	for name, c := range map[string]struct {
		ranges []persist.Range
		bytes  uint64
		most   uint64 // the most bytes in a piece
	}{
		"the region, over and over":        {amplified(whole), size, step},
		"parts of it, over and over":       {append(amplified(persist.Range{Off: 4096, Len: step})[1:], persist.Range{Off: 4096 + step, Len: step}), 2 * step, step},
		"all of it in parts":               {[]persist.Range{{Off: size / 2, Len: size / 2}, {Len: size/2 + 1}}, size, step},
		"no more than a step, as it comes": {[]persist.Range{{Off: 4096, Len: 4096}, {Len: 4096}, {Off: 4096, Len: 4096}}, 3 * 4096, 4096},
	} {
		t.Run(name, func(t *testing.T) {
			var l lines
			l.s = serveWith(t, region.PathMemfd, regiontest.Medium{Data: func(off, n uint64) { l.note(off, n) }}, Config{step: step})
			p := l.s.connect(t)
			p.open(alice)
			for seq := range uint64(2) {
				l.pieces = nil
				var ack wire.BarrierAck
				p.ask(&wire.Barrier{Seq: seq, Last: true, Ranges: c.ranges}, &ack)
				require.Equal(t, wire.BarrierAck{Seq: seq, Last: true}, ack)
				var sum uint64
				for _, g := range l.pieces {
					sum += g.Len
					require.LessOrEqual(t, g.Len, c.most)
				}
				require.Equal(t, c.bytes, sum)
			}
		})
	}
}

// A part of a barrier that the lane writes back itself costs no allocation.
func TestWriteBackAllocatesNothing(t *testing.T) {
	s := serveWith(t, region.PathMemfd, regiontest.Medium{Data: regiontest.Discard}, Config{step: step})
	s.connect(t).open(alice)
	c := s.server.served()["log"].session.conn
	ranges := amplified(persist.Range{Len: 128})
	require.Zero(t, testing.AllocsPerRun(100, func() {
		if c.beside(ranges) {
			t.Error("not on the lane")
		}
		if err := s.region.Flush(ranges); err != nil {
			t.Error(err)
		}
	}))
}

// While much is written back, the lane goes on: it answers heartbeats, which name the barrier, and
// acknowledges what comes behind in the order in which it came.
func TestHeartbeatsDuringAWriteBack(t *testing.T) {
	for name, serve := range written {
		t.Run(name, func(t *testing.T) { heartbeatsDuringAWriteBack(t, serve) })
	}
}

// written are regions of which at least the first MiB behind odd is written back.
var written = map[string]func(t *testing.T, m regiontest.Medium, cfg Config) *site{
	"of one class": func(t *testing.T, m regiontest.Medium, cfg Config) *site {
		return serveWith(t, region.PathMemfd, m, cfg)
	},
	"of class file, in a part": func(t *testing.T, m regiontest.Medium, cfg Config) *site {
		paths := []string{onDisk(t), onDisk(t)}
		m.PMem, m.Only = region.DomainMemory, paths[0]
		_, err := region.Create(paths[0], region.CreateOptions{Name: "log", Size: size, Parts: paths[1:], Wrap: m.Wrap})
		require.NoError(t, err)
		r, err := region.Open(paths[0], region.OpenOptions{Name: "log", Parts: paths[1:], Wrap: m.Wrap})
		require.NoError(t, err)
		require.True(t, r.Notes())
		return serveOpened(t, paths[0], r, cfg)
	},
}

func heartbeatsDuringAWriteBack(t *testing.T, serve func(*testing.T, regiontest.Medium, Config) *site) {
	large := []persist.Range{{Off: odd, Len: 3 * step}}
	small := []persist.Range{{Len: odd}}
	began, proceed := make(chan struct{}), make(chan struct{})
	var once sync.Once
	s := serve(t, regiontest.Medium{Data: func(off, _ uint64) {
		if off == odd {
			once.Do(func() { close(began); <-proceed })
		}
	}}, Config{step: step, lanePart: step / 2})
	release := sync.OnceFunc(func() { close(proceed) })
	t.Cleanup(release) // before the server is stopped
	p := s.connect(t)
	p.open(alice)
	parts := []wire.Barrier{
		{Seq: 1, Ranges: large}, {Seq: 1, Ranges: small}, {Seq: 1, Last: true},
		{Seq: 2, Last: true, Ranges: small}, {Seq: 3, Last: true, Ranges: large},
	}
	for _, m := range parts {
		p.send(m.Append(nil))
		<-began
	}
	for seq := range uint64(3) {
		var hb wire.HeartbeatAck
		p.ask(&wire.Heartbeat{Seq: seq}, &hb)
		require.Equal(t, seq, hb.Seq)
		require.EqualValues(t, 1, hb.Barrier)
	}
	release()
	for _, m := range parts {
		var ack wire.BarrierAck
		require.NoError(t, p.decode(&ack))
		require.Equal(t, wire.BarrierAck{Seq: m.Seq, Last: m.Last}, ack)
	}
	p.durable(4)
	e := s.server.served()["log"]
	require.Eventually(t, func() bool { return !e.syncer.has(e.session.conn) }, patience, tick, "noted behind the answer")
	var ack wire.BarrierAck
	p.ask(&wire.Barrier{Seq: 5, Last: true, Ranges: small}, &ack)
	require.EqualValues(t, 5, s.server.Snapshot()[0].Barriers)
}

// With caches that survive a power failure a barrier is a fence, so nothing is handed on however
// much it names.
func TestFencesAreTheLanes(t *testing.T) {
	for name, c := range map[string]struct {
		medium regiontest.Medium
		beside bool
	}{"ADR": {regiontest.ADR, true}, "eADR": {regiontest.EADR, false}} {
		t.Run(name, func(t *testing.T) {
			s := serveWith(t, onDisk(t), c.medium, Config{step: step})
			s.connect(t).open(alice)
			require.Equal(t, c.beside, s.server.served()["log"].session.conn.beside([]persist.Range{{Len: size}}))
		})
	}
}

// A takeover waits for the step that is being written back, not for the barrier or those
// behind it.
func TestTakeoverDuringABarrier(t *testing.T) {
	for name, ranges := range map[string][]persist.Range{
		"of everything, over and over": amplified(persist.Range{Off: odd, Len: size - odd}),
		"in front of others":           {{Off: odd, Len: 64}},
	} {
		for kind, serve := range written {
			t.Run(name+", "+kind, func(t *testing.T) { takeOverDuring(t, serve, ranges) })
		}
	}
}

// A lane that was interrupted writes back nothing more, although the syncer has answered all that
// came before.
func TestNothingAfterAnInterrupt(t *testing.T) {
	for kind, serve := range written {
		t.Run(kind, func(t *testing.T) {
			var l lines
			l.s = serve(t, regiontest.Medium{Data: l.note}, Config{step: step})
			l.s.connect(t).open(alice)
			c := l.s.server.served()["log"].session.conn
			c.dead.Store(true)
			require.ErrorIs(t, c.flush(&wire.Barrier{Last: true, Ranges: []persist.Range{{Off: odd, Len: 64}}}), errEnded)
			l.mu.Lock()
			defer l.mu.Unlock()
			require.NotContains(t, l.pieces, persist.Range{Off: odd, Len: 64})
		})
	}
}

// odd is an offset at which no flush of the whole extent begins a piece.
const odd = 64

func takeOverDuring(t *testing.T, serve func(*testing.T, regiontest.Medium, Config) *site, ranges []persist.Range) {
	began, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	var l lines
	l.s = serve(t, regiontest.Medium{Data: func(off, n uint64) {
		l.note(off, n)
		if off%step == odd {
			once.Do(func() { close(began); <-release })
		}
	}}, Config{step: step})
	old := l.s.connect(t)
	old.open(alice)
	for seq := range uint64(3) {
		old.send((&wire.Barrier{Seq: seq, Last: true, Ranges: ranges}).Append(nil))
	}
	<-began
	go func() {
		defer close(release)
		_, _ = old.receive() // the grant has destroyed its queue pair
	}()
	p := l.s.connect(t)
	var r wire.Refused
	m := wire.Open{Methods: everyMethod, Owner: bob, Region: "log", Flags: wire.OpenAllowVolatile | wire.OpenTakeover}
	p.ask(&m, &r)
	m.Epoch = r.Epoch
	var o wire.Opened
	p.ask(&m, &o)
	require.Equal(t, r.Epoch+1, o.Epoch)
	p.durable(1) // and nothing of the old barrier comes later
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, g := range l.pieces {
		if g.Off%step == odd {
			n++
		}
	}
	require.Equal(t, 1, n, "pieces of the old barriers")
}
