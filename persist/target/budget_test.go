package target

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pmnbd/persist/region"
	"pmnbd/persist/wire"
)

func TestBatteryTooShort(t *testing.T) {
	for name, tt := range map[string]struct {
		b    Battery
		need time.Duration
		says string
	}{
		"on line":                   {Battery{}, time.Hour, ""},
		"on line, nearly empty":     {Battery{Runtime: time.Second, Known: true}, time.Hour, ""},
		"on line, low":              {Battery{Weak: "LB"}, 0, "the battery says LB"},
		"on battery, long enough":   {Battery{OnBattery: true, Runtime: time.Minute, Known: true}, time.Minute, ""},
		"on battery, too short":     {Battery{OnBattery: true, Runtime: 59 * time.Second, Known: true}, time.Minute, "on battery for 59s more, and a save takes 1m0s"},
		"on battery, nobody knows":  {Battery{OnBattery: true}, 0, "does not say for how long"},
		"on battery, low, for long": {Battery{OnBattery: true, Weak: "LB", Runtime: time.Hour, Known: true}, 0, "the battery says LB"},
	} {
		t.Run(name, func(t *testing.T) {
			says := tt.b.tooShort(tt.need)
			if tt.says == "" {
				require.Empty(t, says)
			} else {
				require.Contains(t, says, tt.says)
			}
		})
	}
}

// A server grants nothing, neither by OPEN nor by RESUME, that a save could not keep, and
// grants again by itself. Sessions that are there go on.
func TestBudget(t *testing.T) {
	fine := region.Protection{Size: size, Speed: size, Expected: time.Second, Longest: time.Second, SaveWithin: 2 * time.Second}
	for name, tt := range map[string]struct {
		battery Battery
		asked   error
		trouble error
		shape   func(*region.Protection)
		says    string
	}{
		"on battery, too short":    {battery: Battery{OnBattery: true, Known: true, Runtime: time.Second / 2}, says: "and a save takes 1s"},
		"the battery cannot tell":  {asked: errors.New("upsc: Driver not connected"), says: "the battery cannot be asked: upsc: Driver not connected"},
		"the disk is read-only":    {trouble: unix.EROFS, says: "read-only file system"},
		"on battery, clean so far": {battery: Battery{OnBattery: true, Known: true}, shape: func(p *region.Protection) { p.Expected, p.Whole = 0, true }, says: "a save takes 1s"},
	} {
		t.Run(name, func(t *testing.T) {
			var battery atomic.Pointer[powerAnswer]
			battery.Store(&powerAnswer{})
			s := newProtectedSite(t, Config{Battery: func(context.Context) (Battery, error) {
				a := battery.Load()
				return a.Battery, a.err
			}})
			p := s.connect(t)
			o := p.open(alice)

			battery.Store(&powerAnswer{Battery: tt.battery, err: tt.asked})
			s.image.set(func(f *fakeImage) {
				f.trouble = tt.trouble
				if tt.shape != nil {
					tt.shape(&f.shape)
				}
			})
			s.look()
			p.durable(1)
			require.Contains(t, s.server.Snapshot()[0].Protection.Refuses, tt.says)
			other := s.connect(t)
			r := other.resumeRefused(alice, o.Epoch)
			require.Equal(t, wire.CodeBusy, r.Code)
			require.Contains(t, r.Text, tt.says)
			require.Zero(t, r.Holder, "so that the initiator asks again")
			require.Equal(t, o.Epoch, s.region.Superblock().Epoch, "and its image stays as it is")
			next := alice
			next.Nonce[0]++
			r = other.refused(next, o.Epoch)
			require.Equal(t, wire.CodeBusy, r.Code)
			require.Contains(t, r.Text, tt.says)
			p.durable(2)

			battery.Store(&powerAnswer{})
			s.image.set(func(f *fakeImage) { f.trouble, f.shape = nil, fine })
			s.look()
			require.Empty(t, s.server.Snapshot()[0].Protection.Refuses)
			other.resume(alice, o.Epoch)
		})
	}
}

// Memory that has lost a place keeps others out, and the owner only if the image is whole: the READ
// that found the place ended its session, and the rest of the device goes on.
func TestOwnerOfMemoryThatLostAPlace(t *testing.T) {
	s := newProtectedSite(t, Config{})
	p := s.connect(t)
	o := p.open(alice)
	s.image.set(func(f *fakeImage) { f.trouble = fmt.Errorf("cannot be saved: %w", region.ErrBadPlace) })
	s.look()
	require.Contains(t, s.server.Snapshot()[0].Protection.Refuses, "bad place")
	next := alice
	next.Nonce[0]++
	require.Equal(t, wire.CodeBusy, s.connect(t).refused(next, o.Epoch).Code)
	s.image.set(func(f *fakeImage) { f.shape.Whole = true })
	require.Equal(t, wire.CodeBusy, s.connect(t).resumeRefused(alice, o.Epoch).Code)
	s.image.set(func(f *fakeImage) { f.shape.Whole = false })
	s.connect(t).resume(alice, o.Epoch)
}

// Until battery and disk have been looked at, and while they do not answer, nobody knows.
func TestBudgetUnknown(t *testing.T) {
	p := power{ask: func(context.Context) (Battery, error) { return Battery{}, nil }}
	require.Equal(t, "the battery has not been asked yet", p.tooShort(0))
	p.look(t.Context())
	require.Empty(t, p.tooShort(0))
	p.answer.Load().at -= int64(3*lookEvery + time.Second)
	require.Equal(t, "the battery has not answered for 31s", p.tooShort(0))

	var d disk
	require.EqualError(t, d.wrong(), "the disk for saves has not been looked at yet")
	d.look(&fakeImage{})
	require.NoError(t, d.wrong())
	d.began.Store(clock() - int64(diskAnswers+time.Second))
	require.EqualError(t, d.wrong(), "the disk for saves has not answered for 11s")
}

// An owner that asks in vain keeps its lease: another initiator must not be faster than it once
// sessions are granted again.
func TestLeaseWhileRefused(t *testing.T) {
	s := newProtectedSite(t, Config{})
	o := s.connect(t).open(alice)
	s.image.set(func(f *fakeImage) { f.trouble = unix.EROFS })
	s.look()
	e := s.server.served()["log"]
	e.session.heard.Store(clock() - int64(Lease) - 1)
	bobs := s.connect(t)
	require.Equal(t, wire.CodeBusy, s.connect(t).resumeRefused(alice, o.Epoch).Code)
	s.image.set(func(f *fakeImage) { f.trouble = nil })
	s.look()
	r := bobs.refused(bob, o.Epoch)
	require.Equal(t, wire.CodeBusy, r.Code)
	require.EqualValues(t, alice.ID, r.Holder)
}

// A save of a region takes as long as that of all regions, which may share a disk.
func TestNeedIsTheSum(t *testing.T) {
	images := map[string]*fakeImage{}
	s := serveRegion(t, onDisk(t), nil, Config{image: func(r *region.Region) protected {
		f := &fakeImage{r: r, shape: region.Protection{Size: size, Speed: size, Expected: time.Duration(len(images)+2) * time.Second, SaveWithin: time.Minute}}
		images[r.Name()] = f
		return f
	}})
	more := made(t, "more")
	require.NoError(t, s.server.Change(Offer{Regions: []*region.Region{s.region, more}}, nothing))
	require.Equal(t, 4*time.Second, s.server.served()["log"].need(time.Second))
	require.Equal(t, 3*time.Second, s.server.served()["more"].need(time.Second))
}

// Of two grants at a time, each of which the battery lasts for, one at least sees the other.
func TestNeedOfGrantsAtOnce(t *testing.T) {
	images := map[string]*fakeImage{}
	s := serveRegion(t, onDisk(t), nil, Config{image: func(r *region.Region) protected {
		f := &fakeImage{}
		images[r.Name()] = f
		f.of(r)
		f.shape.Expected, f.shape.Whole = 0, true // saved before
		return f
	}})
	more := made(t, "more")
	require.NoError(t, s.server.Change(Offer{Regions: []*region.Region{s.region, more}}, nothing))
	mine, other := s.server.served()["log"], s.server.served()["more"]
	for _, e := range []*export{mine, other} {
		e.disk.look(e.image)
	}
	require.Equal(t, time.Second, mine.need(time.Second))
	other.begins.Store(true) // as a grant does
	require.Equal(t, 2*time.Second, mine.need(time.Second))
	var seen []bool
	images["log"].set(func(f *fakeImage) { f.asked = func() { seen = append(seen, mine.begins.Load()) } })
	s.connect(t).open(alice)
	images["log"].set(func(f *fakeImage) { f.asked = nil })
	require.Contains(t, seen, true, "a look at the battery while others see the grant")
	require.False(t, mine.begins.Load())
}
