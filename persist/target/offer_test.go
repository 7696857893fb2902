package target

import (
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/persist"
	"pmnbd/persist/region"
	"pmnbd/persist/wire"
)

// made makes a region for Change.
func made(t *testing.T, name string) *region.Region {
	r, err := region.Open(filepath.Join(t.TempDir(), name), region.OpenOptions{Name: name, CreateSize: size, AllowVolatile: true})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	return r
}

// A session goes on while regions beside its own come and go, and while the list of those who may
// have its region changes; that counts from the next OPEN or RESUME.
func TestChangeBesideASession(t *testing.T) {
	s := newSite(t)
	p := s.connect(t)
	o := p.open(alice)
	more := made(t, "more")
	require.NoError(t, s.server.Change(Offer{Regions: []*region.Region{s.region, more}, Allow: map[string][][16]byte{"log": {bob.ID}}}, nothing))
	require.Equal(t, o.Epoch, s.region.Superblock().Epoch)
	p.durable(1)
	other := s.connect(t)
	got := other.openNamed(bob, "more")
	require.Equal(t, wire.CodeNotAllowed, s.connect(t).refused(alice, o.Epoch).Code)
	require.NoError(t, s.server.Change(Offer{Regions: []*region.Region{s.region, more}, Encrypted: map[string]bool{"log": true}}, nothing))
	require.Equal(t, wire.CodeClear, s.connect(t).refused(bob, o.Epoch).Code)
	var closed wire.Closed
	other.ask(&wire.Close{Epoch: got.Epoch}, &closed)
	require.NoError(t, s.server.Change(Offer{Regions: []*region.Region{s.region}}, nothing))
	p.durable(2)
	require.Len(t, s.server.Snapshot(), 1)
	var r wire.Refused
	s.connect(t).ask(&wire.Open{Methods: everyMethod, Owner: bob, Region: "more", Flags: wire.OpenAllowVolatile}, &r)
	require.Equal(t, wire.CodeUnknownRegion, r.Code)
}

// A region that an initiator holds is not withdrawn, and then nothing else changes either. Once the
// lease is over the session ends with the region, whatever its owner still sends.
func TestWithdraw(t *testing.T) {
	s := newSite(t)
	free, more := made(t, "free"), made(t, "more")
	require.NoError(t, s.server.Change(Offer{Regions: []*region.Region{s.region, free}}, nothing))
	p := s.connect(t)
	p.open(alice)
	err := s.server.Change(Offer{Regions: []*region.Region{more}, Allow: map[string][][16]byte{"log": {bob.ID}}}, nothing)
	var held *HeldError
	require.ErrorAs(t, err, &held)
	require.Equal(t, "log", held.Region)
	require.EqualValues(t, alice.ID, held.Holder)
	require.ErrorContains(t, err, "region log is held by initiator 01000000-0000-0000-0000-000000000000, for 10 more seconds")
	require.Len(t, s.server.Snapshot(), 2, "nothing has changed")
	p.durable(1)
	require.Equal(t, wire.CodeBusy, s.connect(t).refused(bob, 0).Code, "the list neither")

	s.server.served()["log"].session.heard.Store(clock() - int64(Lease) - 1)
	require.NoError(t, s.server.Change(Offer{Regions: []*region.Region{more}}, nothing))
	_, err = p.receive()
	require.Error(t, err, "the session has ended")
	require.Equal(t, wire.CodeUnknownRegion, s.connect(t).refused(bob, 0).Code)

	require.NoError(t, s.server.Change(Offer{Regions: []*region.Region{s.region}}, nothing), "and back")
	require.Equal(t, wire.CodeBusy, s.connect(t).refused(bob, 0).Code, "its last owner has a lease's time to come back")
	s.connect(t).open(alice)
}

// A region that is being granted is not withdrawn. A grant that found the region before it was
// withdrawn does not get it.
func TestWithdrawDuringAGrant(t *testing.T) {
	s := newSite(t)
	e := s.server.served()["log"]
	e.granting.Lock()
	require.ErrorContains(t, s.server.Change(Offer{}, nothing), "region log is being granted")
	e.granting.Unlock()
	require.NoError(t, s.server.Change(Offer{}, nothing))
	s.server.offer.Store(&offered{exports: map[string]*export{"log": e}}) // as the grant has it
	require.Equal(t, wire.CodeEpoch, s.connect(t).refused(alice, 9).Code)
	require.Equal(t, wire.CodeUnknownRegion, s.connect(t).refused(alice, e.r.Superblock().Epoch).Code)
	s.server.offer.Store(&offered{})
}

// A grant is by one offer: one that was being made while the offer changed has to be asked for again. Else
// an initiator whose key is gone could have a region that is new, or one that is taken from it.
func TestChangeDuringAGrant(t *testing.T) {
	s := newSite(t)
	p := s.connect(t)
	epoch := p.refused(alice, 0).Epoch
	s.server.mu.Lock()
	require.Len(t, s.server.conns, 1)
	var c *conn
	for c = range s.server.conns {
	}
	s.server.mu.Unlock()
	before := s.server.offer.Load()
	require.NoError(t, s.server.Change(Offer{Regions: []*region.Region{s.region}, Allow: map[string][][16]byte{"log": {bob.ID}}}, nothing))
	_, refused := c.open(before, &wire.Open{Methods: everyMethod, Owner: alice, Region: "log", Epoch: epoch, Flags: wire.OpenAllowVolatile}, false)
	require.Equal(t, wire.CodeBusy, refused.Code)
	require.Zero(t, refused.Holder, "so that the initiator asks again")
	require.Equal(t, epoch, s.region.Superblock().Epoch)
	require.Equal(t, wire.CodeNotAllowed, p.refused(alice, epoch).Code)
}

// Changes come while initiators open and close.
func TestChangeRaces(t *testing.T) {
	s := newSite(t)
	more := made(t, "more")
	var all sync.WaitGroup
	all.Go(func() {
		for i := range 50 {
			regions := []*region.Region{s.region, more}
			require.NoError(t, s.server.Change(Offer{Regions: regions[:1+i%2]}, nothing))
			s.server.Snapshot()
		}
	})
	for granted := 0; granted < 20; {
		p := s.connect(t)
		o, again := p.openMeanwhile(alice)
		if again {
			continue
		}
		granted++
		var closed wire.Closed
		p.ask(&wire.Close{Epoch: o.Epoch}, &closed)
	}
	all.Wait()
	s.stop()
	require.ErrorIs(t, s.server.Change(Offer{}, nothing), errWithdrawing)
}

// openMeanwhile gets a session. It reports true if the offer changed during one of its OPENs: then
// another connection must ask again.
func (p *peer) openMeanwhile(owner persist.Owner) (o wire.Opened, again bool) {
	p.t.Helper()
	m := wire.Open{Methods: everyMethod, Owner: owner, Region: "log", Flags: wire.OpenAllowVolatile}
	for {
		p.send(m.Append(nil))
		msg, err := p.receive()
		require.NoError(p.t, err)
		if typ, err := wire.TypeOf(msg); err == nil && typ == wire.TypeOpened {
			require.NoError(p.t, o.Decode(msg))
			return o, false
		}
		var r wire.Refused
		require.NoError(p.t, r.Decode(msg))
		if r.Code == wire.CodeBusy {
			require.Contains(p.t, r.Text, "has just changed")
			return o, true
		}
		require.Equal(p.t, wire.CodeEpoch, r.Code, r.Text)
		require.Zero(p.t, m.Epoch, "the epoch that a refusal named is refused")
		m.Epoch = r.Epoch
	}
}
