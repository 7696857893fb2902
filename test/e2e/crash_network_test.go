package e2e

import (
	"bytes"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"pmnbd/test/crash"
)

// toBoth sets the weather in both directions.
func (r *rig) toBoth(w crash.Weather) {
	r.proxy.Set(crash.ToServer, w)
	r.proxy.Set(crash.ToClient, w)
}

// flips damages every nth piece that arrives, by one bit each, until it has used up its flips.
type flips struct {
	n          int64
	seen, left atomic.Int64
}

func (f *flips) damage(b []byte) {
	if seen := f.seen.Add(1); seen%f.n == 0 && f.left.Add(-1) >= 0 {
		at := int(seen) * 7919 % len(b)
		b[at] ^= 1 << (seen / f.n % 8)
	}
}

// damage flips bits in one direction and waits until it has flipped many.
func (r *rig) damage(t *testing.T, d crash.Direction) {
	t.Helper()
	f := &flips{n: 20}
	f.left.Store(40)
	r.proxy.Set(d, crash.Weather{Damage: f.damage})
	for f.left.Load() > 0 {
		r.roundTrip(t)
	}
	r.proxy.Set(d, crash.Weather{})
	r.roundTrip(t)
}

// networkFaults are what a network does at its worst.
var networkFaults = []struct {
	name   string
	attack func(t *testing.T, r *rig)
}{
	{"reset", func(t *testing.T, r *rig) {
		for range 10 {
			r.proxy.Reset()
			r.roundTrip(t)
		}
	}},
	{"one lane reset", func(t *testing.T, r *rig) {
		for range 6 { // resets the second lane of the newest session
			k, err := r.proxy.Link(patience(t), r.proxy.Links()-1)
			require.NoError(t, err)
			k.Reset()
			r.roundTrip(t)
		}
	}},
	{"half closed by the initiator's side", func(t *testing.T, r *rig) {
		for range 3 {
			r.newest(t).HalfClose(crash.ToServer)
			r.roundTrip(t)
		}
	}},
	{"half closed by the target's side", func(t *testing.T, r *rig) {
		for range 3 {
			r.newest(t).HalfClose(crash.ToClient)
			r.roundTrip(t)
		}
	}},
	{"refused for a while", func(t *testing.T, r *rig) {
		r.proxy.Refuse(true)
		r.proxy.Reset()
		r.pmnbd.waitLog(t, "does not come back yet")
		r.proxy.Refuse(false)
		r.roundTrip(t)
	}},
	{"delayed", func(t *testing.T, r *rig) {
		r.toBoth(crash.Weather{Delay: 20 * time.Millisecond})
		r.roundTrip(t)
		r.toBoth(crash.Weather{})
		r.roundTrip(t)
	}},
	{"delayed and reset", func(t *testing.T, r *rig) {
		for range 3 {
			r.toBoth(crash.Weather{Delay: 30 * time.Millisecond})
			r.roundTrip(t)
			r.proxy.Reset()
			r.toBoth(crash.Weather{})
			r.roundTrip(t)
		}
	}},
	{"trickled", func(t *testing.T, r *rig) {
		// An odd size, so that no piece arrives as it was sent.
		r.toBoth(crash.Weather{Piece: 1237, Pause: 50 * time.Microsecond})
		r.roundTrip(t)
		r.toBoth(crash.Weather{})
		r.roundTrip(t)
	}},
	{"frozen for a while", func(t *testing.T, r *rig) {
		for _, d := range []crash.Direction{crash.ToServer, crash.ToClient} {
			k := r.newest(t)
			r.proxy.Set(d, crash.Weather{Frozen: true})
			require.NoError(t, k.Held(patience(t), d, 1))
			r.proxy.Set(d, crash.Weather{})
			r.roundTrip(t)
		}
	}},
	{"damaged on the way to the target", func(t *testing.T, r *rig) {
		r.damage(t, crash.ToServer)
		r.target.waitLog(t, "CRC")
	}},
	{"damaged on the way to the initiator", func(t *testing.T, r *rig) {
		r.damage(t, crash.ToClient)
		r.pmnbd.waitLog(t, "CRC")
	}},
}

// TestNetworkFaults breaks the network in every way that it can break. A client may see a
// pause, and nothing else.
func TestNetworkFaults(t *testing.T) {
	t.Parallel()
	r := newRig(t, 2)
	r.roundTrip(t) // a short window
	files := [2]int{r.pmnbd.openFiles(t), r.target.openFiles(t)}
	memory := [2]int{r.pmnbd.procStatus(t, "VmRSS"), r.target.procStatus(t, "VmRSS")}
	for _, c := range networkFaults {
		t.Run(c.name, func(t *testing.T) {
			r.during(t, func() { c.attack(t, r) })
			r.verify(t)
		})
	}
	// A client may still be leaving, and a late connection may still be closing.
	r.pmnbd.holdsAtMost(t, files[0]+2, "the initiator")
	r.target.holdsAtMost(t, files[1]+4, "the target")
	require.LessOrEqual(t, r.pmnbd.procStatus(t, "VmRSS"), memory[0]+extraMemory, "KiB of the initiator")
	require.LessOrEqual(t, r.target.procStatus(t, "VmRSS"), memory[1]+extraMemory, "KiB of the target")
	r.stop(t)
}

// newest returns the newest link.
func (r *rig) newest(t *testing.T) *crash.Link {
	t.Helper()
	k, err := r.proxy.Link(patience(t), r.proxy.Links()-1)
	require.NoError(t, err)
	return k
}

// TestOldBytesArriveLate holds bytes back when a connection dies and delivers them after its
// session is over. By then newer data are acknowledged and flushed. None of the old bytes may
// land.
func TestOldBytesArriveLate(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1, "--lanes", "1")
	k := r.newest(t)
	c := dialNBD(t, r.nbd)
	const at = 2 * loadSize
	old, data := bytes.Repeat([]byte("old."), 1<<18), bytes.Repeat([]byte("new!"), 1<<18)
	got := make([]byte, len(data))

	k.Set(crash.ToServer, crash.Weather{Frozen: true})
	require.NoError(t, c.write(at, old))
	require.NoError(t, k.Held(patience(t), crash.ToServer, len(old)))
	k.DropClient()
	require.NoError(t, c.flush(), "the next session must complete it")
	require.NoError(t, c.write(at, data))
	require.NoError(t, c.flush())
	r.during(t, func() {
		k.Set(crash.ToServer, crash.Weather{})
		seenOff(t, k)
		require.NoError(t, c.read(at, got))
		require.True(t, bytes.Equal(data, got), "a READ returned other bytes")
		require.NoError(t, c.flush())
	})
	r.verify(t)
	c.close()
	r.stop(t)
	region := readRegion(t, r.path, at, len(data))
	require.True(t, bytes.Equal(data, region), "the region has other bytes")
}

// seenOff waits until the target has received all that a link still delivers, and has closed.
func seenOff(t *testing.T, k *crash.Link) {
	t.Helper()
	require.NoError(t, k.Delivered(patience(t), crash.ToServer))
	require.NoError(t, k.Delivered(patience(t), crash.ToClient))
}

// TestOldBytesArriveBeforeTheResume delivers bytes of a session in which the target still
// believes, after the initiator has given the connection up and before it is back. The replay
// is newer than those bytes and must win.
func TestOldBytesArriveBeforeTheResume(t *testing.T) {
	t.Parallel()
	r := newRig(t, 0, "--lanes", "1")
	k := r.newest(t)
	c := dialNBD(t, r.nbd)
	old, data := bytes.Repeat([]byte("old."), 1<<18), bytes.Repeat([]byte("new!"), 1<<18)
	k.Set(crash.ToServer, crash.Weather{Frozen: true})
	require.NoError(t, c.write(0, old))
	require.NoError(t, k.Held(patience(t), crash.ToServer, len(old)))
	r.proxy.Refuse(true)
	k.DropClient()
	r.pmnbd.waitLog(t, "does not come back yet")
	require.NoError(t, c.write(0, data))
	k.Set(crash.ToServer, crash.Weather{})
	seenOff(t, k)
	r.proxy.Refuse(false)
	require.NoError(t, c.flush())
	require.True(t, bytes.Equal(data, readRegion(t, r.path, 0, len(data))))
	c.close()
	r.stop(t)
}

// TestCapturedSessionIsPlayed records every byte of a session and plays it back to the target,
// during another session of the same owner and after it. The recording may interrupt a session,
// but must write nothing.
func TestCapturedSessionIsPlayed(t *testing.T) {
	t.Parallel()
	r := newRig(t, 0, "--lanes", "1")
	r.proxy.Record()
	c := dialNBD(t, r.nbd)
	old, data := bytes.Repeat([]byte("old."), 1<<18), bytes.Repeat([]byte("new!"), 1<<18)
	n := r.proxy.Links()
	r.proxy.Reset() // so that the recording begins with a RESUME
	require.NoError(t, c.write(0, old))
	require.NoError(t, c.flush())
	k, err := r.proxy.Link(patience(t), n)
	require.NoError(t, err)
	recorded := k.Recorded(crash.ToServer)
	require.True(t, bytes.Contains(recorded, old[:1024]), "the recording lacks the data")
	require.NoError(t, c.write(0, data))
	require.NoError(t, c.flush())

	got := make([]byte, len(data))
	for range 3 {
		answer, err := crash.Play(patience(t), r.uri[len("iwarp://"):], recorded)
		require.NoError(t, err)
		require.NotEmpty(t, answer)
		require.NoError(t, c.read(0, got))
		require.True(t, bytes.Equal(data, got), "a READ returned other bytes")
		require.NoError(t, c.flush(), "the owner's session must go on or come back")
	}
	c.close()
	r.pmnbd.stop(t)
	_, err = crash.Play(patience(t), r.uri[len("iwarp://"):], recorded)
	require.NoError(t, err)
	require.True(t, bytes.Equal(data, readRegion(t, r.path, 0, len(data))))
	require.True(t, r.inspect(t, r.path).Clean, "no CLOSE ended the session")
}

// TestSecondInitiatorUnderLoad starts initiators with other ids. The target refuses them while
// the lease lasts, and the owner notices nothing.
func TestSecondInitiatorUnderLoad(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1)
	r.during(t, func() {
		for range 3 {
			code, _, stderr := r.result(t, "pmnbd", "serve", "--id", uuid.NewString(), "--target", r.uri+"/rig", "--listen", "tcp:0")
			require.Equal(t, 1, code)
			require.Contains(t, stderr, "busy")
		}
	})
	r.verify(t)
	r.stop(t)
}

// TestSameIDOfAnotherHost uses one id on two hosts, as happens when somebody clones a virtual
// machine. The host that asks last gets the region, and the other must never write again.
func TestSameIDOfAnotherHost(t *testing.T) {
	t.Parallel()
	const id = "11111111-2222-4333-8444-555555555555"
	r := newRig(t, 0, "--id", id)
	first := dialNBD(t, r.nbd)
	old, data := bytes.Repeat([]byte("old."), 1<<18), bytes.Repeat([]byte("new!"), 1<<18)
	require.NoError(t, first.write(0, old))
	require.NoError(t, first.flush())
	r.proxy.Refuse(true)
	r.proxy.Reset()
	require.NoError(t, first.write(0, old), "a WRITE needs only the window")

	clone := newHost(t)
	code, _, stderr := clone.result(t, "pmnbd", "serve", "--id", id, "--target", r.uri+"/rig", "--listen", "tcp:0")
	require.Equal(t, 3, code, "the clone must not start without --accept-loss")
	require.Contains(t, stderr, "--accept-loss")
	pmnbd, nbd, _ := clone.initiator(t, r.uri, "rig", "--id", id, "--accept-loss")
	second := dialNBD(t, nbd)
	require.NoError(t, second.write(0, data))
	require.NoError(t, second.flush())
	r.proxy.Refuse(false)
	require.ErrorIs(t, first.flush(), syscall.EIO)
	require.ErrorIs(t, first.write(0, old), syscall.EIO)
	r.pmnbd.waitLog(t, "another owner since")
	require.NoError(t, second.flush())
	second.close()
	pmnbd.stop(t)
	require.True(t, bytes.Equal(data, readRegion(t, r.path, 0, len(data))))
}

// TestCutOffWhileAnotherOwns cuts an initiator off for longer than its lease while another one
// gets the region. The first must never write again.
func TestCutOffWhileAnotherOwns(t *testing.T) {
	t.Parallel() // it mostly waits
	r := newRig(t, 0)
	first := dialNBD(t, r.nbd)
	old, data := bytes.Repeat([]byte("old."), 1<<18), bytes.Repeat([]byte("new!"), 1<<18)
	require.NoError(t, first.write(0, old))
	require.NoError(t, first.flush())
	r.toBoth(crash.Weather{Frozen: true})
	require.NoError(t, first.write(0, old), "a WRITE needs only the window")
	r.busyUntilTheLeaseEnds(t)

	other := newHost(t)
	pmnbd, nbd, _ := other.initiator(t, r.uri, "rig", "--id", uuid.NewString())
	second := dialNBD(t, nbd)
	require.NoError(t, second.write(0, data))
	require.NoError(t, second.flush())
	r.toBoth(crash.Weather{}) // the held bytes arrive as well
	require.ErrorIs(t, first.flush(), syscall.EIO)
	require.NoError(t, second.flush())
	second.close()
	pmnbd.stop(t)
	require.True(t, bytes.Equal(data, readRegion(t, r.path, 0, len(data))))
}
