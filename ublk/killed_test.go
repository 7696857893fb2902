package ublk

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/backend"
	"pmnbd/internal/devicetest"
)

// A region is what outlives a server: the memory at the target, and the window, which holds acknowledged
// writes that no FLUSH covers, in their order.
type region struct {
	mu     sync.Mutex
	mem    []byte
	window []kept
}

type kept struct {
	off  uint64
	data []byte
}

// A life is a Device on a region, until it is killed. It acknowledges a write when that is in the window.
type life struct {
	*region
	backend.Device // for Info and Arenas
	dead           bool
}

// begin adopts what the life before left: its window is replayed before anybody is served.
func (r *region) begin(dev backend.Device) *life {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.flushLocked()
	return &life{region: r, Device: dev}
}

func (r *region) flushLocked() {
	for _, w := range r.window {
		copy(r.mem[w.off:], w.data)
	}
	r.window = nil
}

func (l *life) Submit(ops []*backend.Op) {
	l.mu.Lock()
	for _, op := range ops {
		op.Err = nil
		switch {
		case l.dead:
			op.Err = backend.ErrClosed // a killed process does nothing; this keeps the test from leaking
		case op.Cmd == backend.Write:
			w := kept{off: op.Off}
			for _, s := range op.Data {
				w.data = append(w.data, s.Bytes()...)
			}
			l.window = append(l.window, w)
		case op.Cmd == backend.Flush:
			l.flushLocked()
		case op.Cmd == backend.Read:
			now := append([]byte(nil), l.mem...)
			for _, w := range l.window {
				copy(now[w.off:], w.data)
			}
			off := op.Off
			for _, s := range op.Data {
				off += uint64(copy(s.Bytes(), now[off:]))
			}
		}
	}
	l.mu.Unlock()
	for _, op := range ops {
		op.Sink.Complete(op)
	}
}

// kill ends a server as SIGKILL does: from one moment on it does nothing more, neither to the region nor to
// the kernel.
func (k *fakeKernel) kill(l *life, d *fakeDevice) {
	k.mu.Lock()
	defer k.mu.Unlock()
	l.mu.Lock()
	l.dead = true
	l.mu.Unlock()
	for _, q := range d.queues {
		q.killed = errors.New("killed")
		for _, rq := range q.delivered {
			d.waiting = append(d.waiting, rq)
		}
		clear(q.delivered)
		clear(q.fetched)
	}
	d.state, d.open = stateQuiesced, false
	if k.features&featureQuiesce != 0 {
		d.resetLocked()
	}
	k.changed.Broadcast()
}

// TestKilled kills servers under load. No request fails, and each READ returns what was acknowledged last,
// through any number of servers: nothing is lost, and no older write comes back.
func TestKilled(t *testing.T) {
	const blocks, block, writes, kills = 8, 4096, 60, 5
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 1))
		k, dev := newKernel(), devicetest.NewMem(t, blocks*block)
		r := &region{mem: make([]byte, blocks*block)}
		l := r.begin(dev)
		d := serveOn(t, k, l)
		disk := k.disk(t, 0)
		acked := make(chan struct{}, blocks*writes)
		var workers sync.WaitGroup
		for b := range blocks {
			workers.Go(func() {
				for version := range uint64(writes) {
					p := make([]byte, block)
					binary.LittleEndian.PutUint64(p[block-8:], version+1)
					if n := <-disk.write(b*block, p).done; n != block {
						t.Errorf("seed %d: a write failed: %d", seed, n)
					}
					acked <- struct{}{}
					if version%7 == 0 {
						if n := <-disk.flush().done; n != 0 {
							t.Errorf("seed %d: a flush failed: %d", seed, n)
						}
					}
					got := make([]byte, block)
					if n := <-disk.begin(opRead, b*block, block, got).done; n != block || binary.LittleEndian.Uint64(got[block-8:]) != version+1 {
						t.Errorf("seed %d: block %d has version %d (%d), not %d", seed, b, binary.LittleEndian.Uint64(got[block-8:]), n, version+1)
					}
				}
			})
		}
		for range kills {
			for range 1 + rng.IntN(blocks*writes/kills-1) {
				<-acked
			}
			k.kill(l, disk.d)
			<-d.Done() // its threads; a killed process has none
			l = r.begin(dev)
			d = serveOn(t, k, l, continued)
		}
		workers.Wait()
		shutDown(t, d)
		require.Zero(t, k.hosts)
	}
}
