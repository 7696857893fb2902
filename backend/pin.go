package backend

// A chunk is pinned while a payload lies in it that was handed to a device with a
// window and that no barrier covers, or is about to be handed to it. So many chunks may
// be pinned as the window has: that is its bound in bytes (design §4.8). A chunk that
// is not pinned is a connection's, which receives into it; those have a bound of their
// own, and whoever does not write needs nothing of the window.
//
//	read into ──tryPin──► submitted: the window's entries pin it, too ──unpin──►
//	                                    └── a barrier covers the last entry ──► not pinned
//
// Only the first pin of a chunk takes a unit, and the last gives it back, whoever's
// they are.

// LimitPins makes n chunks at most be pinned at a time; without it, there is no limit.
// The others, at least one for each who receives, are for receiving. It is called
// before use.
func (a *Arena) LimitPins(n int) { a.pins = NewBudget(n) }

// Pins counts the chunks that may be pinned, for Pressure and for figures; nil if there
// is no limit.
func (a *Arena) Pins() *Budget { return a.pins }

// Waiting reports whether anybody waits for chunks or pins.
func (a *Arena) Waiting() bool { return a.budget.Waiting() || a.pins != nil && a.pins.Waiting() }

// givePins gives n units back.
func (a *Arena) givePins(n int) {
	if a.pins != nil {
		a.pins.Give(n)
	}
}

// tryPin pins c, or reports false. The caller holds a reference.
func (c *Chunk) tryPin() bool {
	pins := c.arena.pins
	if pins == nil {
		return true
	}
	for n := c.pins.Load(); n > 0; n = c.pins.Load() {
		if c.pins.CompareAndSwap(n, n+1) {
			return true
		}
	}
	if !pins.TryTake(1) {
		return false
	}
	c.pinFirst()
	return true
}

// pin pins c, and waits for that first come, first served, until stop is closed
// (ErrStopped). The caller holds a reference, and no lock.
func (c *Chunk) pin(stop <-chan struct{}) error {
	if c.tryPin() {
		return nil
	}
	if err := c.arena.pins.Take(1, stop); err != nil {
		return err
	}
	c.pinFirst()
	return nil
}

// pinFirst pins c, for which a unit was taken.
func (c *Chunk) pinFirst() {
	if c.arena.pins != nil && c.pins.Add(1) > 1 {
		c.arena.pins.Give(1) // somebody else was first, or c came back before its last pin
	}
}

// repin pins a chunk that the caller of the caller has pinned.
func (c *Chunk) repin() {
	if c.pins.Add(1) <= 1 {
		panic("backend: a payload without a place in the window")
	}
}

// unpin drops a pin. Where it is dropped together with a reference, that goes first:
// whoever gets the unit then finds a chunk.
func (c *Chunk) unpin() {
	if c.arena.pins == nil {
		return
	}
	switch n := c.pins.Add(-1); {
	case n == 0:
		c.arena.pins.Give(1)
	case n < 0:
		panic("backend: a chunk was unpinned too often")
	}
}
