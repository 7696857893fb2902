package backend

// The window is bounded in bytes by pins (design §4.8). A client pins a chunk before it
// submits a WRITE whose payload lies there, and the window pins the chunk until a barrier
// has covered its last WRITE. The window has a fixed number of pins. A connection
// receives into a chunk that is not pinned, and those chunks have a bound of their own.
// So a client that does not write needs nothing of the window.
//
//	read into ──tryPin──► submitted: the window's entries pin it, too ──unpin──►
//	                                    └── a barrier covers the last entry ──► not pinned
//
// The first pin of a chunk takes a unit of the budget, and the last gives it back. All
// pins in between are free, no matter which connection holds them.

// limitPins bounds the number of chunks that may be pinned at the same time by n. The
// others are for receiving: at least one for each connection. Call it before use.
func (a *Arena) limitPins(n int) { a.pins = NewBudget(n) }

// Pins returns the budget of pins. It is nil if the arena has no limit.
func (a *Arena) Pins() *Budget { return a.pins }

// Waiting reports whether anybody waits for chunks or pins.
func (a *Arena) Waiting() bool { return a.budget.Waiting() || a.pins != nil && a.pins.Waiting() }

// givePins gives n units of the budget back.
func (a *Arena) givePins(n int) {
	if a.pins != nil {
		a.pins.Give(n)
	}
}

// tryPin pins c, or reports false if the budget has no unit. The caller holds a reference.
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

// pin pins c, and waits for a unit, first come, first served. If stop is closed first it
// returns ErrStopped. The caller holds a reference and no lock.
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

// pinFirst pins c. The caller has taken a unit for it.
func (c *Chunk) pinFirst() {
	if c.arena.pins != nil && c.pins.Add(1) > 1 {
		c.arena.pins.Give(1) // another goroutine was first, or c still has a pin of its last use
	}
}

// repin adds a pin to a chunk that is pinned.
func (c *Chunk) repin() {
	if c.pins.Add(1) <= 1 {
		panic("backend: a payload without a place in the window")
	}
}

// unpin drops a pin. A caller that drops a reference as well drops that first, so that
// the goroutine that gets the unit also finds a chunk.
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
