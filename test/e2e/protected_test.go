package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"pmnbd/internal/testhost"
)

// A protectedRig is a target with a region of class protected, and a pmnbd with a client. Without
// memory a host has booted.
type protectedRig struct {
	h      host
	memory string // the region's file on tmpfs
	region string // as --region has it
	target *process
	uri    string
	pmnbd  *process
	c      *conn
}

// protected creates a region of class protected at path, with its image on the host's disk. It is no
// larger than what many users may lock.
func (h host) protected(t *testing.T, name, path string) {
	t.Helper()
	testhost.CanLock(t, 6<<20)
	h.run(t, "pmnbd-target", "region", "create", name, path, "--class", "protected", "--save", h.disk, "--size", "4M")
}

func newProtectedRig(t *testing.T) *protectedRig {
	t.Helper()
	h := newHost(t)
	r := &protectedRig{h: h, memory: filepath.Join(testhost.Memory(t), "fast")}
	r.region = "fast=" + r.memory + ",save=" + h.disk
	h.protected(t, "fast", r.memory)
	r.target, r.uri = h.target(t, r.region)
	var unix string
	r.pmnbd, unix, _ = h.initiator(t, r.uri, "fast")
	r.c = dialNBD(t, unix)
	return r
}

// boots takes the memory away, as a boot does, and starts the target again.
func (r *protectedRig) boots(t *testing.T, more ...string) {
	t.Helper()
	require.NoError(t, os.Remove(r.memory))
	r.starts(t, more...)
}

// starts starts the target again where it was.
func (r *protectedRig) starts(t *testing.T, more ...string) {
	t.Helper()
	r.target = start(t, r.h.home, "pmnbd-target", append([]string{"serve", "--listen", r.uri, "--region", r.region}, more...)...)
	r.target.waitReady(t)
}

// holds checks what is at off.
func (r *protectedRig) holds(t *testing.T, off uint64, want []byte) {
	t.Helper()
	got := make([]byte, len(want))
	require.NoError(t, r.c.read(off, got))
	require.Equal(t, want, got)
}

// status returns what `pmnbd-target status` says.
func (r *protectedRig) status(t *testing.T) string { return r.h.run(t, "pmnbd-target", "status") }

// What was flushed before a save is there after the power was away. The device of the initiator that
// had the region goes on, with what it had not flushed.
func TestProtectedSaved(t *testing.T) {
	t.Parallel()
	for name, save := range map[string]func(*testing.T, *protectedRig){
		"save": func(t *testing.T, r *protectedRig) {
			require.Regexp(t, `^region fast saved: wrote \d.*\n$`, r.h.run(t, "pmnbd-target", "save"))
			require.Contains(t, r.status(t), "saved, and granted to nobody until `pmnbd-target resume`")
			r.target.kill(t)
		},
		"SIGPWR": func(t *testing.T, r *protectedRig) {
			r.target.signal(t, syscall.SIGPWR)
			r.target.waitLog(t, "region saved")
			r.target.stop(t)
		},
		"SIGPWR, and at once SIGTERM": func(t *testing.T, r *protectedRig) {
			r.target.signal(t, syscall.SIGPWR)
			r.target.waitLog(t, "saving: sessions on protected regions end")
			r.target.stop(t)
			require.Contains(t, r.target.stderr.String(), "region saved")
		},
		"save --config, after SIGTERM": func(t *testing.T, r *protectedRig) {
			file := filepath.Join(r.h.home, "target.toml")
			require.NoError(t, os.WriteFile(file, []byte("[[region]]\nname = \"fast\"\npath = \""+r.memory+"\"\nsave = \""+r.h.disk+"\"\n"), 0o600))
			code, stdout, _ := r.h.result(t, "pmnbd-target", "save", "--config", file)
			require.Equal(t, 1, code, "a target serves it")
			require.Contains(t, stdout, "`pmnbd-target save` without --config has that save it")
			r.target.stop(t)
			require.Regexp(t, `^region fast saved: wrote \d.*\n$`, r.h.run(t, "pmnbd-target", "save", "--config", file))
			require.Regexp(t, `^region fast saved: wrote 0 in .*\n$`, r.h.run(t, "pmnbd-target", "save", "--config", file))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newProtectedRig(t)
			data, more := noise(t, 1<<20), []byte(strings.Repeat("not flushed", 100))
			require.NoError(t, r.c.write(0, data))
			require.NoError(t, r.c.flush())
			require.NoError(t, r.c.write(2<<20, more))
			save(t, r)
			r.boots(t)
			r.target.waitLog(t, "region loaded from its image")
			r.holds(t, 0, data)
			r.holds(t, 2<<20, more)
			require.NoError(t, r.c.flush())
			r.c.close()
			r.pmnbd.stop(t)
		})
	}
}

// A target whose memory somebody has removed saves it before it ends: no other process could.
func TestProtectedMemoryRemoved(t *testing.T) {
	t.Parallel()
	r := newProtectedRig(t)
	data := noise(t, 1<<20)
	require.NoError(t, r.c.write(0, data))
	require.NoError(t, r.c.flush())
	require.NoError(t, os.Remove(r.memory))
	r.target.stop(t)
	require.Contains(t, r.target.stderr.String(), "somebody has removed its memory, which ends with this process")
	r.starts(t)
	r.holds(t, 0, data)
	r.c.close()
	r.pmnbd.stop(t)
}

// Without a save the region is lost. Its target says so, and the initiator's device fails: it never
// shows other contents.
func TestProtectedNotSaved(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]func(*testing.T, *protectedRig){
		"never": func(*testing.T, *protectedRig) {},
		"before the last FLUSH": func(t *testing.T, r *protectedRig) {
			r.h.run(t, "pmnbd-target", "save")
			r.h.run(t, "pmnbd-target", "resume")
			require.NoError(t, r.c.write(2<<20, []byte("newer")))
			require.NoError(t, r.c.flush())
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newProtectedRig(t)
			data := noise(t, 1<<20)
			require.NoError(t, r.c.write(0, data))
			require.NoError(t, r.c.flush())
			before(t, r)
			r.target.kill(t)
			r.boots(t)
			require.ErrorIs(t, r.c.read(0, make([]byte, len(data))), syscall.EIO)
			require.ErrorIs(t, r.c.flush(), syscall.EIO)
			r.pmnbd.waitLog(t, "the device failed for good")
			require.Contains(t, r.pmnbd.stderr.String(), "contents were lost")
			require.Contains(t, r.status(t), "LOST")
			r.target.waitLog(t, "region LOST")
			code, stdout, _ := r.h.result(t, "pmnbd-target", "status", "--check")
			require.Zero(t, code)
			require.Contains(t, stdout, "its contents were lost")
		})
	}
}

// A restart of the target keeps the memory, and needs no save. After a save that nothing followed,
// `resume` lets the device go on.
func TestProtectedStays(t *testing.T) {
	t.Parallel()
	r := newProtectedRig(t)
	data := noise(t, 1<<20)
	require.NoError(t, r.c.write(0, data))
	require.NoError(t, r.c.flush())
	r.target.kill(t)
	r.starts(t)
	r.holds(t, 0, data)

	r.h.run(t, "pmnbd-target", "save")
	code, stdout, _ := r.h.result(t, "pmnbd-target", "status", "--check")
	require.Equal(t, 2, code)
	require.Contains(t, stdout, "it has been saved, and is granted to nobody. Run `pmnbd-target resume` if the power stays")
	require.NoError(t, r.c.write(0, data[:4096]), "the window takes it")
	require.Equal(t, "resumed: sessions are granted again\n", r.h.run(t, "pmnbd-target", "resume"))
	code, _, stderr := r.h.result(t, "pmnbd-target", "resume")
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "nothing to resume")
	require.NoError(t, r.c.flush())
	r.holds(t, 0, data)
	r.c.close()
	r.pmnbd.stop(t)
}

// On a battery that lasts no longer than a save, an initiator waits, and goes on when the power is back.
func TestProtectedOnBattery(t *testing.T) {
	t.Parallel()
	r := newProtectedRig(t)
	data := noise(t, 1<<20)
	require.NoError(t, r.c.write(0, data))
	require.NoError(t, r.c.flush())
	r.target.stop(t)
	ups := filepath.Join(r.h.home, "ups")
	say := func(text string) {
		require.NoError(t, os.WriteFile(ups+".new", []byte(text), 0o600))
		require.NoError(t, os.Rename(ups+".new", ups))
	}
	say("ups.status: OB DISCHRG\nbattery.runtime: 0\n")
	r.starts(t, "--battery-command", "cat "+ups)
	r.target.waitLog(t, "no session is granted: a save could not keep what it would store")
	require.Contains(t, r.status(t), "battery: ON BATTERY, lasts 0s")
	code, stdout, _ := r.h.result(t, "pmnbd-target", "status", "--check")
	require.Equal(t, 1, code)
	require.Contains(t, stdout, "the host runs on battery for 0s more")
	require.Eventually(t, func() bool {
		return strings.Contains(r.h.run(t, "pmnbd", "status"), "WAITING for the target: the target refuses region fast: region busy: the host runs on battery")
	}, outer, 100*time.Millisecond)
	say("ups.status: OL CHRG\nbattery.runtime: 5\n")
	r.holds(t, 0, data)
	r.c.close()
	r.pmnbd.stop(t)
}

// A region that a reload removes is saved: nothing that reads the file would save it later.
func TestProtectedRemoved(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	memory, file := filepath.Join(testhost.Memory(t), "fast"), filepath.Join(h.home, "target.toml")
	h.protected(t, "fast", memory)
	other := "listen = [\"iwarp://127.0.0.1:0\"]\n[[region]]\nname = \"other\"\npath = \"" + h.region(t, "other", "16M") + "\"\n"
	fast := "[[region]]\nname = \"fast\"\npath = \"" + memory + "\"\nsave = \"" + h.disk + "\"\n"
	written(t, file, "%s", other+fast)
	target := start(t, h.home, "pmnbd-target", "serve", "--config", file)
	uri := target.waitReady(t)[0]
	data := noise(t, 1<<20)
	pmnbd, unix, _ := h.initiator(t, uri, "fast")
	c := dialNBD(t, unix)
	require.NoError(t, c.write(0, data))
	c.close()
	pmnbd.stop(t)
	written(t, file, "%s", other)
	require.Contains(t, h.run(t, "pmnbd-target", "reload"), "removed fast")
	require.NoError(t, os.Remove(memory)) // a boot
	written(t, file, "%s", other+fast)
	require.Contains(t, h.run(t, "pmnbd-target", "reload"), "added fast")
	_, unix, _ = h.initiator(t, uri, "fast")
	c = dialNBD(t, unix)
	got := make([]byte, len(data))
	require.NoError(t, c.read(0, got))
	require.Equal(t, data, got)
	c.close()
}

// A region that somebody has taken out of the file, without a reload, is saved when the target ends: the
// save of the shutdown would not find it. As long as the file names it, the end needs no save.
func TestProtectedUnnamed(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		last  string // what the file says of the region in the end
		saved bool
	}{
		"named":        {last: "[[region]]\nname = \"fast\"\npath = \"MEMORY\"\nsave = \"DISK\"\n"},
		"not any more": {saved: true},
		"elsewhere":    {last: "[[region]]\nname = \"fast\"\npath = \"MEMORY2\"\nsave = \"DISK\"\n", saved: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHost(t)
			memory, file := filepath.Join(testhost.Memory(t), "fast"), filepath.Join(h.home, "target.toml")
			h.protected(t, "fast", memory)
			fast := "[[region]]\nname = \"fast\"\npath = \"" + memory + "\"\nsave = \"" + h.disk + "\"\n"
			listen := "listen = [\"iwarp://127.0.0.1:0\"]\n"
			written(t, file, "%s", listen+fast)
			target := start(t, h.home, "pmnbd-target", "serve", "--config", file)
			pmnbd, unix, _ := h.initiator(t, target.waitReady(t)[0], "fast")
			c := dialNBD(t, unix)
			require.NoError(t, c.write(0, noise(t, 1<<20)))
			c.close()
			pmnbd.stop(t)
			written(t, file, "%s", listen+strings.NewReplacer("MEMORY", memory, "DISK", h.disk).Replace(tt.last))
			target.stop(t)
			require.Equal(t, tt.saved, strings.Contains(target.stderr.String(), "saving the region before the end: nobody else could"))
			stdout := h.run(t, "pmnbd-target", "region", "inspect", filepath.Join(h.disk, "fast.save"))
			require.Equal(t, tt.saved, strings.Contains(stdout, "whole: it has all that the memory has"), stdout)
		})
	}
}
