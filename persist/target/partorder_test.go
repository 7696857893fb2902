package target

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pmnbd/persist/wire"
)

// heldSync opens a session on class file, sends barrier 1 and holds its sync until release is called.
func heldSync(t *testing.T) (s *site, p *peer, release func()) {
	began, proceed := make(chan struct{}, 1), make(chan struct{})
	var hold atomic.Bool
	s = serveRegion(t, onDisk(t), func(fd int) error {
		if hold.Swap(false) {
			began <- struct{}{}
			<-proceed
		}
		return unix.Fdatasync(fd)
	}, Config{})
	release = sync.OnceFunc(func() { close(proceed) })
	t.Cleanup(release) // before the server is stopped
	p = s.connect(t)
	p.open(alice)
	hold.Store(true)
	p.send((&wire.Barrier{Seq: 1, Last: true}).Append(nil))
	<-began
	return s, p, release
}

// On class file the lane answers a part of a barrier itself unless it is the last one, but never
// ahead of an older barrier whose sync is not done. The initiator would end the session.
func TestPartsWaitForAnOlderSync(t *testing.T) {
	for name, parts := range map[string][]wire.Barrier{
		"a part":        {{Seq: 2}},
		"a barrier":     {{Seq: 2}, {Seq: 2}, {Seq: 2, Last: true}},
		"two barriers":  {{Seq: 2}, {Seq: 2, Last: true}, {Seq: 3}, {Seq: 3, Last: true}},
		"behind a last": {{Seq: 2, Last: true}, {Seq: 3}},
	} {
		t.Run(name, func(t *testing.T) {
			_, p, release := heldSync(t)
			for _, m := range parts {
				p.send(m.Append(nil))
			}
			beat(t, p, 1) // and nothing else has an answer
			release()
			for _, m := range append([]wire.Barrier{{Seq: 1, Last: true}}, parts...) {
				var ack wire.BarrierAck
				require.NoError(t, p.decode(&ack))
				require.Equal(t, wire.BarrierAck{Seq: m.Seq, Last: m.Last}, ack)
			}
		})
	}
}
