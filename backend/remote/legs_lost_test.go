package remote

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/backend"
	"pmnbd/backend/backendtest"
	"pmnbd/rdma"
	"pmnbd/rdma/rdmafake"
)

// holdEnd has the connection of leg i end, and returns while it may still touch memory. It ends in
// earnest with release.
func (d *Device) holdEnd(t testing.TB, i int) (release func()) {
	l := d.legs[i].lanes[0]
	l.polling.Lock()
	l.abort(rdma.ErrLost)
	select {
	case d.legs[i].broke <- struct{}{}: // the completer cannot, if it is on its way to handle something
	default:
	}
	require.Eventually(t, func() bool { return !d.legs[i].up.Load() }, patience, tick)
	return l.polling.Unlock
}

// A mirror that fails keeps a READ's memory until the connection that fetches it has ended, although
// those of all other legs have.
func TestFailureAwaitsAllLegs(t *testing.T) {
	s := fakes(t, 2, rdmafake.Config{})
	d := s.dial(t, 1)
	c := backendtest.NewClient(t, d)
	s.network(0).Pause()
	read := c.Read(0, block, 0)
	c.Submit(read)
	release := d.holdEnd(t, 0)
	d.fail(errors.New("for a test"))
	d.core.abort()
	// One round of the other leg's keeper takes two tokens at most, and one more waits. So the fourth fits once a round
	// is over, whether or not the lane's own token came first.
	for range 4 {
		d.legs[1].broke <- struct{}{}
	}
	require.False(t, d.legs[1].up.Load())
	require.False(t, read.Completed())
	release()
	require.ErrorIs(t, c.Wait(read), backend.ErrFailed)
	s.network(0).Resume()
	backendtest.AllBack(t, d)
	require.Error(t, d.Close())
}

// A barrier without a leg begins once the connections of that leg send no payloads any more: the
// barrier gives the payloads free.
func TestBarrierAwaitsTheEndOfALostLeg(t *testing.T) {
	s := fakes(t, 2, rdmafake.Config{})
	d := s.dialImpatient(t, 1)
	c := backendtest.NewClient(t, d)
	release := d.holdEnd(t, 1)
	flush := c.Flush()
	c.Submit(c.Write(0, backendtest.Pattern(block, 1), 0), flush)
	k := &d.core.commit
	require.Eventually(t, func() bool {
		k.mu.Lock()
		defer k.mu.Unlock()
		return d.core.copies.view.Flushes() && d.core.copies.view.Active == 1
	}, patience, tick)
	k.start(true)
	d.core.post()
	k.mu.Lock()
	require.Nil(t, k.current)
	k.mu.Unlock()
	require.False(t, flush.Completed())
	release()
	require.NoError(t, c.Wait(flush))
	backendtest.AllBack(t, d)
	require.NoError(t, d.Close())
}
