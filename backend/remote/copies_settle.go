package remote

import (
	"context"
	"time"
)

// settle has no further generation begin, and waits for the one that is pending. A device whose last
// flush is through would otherwise end in the middle of a change, and close none of its sessions
// (mirror §4.3): a resync that ends, or a leg that is lost, is none of Close's business. It waits for
// departAfter at most. The goroutine of k still runs.
func (k *copies) settle(ctx context.Context) {
	c := &k.core.commit
	c.mu.Lock()
	pending := k.view.Pending
	k.settled = make(chan struct{})
	c.mu.Unlock()
	if !pending {
		return
	}
	k.rouse()
	select {
	case <-k.settled:
	case <-time.After(departAfter):
	case <-ctx.Done():
	}
}
