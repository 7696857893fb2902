package ublk

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"pmnbd/backend"
	"pmnbd/internal/devicetest"
	"pmnbd/test/lab"
)

// TestKernel kills servers of a block device at moments that the fake only imitates, on an old kernel and
// on one that resets devices by itself. What Linux makes of it must be what the fake does.
func TestKernel(t *testing.T) {
	for name, kernel := range map[string]string{"old": "", "new": "backports"} {
		t.Run(name, func(t *testing.T) {
			lab.Run(t, lab.Guest{Setup: []string{"ublk"}, Kernel: kernel}, func(t *testing.T) {
				for _, tt := range []struct {
					name   string
					deaths []string // of servers, one after the other
					stuck  bool     // if the kernel is old
				}{
					{"never began", []string{"add"}, false},
					{"under way", []string{"serve"}, false},
					{"with full queues", []string{"hold"}, false},
					{"behind the command", []string{"serve", "reset"}, false},
					{"behind the mapping", []string{"serve", "map"}, true},
					{"between two queues", []string{"serve", "half"}, true},
					{"before the end", []string{"serve", "fetch", "fetch"}, false},
				} {
					t.Run(tt.name, func(t *testing.T) { dies(t, tt.deaths, tt.stuck && kernel == "") })
				}
				t.Run("while it begins", func(t *testing.T) {
					if kernel == "" {
						t.Skip("here the process would wait for itself, and never end (docs/attach.md)")
					}
					dies(t, []string{"begin"}, false)
				})
				t.Run("forgotten", func(t *testing.T) {
					if kernel == "" {
						t.Skip("no command makes this kernel forget a server")
					}
					forgets(t)
				})
				out, err := exec.Command("sh", "-c", "! dmesg | grep -E 'WARNING|BUG|ublkb0.*error'").CombinedOutput()
				require.NoError(t, err, "%s", out)
			})
		})
	}
}

// dies lets servers die, and then continues the block device, or is told that it cannot.
func dies(t *testing.T, deaths []string, stuck bool) {
	var load *exec.Cmd
	for _, how := range deaths {
		server := start(t, how)
		switch how {
		case "serve":
			load = fill(t, "8")
			until(t, "[ $(awk '{ print $5 }' /sys/block/ublkb0/stat) -gt 0 ]")
		case "hold":
			// The kernel notices the end of such a server only when requests time out.
			require.NoError(t, os.WriteFile("/sys/block/ublkb0/queue/io_timeout", []byte("1000"), 0))
			load = fill(t, "400")
			until(t, "[ $(awk '{ print $2 }' /sys/block/ublkb0/inflight) -ge 256 ]")
		}
		require.NoError(t, server.Process.Kill())
		_ = server.Wait() // killed
	}
	cfg := Config{Device: devicetest.NewMem(t, 16<<20), Number: 0, Identity: identity, Recover: true}
	d, err := Open(t.Context(), cfg)
	if stuck {
		require.ErrorIs(t, err, ErrHalf)
	} else {
		require.NoError(t, err)
	}
	if stuck {
		require.NoError(t, Stop(0, identity))
		if load != nil {
			require.Error(t, load.Wait())
		}
	} else {
		if load != nil {
			d = goesOn(t, cfg, d, load)
		}
		require.NoError(t, Stop(0, identity))
		<-d.Done()
		require.ErrorIs(t, d.Err(), ErrRemoved)
	}
	require.NoError(t, Delete(0, identity))
}

// patience bounds how long I/O may take to end, on a machine that is slow and busy.
const patience = 5 * time.Minute

// goesOn waits for the end of load. As pmnbd does, it continues a block device that the kernel forgot.
func goesOn(t *testing.T, cfg Config, d *Device, load *exec.Cmd) *Device {
	ended := make(chan error, 1)
	go func() { ended <- load.Wait() }()
	giveUp := time.After(patience)
	for {
		select {
		case err := <-ended:
			require.NoError(t, err, "no I/O fails")
			return d
		case <-d.Done():
			require.ErrorIs(t, d.Err(), ErrForgotten)
			fmt.Println("the kernel forgot the server")
			var err error
			d, err = Open(t.Context(), cfg)
			require.NoError(t, err)
		case <-giveUp:
			has, err := Inspect(0)
			require.FailNow(t, "I/O does not end", "the device: %+v, %v", has, err)
		}
	}
}

// A quiescable kernel makes devices that a command can take from their server. That server then finds what it finds
// if an old kernel takes it for ended.
type quiescable struct{ host }

func (q quiescable) command(op, id uint32, data uint64, buf []byte) error {
	if op == cmdAdd {
		i := getInfo(buf)
		i.flags |= featureQuiesce
		i.put(buf)
	}
	return q.host.command(op, id, data, buf)
}

// forgets has the kernel forget a server under load. The device goes on.
func forgets(t *testing.T) {
	const cmdQuiesce = ioBoth<<30 | controlSize<<16 | 'u'<<8 | 0x16 // UBLK_U_CMD_QUIESCE_DEV
	h, err := openHost()
	require.NoError(t, err)
	cfg := Config{Device: devicetest.NewMem(t, 16<<20), Number: 0, Identity: identity, host: quiescable{h}}
	d, err := Open(t.Context(), cfg)
	require.NoError(t, err)
	load := fill(t, "8")
	until(t, "[ $(awk '{ print $5 }' /sys/block/ublkb0/stat) -gt 0 ]")
	asks, err := openHost()
	require.NoError(t, err)
	require.NoError(t, asks.command(cmdQuiesce, 0, 0, nil))
	require.NoError(t, asks.close())
	<-d.Done()
	require.ErrorIs(t, d.Err(), ErrForgotten)
	cfg.host, cfg.Recover = nil, true
	d, err = Open(t.Context(), cfg)
	require.NoError(t, err)
	d = goesOn(t, cfg, d, load)
	require.NoError(t, Stop(0, identity))
	<-d.Done()
	require.ErrorIs(t, d.Err(), ErrRemoved)
	require.NoError(t, Delete(0, identity))
}

// fill writes to the block device with so many requests at a time, from both CPUs.
func fill(t *testing.T, depth string) *exec.Cmd {
	load := exec.Command("fio", "--name=fill", "--filename="+Path(0), "--direct=1", "--rw=write", "--bs=4k", "--size=4m", "--io_size=16m", "--ioengine=libaio",
		"--iodepth="+depth, "--numjobs=2", "--cpus_allowed=0,1", "--cpus_allowed_policy=split", "--output-format=terse")
	load.Stdout, load.Stderr = os.Stdout, os.Stdout
	require.NoError(t, load.Start())
	return load
}

func until(t *testing.T, condition string) {
	t.Helper()
	require.NoError(t, exec.Command("sh", "-c", "until "+condition+"; do sleep 0.05; done").Run())
}

// serverVar says in which way TestServer serves block device 0.
const serverVar = "PMNBD_UBLK_SERVER"

// start starts a process that goes as far as how says, and stays there.
func start(t *testing.T, how string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self, "-test.run", "^TestServer$")
	cmd.Env, cmd.Stderr = append(os.Environ(), serverVar+"="+how), os.Stdout
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "there", strings.TrimSpace(line))
	return cmd
}

// TestServer is the process that start starts.
func TestServer(t *testing.T) {
	how := os.Getenv(serverVar)
	if how == "" {
		t.Skip("TestKernel runs it")
	}
	var dev backend.Device = devicetest.NewMem(t, 16<<20)
	cfg := Config{Device: dev, Number: 0, Identity: identity}
	switch how {
	case "begin":
		held := devicetest.NewSlow(t, 16<<20)
		cfg.Device = held
		go func() {
			held.Wait(1) // the kernel looks for partitions
			fmt.Println("there")
		}()
		_, err := Open(t.Context(), cfg)
		require.NoError(t, err)
	case "hold":
		held := devicetest.NewSlow(t, 16<<20)
		held.Through = func(op *backend.Op) bool { return op.Cmd == backend.Read }
		cfg.Device = held
		fallthrough
	case "serve":
		_, err := Open(t.Context(), cfg)
		require.NoError(t, err)
	default:
		goOn(t, &cfg, how)
	}
	if how != "begin" {
		fmt.Println("there")
	}
	select {}
}

// goOn does what Open does, up to a moment.
func goOn(t *testing.T, cfg *Config, how string) {
	h, err := openHost()
	require.NoError(t, err)
	d := &Device{host: h, begin: make(chan struct{})}
	if how == "add" {
		buf := make([]byte, infoSize)
		(&info{queues: 2, depth: depth, maxIO: maxRequest, flags: features, identity: identity}).put(buf)
		require.NoError(t, h.command(cmdAdd, 0, 0, buf))
		return
	}
	kernel, err := d.canServe()
	require.NoError(t, err)
	has, err := inspect(h, 0)
	require.NoError(t, err)
	require.EqualValues(t, 2, has.queues)
	require.NoError(t, d.awaitReset(t.Context(), has, kernel))
	if how == "reset" {
		return
	}
	r, _, err := cfg.limits()
	require.NoError(t, err)
	if how == "fetch" {
		require.NoError(t, d.prepare(cfg, r, 2))
		require.NoError(t, d.fetch())
		return
	}
	runtime.LockOSThread()
	d.file, err = h.open(0)
	require.NoError(t, err)
	q := newQueue(cfg.Device, r)
	p, err := h.port()
	require.NoError(t, err)
	q.own(p)
	require.NoError(t, d.file.connect(p, 0))
	if how == "half" {
		require.NoError(t, q.fetch())
	}
}
