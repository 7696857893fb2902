package target

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pmnbd/persist"
	"pmnbd/persist/region"
	"pmnbd/persist/wire"
)

// A fakeImage is where a region is saved to, in a test.
type fakeImage struct {
	r       *region.Region
	saving  func() // unless nil, called by Save
	mu      sync.Mutex
	saved   [][]byte // what each Save found in the memory
	fails   error    // of the next Save
	trouble error
	shape   region.Protection
	known   int    // how often Known was called
	during  int    // Saves under way
	asked   func() // unless nil, called by Protection
}

// of is for Config.image: a disk that takes one second for a save of the region, which may take two.
func (f *fakeImage) of(r *region.Region) protected {
	f.r = r
	f.shape = region.Protection{Size: size, Dirty: size, Speed: size, Expected: time.Second, Longest: time.Second, SaveWithin: 2 * time.Second}
	return f
}

func (f *fakeImage) Save(context.Context) (region.Saved, error) {
	f.mu.Lock()
	f.during++
	alone := f.during == 1
	f.mu.Unlock()
	if f.saving != nil {
		f.saving()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.during--
	if !alone {
		return region.Saved{}, errors.New("two saves of a region at a time")
	}
	if err := f.fails; err != nil {
		f.fails = nil
		return region.Saved{}, err
	}
	f.saved = append(f.saved, slices.Clone(f.r.Data()))
	f.shape.Whole, f.shape.Dirty, f.shape.Expected = true, 0, 0
	return region.Saved{Bytes: size, Took: time.Second}, nil
}

func (f *fakeImage) Protection() (region.Protection, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.asked != nil {
		f.asked()
	}
	return f.shape, true
}

func (f *fakeImage) SaveTrouble() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.trouble
}

func (f *fakeImage) Known() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.known++
}

// set changes what the image says.
func (f *fakeImage) set(change func(*fakeImage)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

// A protectedSite serves a region as if it were of class protected.
type protectedSite struct {
	*site
	image *fakeImage
}

func newProtectedSite(t *testing.T, cfg Config) *protectedSite {
	f := &fakeImage{}
	cfg.image = f.of
	s := &protectedSite{serveRegion(t, onDisk(t), nil, cfg), f}
	looked(t, s.server.served()["log"])
	s.look()
	return s
}

// look looks at the disk and the battery now.
func (s *protectedSite) look() {
	e := s.server.served()["log"]
	if s.server.power.ask != nil {
		s.server.power.look(context.Background())
	}
	e.disk.look(e.image)
}

// resume sends RESUME and returns the refusal.
func (p *peer) resumeRefused(owner persist.Owner, epoch uint64) (r wire.Refused) {
	p.t.Helper()
	p.ask(&wire.Resume{Methods: everyMethod, Owner: owner, Epoch: epoch, Region: "log", Flags: wire.OpenAllowVolatile}, &r)
	return r
}

func (p *peer) resume(owner persist.Owner, epoch uint64) (o wire.Opened) {
	p.t.Helper()
	p.ask(&wire.Resume{Methods: everyMethod, Owner: owner, Epoch: epoch, Region: "log", Flags: wire.OpenAllowVolatile}, &o)
	return o
}

// A save ends sessions before it reads the memory. What the owner sends later is refused, and it comes
// back after Resume, with its lease.
func TestSaveEndsSessions(t *testing.T) {
	s := newProtectedSite(t, Config{})
	p := s.connect(t)
	o := p.open(alice)
	require.NoError(t, p.write(o, 1, 0, []byte("flushed")))
	s.image.saving = func() {
		// In the worst case the owner writes just when the save has begun.
		require.Error(t, p.write(o, 2, 0, []byte("too late")))
	}
	saved, err := s.server.Save(t.Context())
	require.NoError(t, err)
	require.Equal(t, []Saved{{Region: "log", Bytes: size, Took: time.Second}}, saved)
	require.Equal(t, "flushed", string(s.image.saved[0][:7]))
	require.Equal(t, s.image.saved[0], s.region.Data(), "nothing is stored behind the save")

	sb := s.region.Superblock()
	require.Equal(t, alice, sb.Owner)
	require.Equal(t, o.Epoch, sb.Epoch)
	for name, r := range map[string]wire.Refused{
		"RESUME": s.connect(t).resumeRefused(alice, o.Epoch), "OPEN": s.connect(t).refused(alice, o.Epoch),
	} {
		require.Equal(t, wire.CodeBusy, r.Code, name)
		require.Zero(t, r.Holder, "so that the initiator asks again")
		require.Contains(t, r.Text, "pmnbd-target resume")
	}
	shot := s.server.Snapshot()[0]
	require.True(t, shot.Protection.Halted && shot.Protection.Whole)
	require.Contains(t, shot.Protection.Refuses, "pmnbd-target resume")

	e := s.server.served()["log"]
	e.session.heard.Store(clock() - int64(Lease) - 1)
	require.NoError(t, s.server.Resume())
	require.ErrorIs(t, s.server.Resume(), errNotHalted)
	require.Equal(t, wire.CodeBusy, s.connect(t).refused(bob, o.Epoch).Code, "alice has a lease's time to come back")
	back := s.connect(t)
	n := back.resume(alice, o.Epoch)
	require.Equal(t, o.Epoch+1, n.Epoch)
	require.NoError(t, back.write(n, 1, 0, []byte("goes on")))
}

// Sessions on regions of other classes go on.
func TestSaveLeavesOtherRegions(t *testing.T) {
	s := newSite(t)
	p := s.connect(t)
	p.open(alice)
	saved, err := s.server.Save(t.Context())
	require.NoError(t, err)
	require.Empty(t, saved)
	p.durable(1)
	require.ErrorIs(t, s.server.Resume(), errNotHalted)
	require.Nil(t, s.server.Snapshot()[0].Protection)
}

// A save waits for a grant under way, and ends the session that this made.
func TestSaveWaitsForAGrant(t *testing.T) {
	s := newProtectedSite(t, Config{})
	p := s.connect(t)
	p.open(alice)
	e := s.server.served()["log"]
	e.granting.Lock() // as a grant does
	began, ended := make(chan struct{}), make(chan error, 1)
	s.image.saving = func() { close(began) }
	go func() {
		_, err := s.server.Save(context.Background())
		ended <- err
	}()
	require.Eventually(t, s.server.halted.Load, 30*time.Second, time.Millisecond)
	require.Empty(t, began)
	e.granting.Unlock()
	require.NoError(t, <-ended)
	<-began
	_, err := p.receive()
	require.Error(t, err, "the session has ended")
}

// A grant that had passed its first checks when the save began gets nothing.
func TestGrantDuringASave(t *testing.T) {
	var f fakeImage
	s := newTracedSite(t, Config{image: f.of})
	s.server.served()["log"].disk.look(&f)
	p := s.connect(t) // connection 0
	epoch := p.refused(alice, 0).Epoch
	looked, proceed := make(chan struct{}), make(chan struct{})
	once := sync.OnceFunc(func() { close(looked); <-proceed })
	s.trace.mu.Lock()
	s.trace.caps = func(int) { once() }
	s.trace.mu.Unlock()
	p.send((&wire.Open{Methods: everyMethod, Owner: alice, Epoch: epoch, Region: "log"}).Append(nil))
	<-looked
	saved, err := s.server.Save(t.Context())
	require.NoError(t, err)
	require.NoError(t, saved[0].Err)
	close(proceed)
	var r wire.Refused
	require.NoError(t, p.decode(&r))
	require.Equal(t, wire.CodeBusy, r.Code)
	require.Contains(t, r.Text, "pmnbd-target resume")
	require.Equal(t, epoch, s.region.Superblock().Epoch)
}

// What the syncer had to do when the save began waits for Resume: an update of the superblock would
// make the image live again.
func TestNothingBehindASave(t *testing.T) {
	s := newProtectedSite(t, Config{})
	p := s.connect(t)
	p.open(alice)
	y := s.server.served()["log"].syncer
	s.image.saving = func() {
		y.mu.Lock() // as a heartbeat does just before the end
		y.marking = true
		y.mu.Unlock()
		y.signal()
	}
	before := s.region.Superblock()
	_, err := s.server.Save(t.Context())
	require.NoError(t, err)
	taken := func() bool { return len(y.wake) == 0 }
	require.Eventually(t, taken, 30*time.Second, time.Millisecond)
	y.signal() // it takes this one when it is through with the other
	require.Eventually(t, taken, 30*time.Second, time.Millisecond)
	require.Equal(t, before, s.region.Superblock())
	require.NoError(t, s.server.Resume())
	require.Eventually(t, func() bool { return s.region.Superblock().Mark > before.Mark }, 30*time.Second, time.Millisecond)
}

// Everything that can be read is saved, so nothing is in doubt behind that.
func TestSaveSettlesDoubt(t *testing.T) {
	s := newProtectedSite(t, Config{})
	y := s.server.served()["log"].syncer
	y.turn.Lock()
	p := s.connect(t)
	o := p.open(alice)
	var n wire.Opened
	s.connect(t).ask(&wire.Open{Methods: everyMethod, Owner: bob, Epoch: o.Epoch, Region: "log", Flags: wire.OpenTakeover | wire.OpenAllowVolatile}, &n)
	require.True(t, s.region.Superblock().Doubt)
	s.server.halted.Store(true) // the save has begun, and the syncer does nothing by itself
	y.turn.Unlock()
	s.image.saving = func() {
		if s.region.Superblock().Doubt {
			t.Error("saved in doubt")
		}
	}
	saved, err := s.server.Save(t.Context())
	require.NoError(t, err)
	require.NoError(t, saved[0].Err)
}

// Two saves at a time do not meet in a region, and a save that fails can be tried again.
func TestSaves(t *testing.T) {
	s := newProtectedSite(t, Config{})
	o := s.connect(t).open(alice)
	s.image.saving = func() {
		if s.server.changing.TryLock() {
			s.server.changing.Unlock()
			t.Error("another save or a Change could go on")
		}
	}
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			saved, err := s.server.Save(context.Background())
			require.NoError(t, err)
			require.NoError(t, saved[0].Err)
		})
	}
	all.Wait()
	require.Len(t, s.image.saved, 2)

	s.image.set(func(f *fakeImage) { f.fails, f.shape.Whole = unix.EIO, false })
	saved, err := s.server.Save(t.Context())
	require.NoError(t, err)
	require.ErrorIs(t, saved[0].Err, unix.EIO)
	require.Equal(t, wire.CodeBusy, s.connect(t).resumeRefused(alice, o.Epoch).Code, "nothing is granted that could not be saved")
	saved, err = s.server.Save(t.Context())
	require.NoError(t, err)
	require.NoError(t, saved[0].Err)
	s.stop()
	_, err = s.server.Save(t.Context())
	require.ErrorIs(t, err, errWithdrawing)
}

// A slow region does not delay the reports of the others: the caller may not wait until the end.
func TestSaveTellsAtOnce(t *testing.T) {
	images := map[string]*fakeImage{}
	s := serveRegion(t, onDisk(t), nil, Config{image: func(r *region.Region) protected {
		f := &fakeImage{}
		images[r.Name()] = f
		return f.of(r)
	}})
	require.NoError(t, s.server.Change(Offer{Regions: []*region.Region{s.region, made(t, "more")}}, nothing))
	mends := make(chan struct{})
	images["log"].saving = func() {
		images["log"].set(func(f *fakeImage) { f.shape.Saving = &region.Saving{Written: 1, Of: 4, Left: 3 * time.Second} })
		if got := s.server.Snapshot()[0].Protection.Saving; got == nil || *got != (SavingSnapshot{Written: 1, Of: 4, Left: 3}) {
			t.Error("the status does not show how far the save is")
		}
		<-mends
	}
	var told []string
	_, err := s.server.SaveTelling(t.Context(), func(saved Saved) {
		if told = append(told, saved.Region); saved.Region == "more" {
			close(mends)
		}
	})
	require.NoError(t, err)
	require.Equal(t, []string{"more", "log"}, told)
}

// What an adapter still stores would be missing in the image, so such a region is not saved.
func TestSaveNeedsAnEndedSession(t *testing.T) {
	var f fakeImage
	s := newTracedSite(t, Config{image: f.of})
	e := s.server.served()["log"]
	e.disk.look(&f)
	p := s.connect(t)
	o := p.open(alice)
	s.trace.stay(0, unix.EBUSY)
	saved, err := s.server.Save(t.Context())
	require.NoError(t, err)
	require.ErrorIs(t, saved[0].Err, unix.EBUSY)
	require.ErrorContains(t, saved[0].Err, "restart pmnbd-target, then save")
	require.Empty(t, f.saved)
	require.Equal(t, wire.CodeBusy, s.connect(t).resumeRefused(alice, o.Epoch).Code)
	s.trace.stay(0, nil)
}

// Only a session by gpspm that ended with CLOSE has told all that it stored.
func TestKnownAfterClose(t *testing.T) {
	for name, tt := range map[string]struct {
		methods persist.Methods
		close   bool
		known   int
	}{
		"gpspm, closed":     {persist.Methods(0).With(persist.MethodGPSPM), true, 1},
		"gpspm, not closed": {persist.Methods(0).With(persist.MethodGPSPM), false, 0},
		"flush, closed":     {everyMethod, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var f fakeImage
			s := newTracedSite(t, Config{image: f.of})
			s.server.served()["log"].disk.look(&f)
			p := s.connect(t)
			var r wire.Refused
			var o wire.Opened
			m := wire.Open{Methods: tt.methods, Owner: alice, Region: "log"}
			p.ask(&m, &r)
			m.Epoch = r.Epoch
			p.ask(&m, &o)
			require.Equal(t, tt.methods == everyMethod, o.Method == persist.MethodFlush)
			if tt.close {
				var closed wire.Closed
				p.ask(&wire.Close{Epoch: o.Epoch}, &closed)
			} else {
				require.NoError(t, p.conn.Close())
				_, err := s.server.Save(t.Context())
				require.NoError(t, err)
			}
			require.Equal(t, tt.known, f.known)
		})
	}
}
