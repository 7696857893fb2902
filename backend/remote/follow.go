package remote

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"pmnbd/persist"
	"pmnbd/rdma"
)

// A follower is what a leg has whose member follows the others (mirror §7). An *interval* is what one
// successful barrier of the others covers. The leg gets one interval after the other, and the next one
// only when its target has made the one before durable on all lanes:
//
//	barriers that succeeded   │ 7 │ 8 │ 9 │ 10 │      they stay in the window until the follower has them
//	                            ▲   ▲
//	           seq: it has all ─┘   └─ current: Writes, then a barrier, on each lane
//
// So at each moment the member is what a disk with a write cache would be after a crash at barrier seq:
// it has all that was flushed up to there, and some of the next interval, in the order of each stripe.
//
// Its lanes look like ones with an endless replay: they are behind, and get neither writes nor READs
// by themselves. commit.mu guards all of it.
type follower struct {
	on      bool     // it follows. Else it is away for good, or has to be copied to first
	wanted  bool     // it has all, and is to follow from the next barrier on
	dropped bool     // it is to be let go as soon as its connections have ended
	seq     uint64   // the barrier up to which it has everything
	pos     []uint64 // by stream, the position of the ring that belongs to seq
	current *barrier // the interval that is under way; nil: none
	owes    []bool   // by stream, who has not answered for it
	owed    int      // how many those are
	point   persist.Point
	moved   time.Time // when its target last took anything
	carried uint64    // and how much it had carried then
	bound   bool      // it held the others back when it was looked at last
	bits    followedBits
}

// A following is what copies has for followers. All but the channels and the number is set once.
type following struct {
	followers int // legs that follow; guarded by commit.mu

	lag     uint64        // Config.AsyncLag
	lagTime time.Duration // Config.AsyncLagTime
	drop    bool          // Config.AsyncDrop
	replays bool          // the replay of a window, which nobody follows
	caught  chan struct{} // holds a token when one has acknowledged something
}

func (w *following) startFollowing(cfg *Config) {
	w.lag, w.lagTime, w.drop = cfg.AsyncLag, cfg.AsyncLagTime, cfg.AsyncDrop
	w.caught = make(chan struct{}, 1)
}

// asyncStall is how often a follower is looked at that holds the others back.
const asyncStall = time.Second

// errLagged ends the session of a follower that is let go.
var errLagged = fmt.Errorf("%w: it lagged too far behind, and is let go", rdma.ErrLost)

// errNoSourceYet: a follower that is copied to before the others serve would be torn for nothing.
var errNoSourceYet = errors.New("it follows the mirror, and no member is there that it could follow")

// followLocked has g, to which all was copied, follow. It is true if g does now. Else that comes with the
// barrier that is in flight, and its resync is roused: only between two barriers it is clear what g has.
// The caller holds commit.mu.
func (k *copies) followLocked(g *leg) bool {
	f := &g.follow
	if f.on {
		return true
	}
	f.wanted = true
	if k.core.commit.current == nil {
		k.turnLocked(g)
	}
	return f.on
}

// turnLocked makes a follower of g, whose target has acknowledged all barriers that succeeded. What is in
// its queue belongs to the next interval. The caller holds commit.mu, and no barrier is in flight.
func (k *copies) turnLocked(g *leg) {
	f, x := &g.follow, k.core
	for _, l := range g.lanes {
		l.mu.Lock()
		ready := l.connected && !l.behind
		l.mu.Unlock()
		if !ready {
			return
		}
	}
	f.wanted, f.on, f.dropped, f.current, f.seq = false, true, false, nil, x.commit.seq
	f.point = persist.Point{Barrier: f.seq, At: time.Now().UnixNano()}
	f.moved = time.Now()
	f.pos, f.owes = make([]uint64, len(x.streams)), make([]bool, len(x.streams))
	f.bits.begin(g, len(x.streams))
	for i, l := range g.lanes {
		l.mu.Lock()
		l.follows, l.behind, l.copying = true, true, nil
		l.queued = l.ring.Head()
		l.mu.Unlock()
		f.pos[i] = l.ring.Covered()
	}
	g.following.Store(true)
	k.followers++
	if r := g.copying; r != nil {
		r.rouse()
	}
	g.log.Info("the target follows the mirror", slog.String("region", g.cfg.Region), slog.String("target", g.cfg.Addr), slog.Uint64("barrier", f.seq))
	g.tell()
}

// retiredLocked notes that b has succeeded: followers get it. The caller holds commit.mu.
func (k *copies) retiredLocked(b *barrier) {
	if k.view.Record.Async == 0 && k.followers == 0 {
		return
	}
	b.at, b.bytes = time.Now(), 0
	for i := range b.shares {
		b.bytes += b.shares[i].bytes
	}
	for _, g := range k.core.legs {
		f := &g.follow
		switch {
		case f.on:
			f.bits.note(k.core, b)
			k.sendIntervalLocked(g)
		case f.wanted && g.up.Load():
			k.turnLocked(g)
		}
	}
}

// sendIntervalLocked queues the next interval for g, if it has acknowledged the one before. The caller holds
// commit.mu, and posts.
func (k *copies) sendIntervalLocked(g *leg) {
	f := &g.follow
	for f.on && f.current == nil && g.up.Load() {
		b := k.nextIntervalLocked(f)
		if b == nil {
			return
		}
		f.owed = 0
		for i, l := range g.lanes {
			share := &b.shares[i]
			if f.owes[i] = share.from != share.to; !f.owes[i] {
				continue
			}
			f.owed++
			l.mu.Lock()
			if l.queued < share.to {
				l.queue.push(item{kind: itemWrites, from: l.queued, to: share.to})
				l.queued = share.to
			}
			l.pushBarrierLocked(b.seq, share.from, share.to, true)
			l.mu.Unlock()
		}
		if f.current = b; f.owed == 0 {
			k.hasLocked(g)
		}
	}
}

// nextIntervalLocked returns the oldest barrier that f lacks, or nil.
func (k *copies) nextIntervalLocked(f *follower) *barrier {
	c := &k.core.commit
	for i := range c.retired.n {
		if b := *c.retired.at(i); b.seq > f.seq {
			return b
		}
	}
	return nil
}

// hasLocked notes that g has made its interval durable.
func (k *copies) hasLocked(g *leg) {
	f := &g.follow
	b := f.current
	f.current, f.seq = nil, b.seq
	f.point = persist.Point{Barrier: b.seq, At: b.at.UnixNano()}
	f.moved = time.Now()
	for i := range b.shares {
		f.pos[i] = max(f.pos[i], b.shares[i].to)
	}
	f.bits.has(k.core, b)
}

// followed counts the answer of stream i's lane of g to barrier seq, and reports whether that was one of
// g's own. The last one makes room in the window, and the next interval goes out.
func (k *copies) followed(g *leg, i int, seq uint64) bool {
	c := &k.core.commit
	c.mu.Lock()
	f := &g.follow
	if !f.on {
		c.mu.Unlock()
		return false
	}
	if f.current == nil || f.current.seq != seq || !f.owes[i] {
		c.mu.Unlock()
		return true // of a session before
	}
	f.owes[i] = false
	if f.owed--; f.owed > 0 {
		c.mu.Unlock()
		return true
	}
	k.hasLocked(g)
	k.sendIntervalLocked(g)
	c.freeLocked()
	c.mu.Unlock()
	select {
	case k.caught <- struct{}{}:
	default:
	}
	g.tell()
	c.start(false) // it may have waited for this
	k.core.post()
	return true
}

// needs reports whether a follower lacks barrier b, so what b covers stays in the window. The caller
// holds commit.mu.
func (k *copies) needs(b *barrier) bool {
	for _, g := range k.core.legs {
		if f := &g.follow; f.on && b.seq > f.seq {
			return true
		}
	}
	return false
}

// A lag is how far a follower is behind.
type lag struct {
	bytes uint64
	age   time.Duration // of the oldest barrier that it lacks; 0: it has all
}

// lagLocked is how far f is behind. The caller holds commit.mu.
func (k *copies) lagLocked(f *follower) (l lag) {
	c := &k.core.commit
	for i := range c.retired.n {
		b := *c.retired.at(i)
		if b.seq <= f.seq || b.bytes == 0 {
			continue
		}
		if l.bytes == 0 {
			l.age = max(time.Since(b.at), 1)
		}
		l.bytes += b.bytes
	}
	return l
}

// atBound reports whether l is at the bound.
func (k *copies) atBound(l lag) bool { return l.bytes >= k.lag || l.age >= k.lagTime }

// lagsLocked reports whether a follower is so far behind that no barrier begins: FLUSHes wait then, and
// writes do as soon as the window is full. The caller holds commit.mu.
func (k *copies) lagsLocked() bool {
	if k.view.Record.Async == 0 && k.followers == 0 {
		return false
	}
	for _, g := range k.core.legs {
		if f := &g.follow; f.on && k.atBound(k.lagLocked(f)) {
			k.rouse() // it may have to be let go
			return true
		}
	}
	return false
}

// followersLocked lets followers go that are of no use, or hold the others back for too long. wait is when
// to look again; 0: never. drop is a leg whose session is to be ended first. The caller holds commit.mu.
func (k *copies) followersLocked() (freed bool, drop *leg, wait time.Duration) {
	if k.view.Record.Async == 0 && k.followers == 0 {
		return false, nil, 0
	}
	now := time.Now()
	soon := func(d time.Duration) {
		if wait == 0 || d < wait {
			wait = max(d, time.Millisecond)
		}
	}
	for _, g := range k.core.legs {
		f := &g.follow
		if !f.on {
			continue
		}
		l := k.lagLocked(f)
		over, up := k.atBound(l), g.up.Load()
		if n := g.carried(); n != f.carried || !f.bound {
			f.carried, f.moved = n, now // at the bound, the time counts from when it came there
		}
		f.bound = over
		away := now.Sub(g.silentAt) // of one that is not up
		stuck := up && now.Sub(f.moved) >= max(k.timeout, asyncStall)
		if !k.view.Record.Async.Has(g.slot) && !k.view.Pending {
			f.dropped = true // another target leads to its member now (placeLocked)
		}
		switch {
		case f.dropped, g.bad != nil && !up, over && (k.drop || stuck || !up && away >= k.timeout):
			if !f.dropped {
				f.dropped = true
				k.log.Warn("A TARGET THAT FOLLOWED IS LET GO: what it lacks is copied when it is back, and it cannot be promoted meanwhile",
					slog.String("region", g.cfg.Region), slog.String("target", g.cfg.Addr), slog.Uint64("lag_bytes", l.bytes), slog.Duration("lag", l.age), slog.Uint64("has_barrier", f.seq))
			}
			if up {
				drop = g
			} else if !g.touches.Load() {
				k.unfollowLocked(g)
				freed = true
			} // else its end rouses
		case over && !up:
			soon(k.timeout - away)
		case over:
			soon(asyncStall)
		case l.bytes > 0:
			soon(k.lagTime - l.age)
		}
	}
	return freed, drop, wait
}

// unfollowLocked has g not follow any more. Its connections have ended, or never were. The caller holds
// commit.mu.
func (k *copies) unfollowLocked(g *leg) {
	if g.follow.on {
		k.followers--
	}
	g.follow = follower{}
	g.following.Store(false)
	k.core.commit.freeLocked()
}

// interruptedLocked notes that the session of g is lost. What was under way is sent again. The caller
// holds commit.mu.
func (k *copies) interruptedLocked(g *leg) {
	if k != nil {
		g.follow.current, g.follow.wanted = nil, false
	}
}

// endFollowing lets all followers go: the connections have ended for good.
func (k *copies) endFollowing() {
	if k == nil {
		return
	}
	c := &k.core.commit
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, g := range k.core.legs {
		k.unfollowLocked(g)
	}
}

// mayMeet reports whether the member of g, which this life has met, could go on.
func (k *copies) mayMeet(g *leg) bool {
	c := &k.core.commit
	c.mu.Lock()
	defer c.mu.Unlock()
	return k.mayMeetLocked(int(g.record.Slot)) == nil
}

// mayMeetLocked returns an error if the member in slot follows, and there is nobody to follow: it stays
// what it is. The caller holds commit.mu.
func (k *copies) mayMeetLocked(slot int) error {
	if !k.view.Record.Async.Has(slot) {
		return nil
	}
	if k.view.Serves() && !k.replays {
		for _, g := range k.core.legs {
			if g.up.Load() && k.view.Equal.Has(g.slot) && k.view.Record.F.Has(g.slot) {
				return nil
			}
		}
	}
	return errNoSourceYet
}
