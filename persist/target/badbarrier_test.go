package target

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pmnbd/persist"
	"pmnbd/persist/region"
	"pmnbd/persist/region/regiontest"
	"pmnbd/persist/wire"
)

// forget has the medium lose a block of the region, a digest find that, and the memory come back as zeroes: nothing
// that the CPU does there fails any more.
func (s *site) forget(t *testing.T, off uint64) {
	t.Helper()
	page := s.region.Data()[off:][:persist.BadBlock]
	require.NoError(t, unix.Mprotect(page, unix.PROT_NONE))
	_, err := s.region.Digest(persist.Range{Off: off, Len: persist.BadBlock})
	require.ErrorIs(t, err, region.ErrBadPlace)
	require.NoError(t, unix.Mprotect(page, unix.PROT_READ|unix.PROT_WRITE))
	clear(page)
}

// A barrier that names a place which the medium has lost has no answer that says durable, although the CPU can write
// the memory back. An initiator that knows of bad places, or could not know of this one, has to come back for the list;
// one of a release that does not ask for it hears that its barrier has failed.
func TestBarrierNamesABadPlace(t *testing.T) {
	for name, c := range map[string]struct {
		before bool // the place is lost before the session begins
		asks   bool // the initiator asks for places
		fails  bool // it hears so; otherwise its connection ends
	}{
		"lost meanwhile":                     {false, false, false},
		"told":                               {true, true, false},
		"told, by a release that asks never": {true, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			if c.before {
				s.forget(t, 8192)
			}
			p := s.connect(t)
			o := p.open(alice)
			if c.asks {
				p.ask(&wire.Bad{Seq: 1}, &wire.BadPlaces{})
			}
			require.NoError(t, p.write(o, 1, 4096, make([]byte, 4096)), "beside it")
			if !c.before {
				s.forget(t, 8192)
			}
			p.send((&wire.Barrier{Seq: 2, Last: true, Ranges: []persist.Range{{Len: 512}, {Off: 12287, Len: 512}}}).Append(nil))
			msg, err := p.receive()
			if c.fails {
				require.NoError(t, err)
				var fail wire.BarrierFail
				require.NoError(t, fail.Decode(msg))
				require.Equal(t, wire.CodeFailed, fail.Code)
			} else {
				require.Error(t, err)
			}
			require.NoError(t, s.region.Failed())
		})
	}
}

// What a barrier names can be lost while it waits for its answer, or between two of its parts. Then it has none. What
// came later has one.
func TestLostDuringABarrier(t *testing.T) {
	part := wire.Barrier{Seq: 2, Ranges: []persist.Range{{Off: 8192, Len: 512}}}
	for name, lose := range map[string]func(t *testing.T, s *site, p *peer){
		"between two parts": func(t *testing.T, s *site, p *peer) {
			p.ask(&part, &wire.BarrierAck{})
			s.forget(t, 8192)
			p.send((&wire.Barrier{Seq: 2, Last: true}).Append(nil))
		},
		"while the syncer has it": func(t *testing.T, s *site, p *peer) {
			y := s.server.served()["log"].syncer
			y.turn.Lock()
			y.doubted()
			last := part
			last.Last = true
			p.send(last.Append(nil))
			p.ask(&wire.Heartbeat{Seq: 1}, &wire.HeartbeatAck{})
			s.forget(t, 8192)
			y.turn.Unlock()
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			p := s.connect(t)
			o := p.open(alice)
			require.NoError(t, p.write(o, 1, 8192, make([]byte, 512)))
			lose(t, s, p)
			_, err := p.receive()
			require.Error(t, err)
			require.NoError(t, s.region.Failed())
			next := s.connect(t)
			next.resume(alice, o.Epoch)
			next.durable(3)
		})
	}
}

// A barrier of which one part has failed has no answer that says durable to another part.
func TestPartOfABarrierFails(t *testing.T) {
	s := newSite(t)
	s.forget(t, 8192)
	p := s.connect(t)
	o := p.open(alice) // and does not ask for places
	require.NoError(t, p.write(o, 1, 4096, make([]byte, 4096)))
	var fail wire.BarrierFail
	p.ask(&wire.Barrier{Seq: 2, Ranges: []persist.Range{{Off: 8192, Len: 512}}}, &fail)
	p.send((&wire.Barrier{Seq: 2, Last: true, Ranges: []persist.Range{{Off: 4096, Len: 512}}}).Append(nil))
	_, err := p.receive()
	require.Error(t, err)
	require.EqualValues(t, 1, s.server.served()["log"].lastDurable(0).Barrier)
}

// A session can end after a part of a barrier that was not the last one, or that failed. The next session on the same
// connection does not inherit that.
func TestBarriersEndWithTheirSession(t *testing.T) {
	s := newSite(t)
	p := s.connect(t)
	o := p.open(alice)
	p.ask(&wire.Barrier{Seq: 1}, &wire.BarrierAck{})
	p.ask(&wire.Close{Epoch: o.Epoch}, &wire.Closed{})
	s.forget(t, 8192)
	o = p.open(alice)
	p.durable(1)
	p.ask(&wire.Barrier{Seq: 2, Ranges: []persist.Range{{Off: 8192, Len: 512}}}, &wire.BarrierFail{})
	p.ask(&wire.Close{Epoch: o.Epoch}, &wire.Closed{})
	p.open(alice)
	p.durable(2)
}

// What barriers name of blocks that are being made good is kept until their last parts, and no more.
func TestSettlingsAreBounded(t *testing.T) {
	var s settlings
	bad := persist.BadPlaces{{Off: 4096, Len: 4096}}
	beside := wire.Barrier{Ranges: []persist.Range{{Len: 4096}, {Off: 8192, Len: 4096}}}
	touches := wire.Barrier{Ranges: make([]persist.Range, wire.MaxRanges(wire.MaxMessage))}
	for i := range touches.Ranges {
		touches.Ranges[i] = persist.Range{Off: 8191, Len: 2}
	}
	c := &conn{}
	require.NoError(t, s.cover(c, &beside, 1, bad))
	require.Empty(t, s.waits)
	var err error
	for range 2 * maxSettling / len(touches.Ranges) {
		err = errors.Join(err, s.cover(c, &touches, 1, bad))
	}
	require.ErrorIs(t, err, errStranger)
	require.LessOrEqual(t, len(s.waits)*len(touches.Ranges), maxSettling)
	require.NoError(t, s.cover(&conn{}, &touches, 1, bad), "another lane")
	s.forget(c)
	require.Len(t, s.waits, 1)
}

// What a part of a barrier names of blocks that are being made good ends with its session: neither its memory nor its
// ranges are left to the next session of the connection, whose barriers did not make them durable.
func TestSettlingsEndWithTheirSession(t *testing.T) {
	block := persist.Range{Off: 8192, Len: persist.BadBlock}
	s := serveWith(t, onDisk(t), regiontest.Medium{
		PMem: region.DomainMemory, Data: regiontest.Discard,
		Bad:  func() []persist.Range { return []persist.Range{block} },
		Mend: func(uint64, uint64) error { return nil },
	}, Config{})
	e := s.server.served()["log"]
	p := s.connect(t)
	o := p.open(alice)
	c := e.session.conn
	p.ask(&wire.Zero{Seq: 1, Off: block.Off, Len: block.Len}, &wire.ZeroAck{})
	p.ask(&wire.Barrier{Seq: 1, Ranges: []persist.Range{block}}, &wire.BarrierAck{})
	require.Len(t, e.settlings.waits, 1)
	p.ask(&wire.Close{Epoch: o.Epoch}, &wire.Closed{})
	require.Empty(t, e.settlings.waits)
	require.Zero(t, c.settling)
	p.open(alice)
	p.durable(2)
	require.Equal(t, persist.BadPlaces{block}, s.region.Bad(), "barrier 2 names nothing")
}

// Zeroes for a part of a block that was lost meanwhile do not fail the region: the connection ends, and the initiator
// hears of the place when it comes back. One that asks for no places would send them for ever.
func TestZeroesForAPartOfABadBlock(t *testing.T) {
	for name, c := range map[string]struct {
		before, asks, fails bool // as in TestBarrierNamesABadPlace
	}{
		"lost meanwhile":                     {false, false, false},
		"told":                               {true, true, false},
		"told, by a release that asks never": {true, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			if c.before {
				s.forget(t, 8192)
			}
			p := s.connect(t)
			p.open(alice)
			if c.asks {
				p.ask(&wire.Bad{Seq: 1}, &wire.BadPlaces{})
			}
			if !c.before {
				s.forget(t, 8192)
			}
			p.send((&wire.Zero{Seq: 1, Off: 8192, Len: 512}).Append(nil))
			_, err := p.receive()
			require.Error(t, err)
			require.Equal(t, c.fails, s.region.Failed() != nil)
		})
	}
}
