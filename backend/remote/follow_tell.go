package remote

import (
	"context"
	"log/slog"
	"math/bits"
	"sync"
	"time"
)

// tellEvery is how often a follower's record says how far it is. Each such record costs its target two
// writes of the superblock.
const tellEvery = time.Second

// tell has the teller of g look soon.
func (g *leg) tell() {
	select {
	case g.telling <- struct{}{}:
	default:
	}
}

// teller is the goroutine that has g, if it follows, persist how far it is. Each leg has one: a RECORD to
// a target far away, or to one whose disk hangs, must hold up neither a change of the mirror nor what
// another follower persists.
func (k *copies) teller(g *leg) {
	defer k.ended.Done()
	for {
		select {
		case <-k.life.Done():
			return
		case <-g.telling:
		}
		k.tellOf(k.asking, g)
		k.sweep(g)
		select {
		case <-k.life.Done():
			return
		case <-time.After(tellEvery):
		}
	}
}

// tellOf has the target of g persist how far it has followed, if it does and its record does not say so.
// The record of a member that was torn until now is written with the first one: from then on it can be
// promoted.
func (k *copies) tellOf(ctx context.Context, g *leg) {
	c := &k.core.commit
	c.mu.Lock()
	f := &g.follow
	record, ok := k.view.FollowRecord(g.slot, f.point)
	ok = ok && f.on && !f.dropped && g.up.Load() && record != g.record
	session := g.generation.Load() // in the next one it may be torn
	c.mu.Unlock()
	if !ok {
		return
	}
	if err := g.setRecord(ctx, session, record, 0); err != nil {
		g.log.Debug("a follower was not told how far it is", slog.String("target", g.cfg.Addr), slog.Any("error", err))
		return
	}
}

// sweep has the bits cleared that were set for g before it followed, and whose barriers it has
// acknowledged: all that are set, but for those of what it lacks now.
func (k *copies) sweep(g *leg) {
	c := &k.core.commit
	c.mu.Lock()
	wants := g.follow.on && g.follow.bits.sweep
	c.mu.Unlock()
	if !wants {
		return
	}
	r := &resync{copies: k, leg: g}
	if r.readBits() != nil {
		g.tell() // again
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	f := &g.follow.bits
	if !g.follow.on || !f.sweep {
		return
	}
	f.sweep, f.each = false, r.todo.each
	for i, b := range r.todo.bits {
		for ; b != 0; b &= b - 1 {
			chunk := uint64(i)*8 + uint64(bits.TrailingZeros8(b))
			stream := int(chunk * f.each / stripe % uint64(len(f.clean)))
			if _, lacks := f.last[chunk]; !lacks {
				f.add(stream, chunk)
			}
		}
	}
}

// catchUp waits until all followers that are there have everything, and their records say so; at most for
// as long as they may lag. The device takes no writes any more.
func (k *copies) catchUp(ctx context.Context) {
	c := &k.core.commit
	ctx, cancel := context.WithTimeout(ctx, max(k.lagTime, departAfter))
	defer cancel()
	for {
		c.mu.Lock()
		lacks := false
		for _, g := range k.core.legs {
			f := &g.follow
			lacks = lacks || f.on && !f.dropped && g.up.Load() && k.nextIntervalLocked(f) != nil
		}
		c.mu.Unlock()
		if !lacks {
			break
		}
		select {
		case <-k.caught:
		case <-ctx.Done():
			k.log.Warn("a target that follows did not get everything before the end")
			return
		}
	}
	var told sync.WaitGroup
	for _, g := range k.core.legs {
		told.Go(func() { k.tellOf(ctx, g) })
	}
	told.Wait()
}
