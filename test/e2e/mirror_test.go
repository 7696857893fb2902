package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"pmnbd/internal/testhost"
)

// TestMirror kills the targets of a mirror in turn, for shorter and for longer than --leg-timeout, and
// one during the resync of the other. No request fails, and afterwards each region has everything.
func TestMirror(t *testing.T) {
	t.Parallel()
	const every = 700 * time.Millisecond
	rounds := soakRounds(t, 4, 3*every)
	r := newMirrorRig(t, 2)
	r.serve(t, "--metrics", "127.0.0.1:0")
	require.Equal(t, "in sync, in sync", r.status(t).states())
	r.load(t, 2)
	r.during(t, func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for i := range rounds {
			l := &r.legs[i%2]
			l.target.kill(t)
			if i/2%2 == 1 { // it is let go, and has to be copied to
				r.awaitStates(t, []string{"away, in sync", "in sync, away"}[i%2], []string{"B", "A"}[i%2])
			}
			<-tick.C
			l.serve(t)
			if i%4 == 3 { // the other one is killed, too, and nobody knows how far the resync is
				r.legs[1-i%2].target.kill(t)
				<-tick.C
				r.legs[1-i%2].serve(t)
			}
			require.Equal(t, 2, r.awaitStates(t, "in sync, in sync", "AB").Copies)
			<-tick.C
		}
	})
	require.NotContains(t, r.pmnbd.stderr.String(), `"level":"error"`)
	r.verify(t)
	r.verifyRegion(t, 0)
	r.verifyRegion(t, 1)

	s := scraped(t, r.pmnbd, filepath.Join(r.home, "run", fmt.Sprintf("rig-%d.sock", r.pmnbd.cmd.Process.Pid)))
	require.Equal(t, "2", s[`pmnbd_mirror_copies{export="rig"}`])
	labels := s.labelled()
	for name, want := range documentedMetrics(t, "### What both say of a mirror", "### What to alert on") {
		if strings.HasPrefix(name, "pmnbd_mirror_") {
			require.Equal(t, want, labels[name], name)
		}
	}
	r.disconnect()
	r.pmnbd.stop(t)
	for i := range r.legs {
		r.legs[i].end(t)
		require.True(t, r.inspect(t, r.legs[i].path).Clean)
		r.verifyRegion(t, i)
	}
}

// TestMirrorInTurn kills the targets in turn and starts them again without looking whether the others
// have all data. Where they have not, requests wait for those that have.
func TestMirrorInTurn(t *testing.T) {
	t.Parallel()
	for _, n := range []int{2, 3} {
		t.Run(fmt.Sprint(n, " targets"), func(t *testing.T) {
			rounds := soakRounds(t, 3*n, 2400*time.Millisecond)
			r := newMirrorRig(t, n)
			r.serve(t, "--resync-rate", "40M") // a second in most rounds
			r.load(t, 2)
			rng := rand.New(rand.NewPCG(13, uint64(rounds)))
			r.during(t, func() {
				for i := range rounds {
					l := &r.legs[i%n]
					l.target.kill(t)
					<-time.After(time.Duration(rng.IntN(900)) * time.Millisecond) // also less than --leg-timeout
					l.serve(t)
					<-time.After(time.Duration(rng.IntN(1200)) * time.Millisecond)
				}
			})
			r.awaitStates(t, "in sync"+strings.Repeat(", in sync", n-1), "ABC"[:n])
			r.verify(t)
			for i := range r.legs {
				r.verifyRegion(t, i)
			}
			require.NotContains(t, r.pmnbd.stderr.String(), `"level":"error"`)
			r.disconnect()
			r.pmnbd.stop(t)
		})
	}
}

// TestMirrorAlone starts a mirror with one of its targets.
func TestMirrorAlone(t *testing.T) {
	t.Parallel()
	r := newMirrorRig(t, 2)
	r.serve(t)
	r.load(t, 1)
	require.NoError(t, r.loads[0].run(100))
	r.verify(t)
	// B is let go, so A may begin alone, and has everything.
	r.legs[1].target.kill(t)
	r.awaitStates(t, "in sync, away", "A")
	require.NoError(t, r.loads[0].run(100))
	r.verify(t)
	r.disconnect()
	r.pmnbd.stop(t)
	r.serve(t)
	r.verify(t)
	require.Equal(t, 1, r.status(t).Copies)
	r.pmnbd.stop(t)
	// B alone does not know that A went on. It waits, for only A can tell.
	r.legs[0].end(t)
	r.legs[1].serve(t)
	r.waits(t, "waits for A: ")
	s := r.status(t, "--target", r.targets())
	require.Equal(t, "away, in sync", s.states())
	require.Contains(t, s.Start, "wait: waits for A: ")
	// Both: what B lacks is copied to it.
	r.legs[0].serve(t)
	r.serve(t)
	r.awaitStates(t, "in sync, in sync", "AB")
	r.verify(t)
	r.verifyRegion(t, 1)
	r.pmnbd.stop(t)
	// Each has everything. Neither can know that alone, and somebody says that it may begin.
	r.legs[0].end(t)
	r.waits(t, "waits for A: ")
	r.serve(t, "--degraded")
	r.verify(t)
	r.pmnbd.stop(t)
	alone := start(t, r.home, "pmnbd", "serve", "--target", r.legs[1].uri+"/rig", "--listen", "unix:"+filepath.Join(r.home, "rig.sock"), "--degraded")
	require.Equal(t, []string{r.nbd}, alone.waitReady(t))
	r.verify(t)
	require.Equal(t, 1, r.status(t).Copies)
	alone.stop(t)
	// Now B went on without A, and A would begin with what it has. Then both have writes of their own.
	r.legs[1].end(t)
	r.legs[0].serve(t)
	r.serve(t, "--degraded")
	r.verify(t)
	r.pmnbd.stop(t)
	r.legs[1].serve(t)
	r.refused(t, "split brain")
	r.refused(t, "split brain", "--degraded")
	require.Contains(t, r.status(t, "--target", r.targets()).states(), "went its own way")
	// Without the side that is given up the other goes on, and leaves it alone when it is back.
	r.legs[1].end(t)
	r.serve(t)
	r.verify(t)
	r.legs[1].serve(t)
	r.awaitStates(t, "in sync, went its own way", "A")
	r.pmnbd.stop(t)
}

// TestMirrorAfterClear clears the region of a member, which then has to be copied to in full. pmnbd goes
// on, also if the member was in sync until then.
func TestMirrorAfterClear(t *testing.T) {
	t.Parallel()
	for name, inSync := range map[string]bool{"in sync": true, "let go": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newMirrorRig(t, 2)
			if inSync {
				r.serve(t, "--leg-timeout", "1h")
			} else {
				r.serve(t)
			}
			r.load(t, 1)
			for i := range r.legs {
				l := &r.legs[i]
				r.during(t, func() {
					l.target.kill(t)
					if !inSync {
						r.awaitStates(t, []string{"away, in sync", "in sync, away"}[i], []string{"B", "A"}[i])
					}
					r.run(t, "pmnbd-target", "region", "clear", l.path, "--reason", "a test")
					l.serve(t)
					r.pmnbd.waitLog(t, "a resync is through")
					r.awaitStates(t, "in sync, in sync", "AB")
				})
				r.verify(t)
				r.verifyRegion(t, i)
			}
			require.Contains(t, r.pmnbd.stderr.String(), "A TARGET IS LET GO")
			r.disconnect()
			r.pmnbd.stop(t)
		})
	}
}

// TestMirrorWithKeys makes and serves a mirror whose targets ask for keys, on two lanes, of class
// volatile.
func TestMirrorWithKeys(t *testing.T) {
	t.Parallel()
	const id = "6f9619ff-8b86-d011-b42d-00c04fc964ff"
	r := &mirrorRig{host: newHost(t), legs: make([]mirrorLeg, 2)}
	keys, all := filepath.Join(r.home, "keys"), ""
	for i := range r.legs {
		line := r.run(t, "pmnbd-target", "key", "new", "--initiator", id, "--target", fmt.Sprintf("pm%d", i))
		require.NoError(t, os.WriteFile(fmt.Sprintf("%s%d", keys, i), []byte(line), 0o600))
		all += line
	}
	require.NoError(t, os.WriteFile(keys, []byte(all), 0o600))
	own := []string{"--id", id, "--key-file", keys}
	create := append([]string{"mirror", "create", "--state-dir", r.home}, own...)
	memory := testhost.Memory(t)
	for i := range r.legs {
		l := &r.legs[i]
		l.host, l.path, l.name = newHost(t), fmt.Sprintf("%s/%d,size=%d", memory, i, mirrorSize), fmt.Sprintf("pm%d", i)
		l.flags = []string{"--allow-volatile", "--key-file", fmt.Sprintf("%s%d", keys, i), "--name", l.name}
		l.serve(t)
		create = append(create, "--target", l.at())
	}
	require.Contains(t, r.run(t, "pmnbd", create...), "pmnbd serve needs --allow-volatile")
	r.serve(t, append(own, "--allow-volatile", "--lanes", "2")...)
	r.load(t, 2)
	r.during(t, func() {
		for i := range r.legs {
			r.legs[i].target.kill(t)
			r.awaitStates(t, []string{"away, in sync", "in sync, away"}[i], []string{"B", "A"}[i])
			r.legs[i].serve(t)
			r.awaitStates(t, "in sync, in sync", "AB")
		}
	})
	r.verify(t)
	require.Equal(t, "in sync, in sync", r.status(t, append(own, "--target", r.targets())...).states())
	r.disconnect()
	r.pmnbd.stop(t)
	require.Equal(t, "in sync, in sync", r.status(t, append(own, "--target", r.targets())...).states())
}

// TestMirrorTorn leaves a target half copied. It serves nobody.
func TestMirrorTorn(t *testing.T) {
	t.Parallel()
	r := newMirrorRig(t, 2)
	r.serve(t, "--resync-rate", "1M")
	r.legs[1].target.kill(t)
	r.awaitStates(t, "in sync, away", "A")
	r.load(t, 2) // more than the resync copies while the test looks
	r.verify(t)
	r.legs[1].serve(t)
	r.awaitStates(t, "in sync, resync", "A")
	r.legs[1].target.kill(t)
	r.awaitStates(t, "in sync, torn", "A")
	r.disconnect()
	r.pmnbd.stop(t)
	r.legs[0].end(t)
	r.legs[1].serve(t)
	r.waits(t, "waits for A: ")
	r.refused(t, "half copied", "--degraded")
	code, _, stderr := r.result(t, "pmnbd", "serve", "--target", r.legs[1].uri+"/rig", "--listen", "unix:"+filepath.Join(r.home, "no.sock"), "--degraded")
	require.Equal(t, 3, code)
	require.Contains(t, stderr, "half copied")
	require.Equal(t, "away, torn", r.status(t, "--target", r.targets()).states())
	r.legs[0].serve(t)
	r.serve(t)
	r.awaitStates(t, "in sync, in sync", "AB")
	r.verify(t)
	r.verifyRegion(t, 1)
	r.pmnbd.stop(t)
}

// TestMirrorInitiatorIsKilled kills pmnbd, with all targets there, with one that is away, and together
// with one. What was acknowledged and not flushed must be there.
func TestMirrorInitiatorIsKilled(t *testing.T) {
	t.Parallel()
	r := newMirrorRig(t, 2)
	r.serve(t)
	for _, c := range []struct{ before, with string }{{}, {before: "B"}, {with: "B"}, {with: "A"}, {before: "A"}} {
		kill := func(letter string) {
			if letter != "" {
				l := &r.legs[letter[0]-'A']
				l.target.kill(t)
				l.target = nil
			}
		}
		kill(c.before)
		if c.before != "" {
			r.awaitStates(t, map[string]string{"A": "away, in sync", "B": "in sync, away"}[c.before], map[string]string{"A": "B", "B": "A"}[c.before])
		}
		r.loads = nil
		r.load(t, 1)
		require.NoError(t, r.loads[0].run(200))
		require.NoError(t, r.loads[0].n.write(mirrorSize-4096, noise(t, 4096)))
		kill(c.with)
		r.pmnbd.kill(t)
		r.disconnect()
		r.serve(t)
		r.verify(t)
		for i := range r.legs {
			if r.legs[i].target == nil {
				r.legs[i].serve(t)
			}
		}
		r.awaitStates(t, "in sync, in sync", "AB")
		r.verify(t)
		r.verifyRegion(t, 0)
		r.verifyRegion(t, 1)
	}
	r.pmnbd.stop(t)
}

// TestMirrorCreateDiffers creates a mirror of regions with different contents.
func TestMirrorCreateDiffers(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	_, uri := h.target(t, "a="+h.region(t, "a", "8M"), "b="+h.region(t, "b", "8M"))
	data := noise(t, 1<<20)
	for i, name := range []string{"a", "b"} {
		pmnbd, unix, _ := h.initiator(t, uri, name)
		c := dialNBD(t, unix)
		require.NoError(t, c.write(3<<20, data[i*4096:][:4096]))
		c.close()
		pmnbd.stop(t)
	}
	create := []string{"mirror", "create", "--state-dir", h.home, "--target", uri + "/a", "--target", uri + "/b"}
	code, _, stderr := h.result(t, "pmnbd", create...)
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "differ in the MiB at byte 3145728")
	require.Contains(t, stderr, "--from")
	require.Contains(t, h.run(t, "pmnbd", append(create, "--from", uri+"/b")...), "is copied to first")
	code, _, stderr = h.result(t, "pmnbd", create...)
	require.Equal(t, 1, code, stderr)
	alone := []string{"serve", "--target", uri + "/a", "--listen", "unix:" + filepath.Join(h.home, "no.sock")}
	code, _, stderr = h.result(t, "pmnbd", alone...)
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "name the targets of all its members")

	p := start(t, h.home, "pmnbd", "serve", "--target", uri+"/a,"+uri+"/b", "--listen", "unix:"+filepath.Join(h.home, "m.sock"))
	c := dialNBD(t, p.waitReady(t)[0])
	got := make([]byte, 4096)
	require.NoError(t, c.read(3<<20, got))
	require.Equal(t, data[4096:][:4096], got)
	c.close()
	p.stop(t)

	p = start(t, h.home, "pmnbd", append(alone, "--degraded-single", "--accept-loss")...)
	c = dialNBD(t, p.waitReady(t)[0])
	require.NoError(t, c.read(0, got), "it may be half copied, and says so nowhere")
	c.close()
	p.stop(t)
}
