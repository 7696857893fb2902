package e2e

import (
	"bytes"
	"encoding/binary"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A numberedLog writes block n of an export with the number n in every word, and flushes behind each.
type numberedLog struct {
	c       *conn
	flushed atomic.Uint64
	ended   chan error
}

const logBlock = 4096

func numbered(n uint64) []byte {
	return bytes.Repeat(binary.LittleEndian.AppendUint64(nil, n), logBlock/8)
}

func startLog(t *testing.T, nbd string) *numberedLog {
	l := &numberedLog{c: dialNBD(t, nbd), ended: make(chan error, 1)}
	go func() {
		var err error
		for n := uint64(1); err == nil && n < mirrorSize/logBlock; n++ {
			if err = l.c.write(n*logBlock, numbered(n)); err == nil {
				err = l.c.flush()
			}
			if err == nil {
				l.flushed.Store(n)
			}
		}
		l.ended <- err
	}()
	return l
}

// await waits until block n is flushed.
func (l *numberedLog) await(t *testing.T, n uint64) {
	t.Helper()
	giveUp := time.After(outer)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for l.flushed.Load() < n {
		select {
		case <-tick.C:
		case err := <-l.ended:
			require.FailNow(t, "the log has ended", "%v", err)
		case <-giveUp:
			require.FailNow(t, "the log stands still", "at %d", l.flushed.Load())
		}
	}
}

// read returns the last block of the log that export nbd has, and requires that none before is missing.
func readLog(t *testing.T, nbd string) (has uint64) {
	t.Helper()
	c := dialNBD(t, nbd)
	defer c.close()
	got := make([]byte, logBlock)
	for n := uint64(1); n < mirrorSize/logBlock; n++ {
		require.NoError(t, c.read(n*logBlock, got))
		if bytes.Equal(got, numbered(n)) {
			require.Equal(t, n-1, has, "block %d is there, and one before is not", n)
			has = n
		}
	}
	return has
}

// TestMirrorFollows has a log with a FLUSH behind each block on a mirror with a member that follows. All
// machines but that one's die. Promoted, it has the beginning of the log without a hole. The others, when
// they are back, have gone their own way.
func TestMirrorFollows(t *testing.T) {
	t.Parallel()
	r := newFollowedRig(t, 2, 1)
	r.serve(t)
	r.awaitStates(t, "in sync, in sync, follows", "AB")
	log := startLog(t, r.nbd)
	log.await(t, 200)
	c := &r.legs[2]
	c.target.signal(t, syscall.SIGSTOP) // it lags, and the others go on
	before := log.flushed.Load()
	log.await(t, before+100)
	r.pmnbd.kill(t)
	require.Error(t, <-log.ended)
	flushed := log.flushed.Load()
	r.legs[0].target.kill(t)
	r.legs[1].target.kill(t)
	c.target.signal(t, syscall.SIGCONT)

	far := &mirrorRig{host: newHost(t), legs: r.legs[2:]} // another machine takes over
	p := far.begin(t, "--degraded", "--takeover")
	address := p.waitReady(t)[0]
	p.waitLog(t, "A MEMBER THAT FOLLOWED IS PROMOTED")
	require.Contains(t, p.stderr.String(), "A and B went their own way")
	has := readLog(t, address)
	t.Logf("flushed %d, stopped at about %d, promoted with %d", flushed, before, has)
	require.Less(t, has, flushed, "it did not lag")
	require.NotZero(t, has)
	n := dialNBD(t, address)
	require.NoError(t, n.write(0, numbered(7)))
	require.NoError(t, n.flush())
	n.close()
	p.stop(t)

	r.legs[0].serve(t)
	r.legs[1].serve(t)
	all := &mirrorRig{host: newHost(t), legs: r.legs}
	all.refused(t, "split brain: A (rig at ")
	all.refused(t, ") and B (rig at ")
}

// TestMirrorFollowerStops ends a mirror with a member that follows in order. That has everything then,
// and says so.
func TestMirrorFollowerStops(t *testing.T) {
	t.Parallel()
	r := newFollowedRig(t, 1, 1)
	r.serve(t)
	r.awaitStates(t, "in sync, follows", "A")
	r.load(t, 1)
	require.NoError(t, r.loads[0].run(100))
	r.verify(t)
	r.disconnect()
	r.pmnbd.stop(t)
	r.verifyRegion(t, 1)
	require.Contains(t, r.run(t, "pmnbd-target", "region", "inspect", r.legs[1].path), "has all that was flushed until ")
	r.serve(t)
	r.awaitStates(t, "in sync, follows", "A")
	r.pmnbd.stop(t)
}
