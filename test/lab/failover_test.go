package lab_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pmnbd/test/lab"
)

// TestFailover has two hosts that serve one mirror in turn, by an arbiter in etcd. Whoever is active has
// ext4 on /dev/nbd and syncs record after record. First its pmnbd is killed, then the next one's is
// stopped, then the next host loses its power. Each time the other host goes on by itself, with every
// record whose fsync had returned. The pmnbd that was stopped wakes up: no READ of its clients is answered,
// and nothing that they had written lands.
//
//	             host 1 ── wire 0 ── the storage: etcd, two pmnbd-targets ── wire 1 ── host 2
//	term 1       active, killed                                                       standby
//	term 2       standby                                                              active, stopped
//	term 3       active, loses its power                                              wakes up, standby
//	at last                                                                           active
func TestFailover(t *testing.T) {
	lab.Need(t)
	if _, err := exec.LookPath("etcd"); err != nil {
		t.Skip("needs etcd")
	}
	switch os.Getenv(roleVar) {
	case "1":
		failoverHost{t, 1}.first()
	case "2":
		failoverHost{t, 2}.second()
	default:
		failover(t)
	}
}

// roleVar tells a guest of TestFailover which host it is.
const roleVar = "PMNBD_LAB_ROLE"

// arbiterLease is how long a standby waits for a silent host. It is longer than the default: a busy machine
// that translates stands still for seconds.
const arbiterLease = 20 * time.Second

// storage is the script of the machine that has etcd and the targets.
const storage = `
etcd --data-dir /run/etcd --listen-client-urls http://0.0.0.0:2379 --advertise-client-urls http://10.0.0.1:2379 --log-level error &
for port in 7204 7205; do
	pmnbd-target region create disk /mnt/pmem/$port --size 24M
	pmnbd-target serve --insecure-no-auth --listen iwarp://0.0.0.0:$port --region disk=/mnt/pmem/$port &
done
wait
`

// failover is the test on the host's side: it tells the machines what to do, and ends one.
func failover(t *testing.T) {
	dir0, dir1 := t.TempDir(), t.TempDir()
	a0, b0 := lab.Wire(dir0, 0)
	a1, b1 := lab.Wire(dir1, 1)
	site := lab.Start(t, lab.Guest{Setup: []string{"wire", "fsdax"}, NVDIMM: lab.Memory(t, 128<<20), Wires: []*lab.End{a0, a1},
		Command: []string{"bash", "-eu", "-c", storage}})
	s := &story{t: t, m: site}
	for range 2 {
		s.await("ready ")
	}
	boot := func(role string, end *lab.End) *story {
		m := lab.Start(t, lab.Guest{Setup: []string{"wire", "nbd"}, Wires: []*lab.End{end}, Env: []string{roleVar + "=" + role}})
		t.Cleanup(func() {
			if t.Failed() {
				fmt.Printf("host %s said:\n%s", role, m.Log())
			}
		})
		return &story{t: t, m: m}
	}
	one := boot("1", b0)
	one.await("serves term 1\n")
	two := boot("2", b1)
	two.await("standby: ")

	one.synced(1, 100)
	one.tell("kill")
	one.await("gone\n")
	gone := time.Now()
	two.await("serves term 2\n")
	t.Logf("kill -9 of the active pmnbd: the standby serves after %v; the lease is %v", since(gone), arbiterLease)
	one.tell("leave") // earlier it would go on: the lease is still its own
	one.await("ended term 1 with ")
	two.tell("had 1 " + one.word())
	two.await("has term 1\n")

	one.await("standby: ")
	two.synced(2, 100)
	two.tell("stop")
	two.await("gone\n")
	gone = time.Now()
	one.await("serves term 3\n")
	t.Logf("SIGSTOP of the active pmnbd: the standby serves after %v; the lease is %v", since(gone), arbiterLease)
	one.tell("had 2 " + strconv.Itoa(two.count(2)))
	one.await("has term 2\n")
	one.await("at rest\n")
	two.tell("continue")
	two.await("ended term 2 with ")
	one.tell("had 2 " + two.word()) // an fsync that returned when it woke up counts as well
	one.await("has term 2\n")
	one.await("the same\n")

	two.await("standby: ")
	one.synced(3, 100)
	one.m.Kill()
	gone = time.Now()
	two.await("serves term 4\n")
	t.Logf("power cut of the active host: the standby serves after %v; the lease is %v", since(gone), arbiterLease)
	two.tell("had 3 " + strconv.Itoa(one.count(3)))
	two.await("has term 3\n")
	lab.Finish(t, two.m)
}

func since(t time.Time) time.Duration { return time.Since(t).Round(10 * time.Millisecond) }

// order is the file in a guest's /out that tells it what to do next. The guest removes it.
const order = "order"

// tell gives the machine an order, which takes the one before first.
func (s *story) tell(what string) {
	s.t.Helper()
	file := filepath.Join(s.m.Out, order)
	require.NoError(s.t, os.WriteFile(file+".new", []byte(what), 0o600))
	require.NoError(s.t, os.Rename(file+".new", file))
}

// word reads the rest of the line.
func (s *story) word() string {
	s.t.Helper()
	at := s.at
	s.await("\n")
	return strings.TrimSpace(s.m.Log()[at:s.at])
}

// synced reads on until a term has n records whose fsync has returned.
func (s *story) synced(term, n int) {
	s.t.Helper()
	s.await(fmt.Sprintf("term %d synced %d\n", term, n))
}

// count is how many records of a term had been synced, as far as the machine said.
func (s *story) count(term int) int {
	n, err := strconv.Atoi(last(s.m.Log(), fmt.Sprintf("term %d synced ", term)))
	require.NoError(s.t, err)
	return n
}

// A failoverHost is one of the two hosts, in its guest.
type failoverHost struct {
	t *testing.T
	n int
}

// takes waits for an order that begins with a word, and returns the rest of it.
func (h failoverHost) takes(word string) string {
	h.t.Helper()
	for file := "/out/" + order; ; {
		b, err := os.ReadFile(file)
		if errors.Is(err, os.ErrNotExist) {
			time.Sleep(20 * time.Millisecond) // the other side of this filesystem tells nobody
			continue
		}
		require.NoError(h.t, err)
		rest, ok := strings.CutPrefix(string(b), word)
		require.True(h.t, ok, "order %q, and it waits for %q", b, word)
		require.NoError(h.t, os.Remove(file))
		return strings.TrimSpace(rest)
	}
}

func (h failoverHost) target() string {
	return fmt.Sprintf("iwarp://10.0.%d.1:7204/disk,iwarp://10.0.%[1]d.1:7205", h.n-1)
}

func (h failoverHost) arbiter() string { return fmt.Sprintf("etcd://10.0.%d.1:2379", h.n-1) }

// A failoverTerm is what a host has while it is active.
type failoverTerm struct {
	failoverHost
	server *server
	n      int
	dev    string
	ended  chan int // takes how many records were synced
}

// serves waits until this host is active, and mounts the device in term n.
func (h failoverHost) serves(n int, before string) *failoverTerm {
	h.t.Helper()
	s := initiate(h.t, h.target(), "--id", fmt.Sprintf("6d6e6264-0000-4000-8000-00000000001%d", h.n),
		"--arbiter", h.arbiter(), "--arbiter-lease", arbiterLease.String(), "--standby", "--accept-loss")
	fmt.Printf("serves term %d\n", n)
	x := &failoverTerm{h, s, n, fmt.Sprintf("/dev/nbd%d", n), make(chan int, 1)}
	sh(h.t, "nbd-client -unix "+socket+" -N disk "+x.dev+"\n"+strings.ReplaceAll(before, "DEV", x.dev)+"mkdir -p /mnt/disk; mount "+x.dev+" /mnt/disk\n")
	return x
}

func termFile(term int) string { return fmt.Sprintf("/mnt/disk/term%d", term) }

// sync appends records to the file of the term, and calls fsync after each, until that fails.
func (x *failoverTerm) sync() {
	go func() {
		n := 0
		defer func() { x.ended <- n }()
		f, err := os.OpenFile(termFile(x.n), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
		for err == nil {
			if _, err = f.Write(record(x.n, n)); err == nil {
				err = f.Sync()
			}
			if err == nil {
				n++
				fmt.Printf("term %d synced %d\n", x.n, n)
			}
		}
		fmt.Println("the writer ends:", err)
		_ = f.Close() // its data are lost anyway
	}()
}

// leaves ends what is left of a device whose pmnbd is dead or has failed, and returns how many records were
// synced. What a dead pmnbd had in hand waits in the kernel until the device is disconnected.
func (x *failoverTerm) leaves() (synced int) {
	sh(x.t, "nbd-client -d "+x.dev+"\n")
	synced = <-x.ended
	_ = try("umount /mnt/disk") // it writes, which fails
	sh(x.t, "! grep -q ' /mnt/disk ' /proc/mounts\n")
	fmt.Printf("ended term %d with %d\n", x.n, synced)
	return synced
}

// has checks the records of an earlier term, of which so many at least were synced. It returns the file.
func (h failoverHost) has(term, synced int) []byte {
	h.t.Helper()
	all, err := os.ReadFile(termFile(term))
	require.NoError(h.t, err)
	rest := all
	for n := range synced {
		want := record(term, n)
		require.GreaterOrEqual(h.t, len(rest), len(want), "record %d of %d is not there", n, synced)
		require.True(h.t, bytes.Equal(want, rest[:len(want)]), "record %d of %d is wrong", n, synced)
		rest = rest[len(want):]
	}
	h.t.Logf("term %d: all %d synced records are there", term, synced)
	return all
}

// hasTold is has for what the other side says. It confirms that.
func (h failoverHost) hasTold(term int) []byte {
	h.t.Helper()
	synced, err := strconv.Atoi(h.takes(fmt.Sprintf("had %d ", term)))
	require.NoError(h.t, err)
	all := h.has(term, synced)
	fmt.Printf("has term %d\n", term)
	return all
}

// first is host 1: active, killed, standby, active, and without power.
func (h failoverHost) first() {
	t := h.t
	sh(t, fmt.Sprintf("pmnbd mirror create --id %s --target %s/disk --arbiter %s\n", initiatorID, h.target(), h.arbiter()))
	x := h.serves(1, "mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0 DEV\n")
	x.sync()
	h.takes("kill")
	x.server.kill()
	fmt.Println("gone")
	h.takes("leave")
	synced := x.leaves()

	x = h.serves(3, "")
	stopped := h.hasTold(2)
	h.has(1, synced)
	both := "until pmnbd mirror status disk --json | jq -e '.copies == 2' >/dev/null; do sleep 0.2; done\n"
	sum := "blockdev --flushbufs " + x.dev + "; dd if=" + x.dev + " iflag=direct bs=1M status=none | sha256sum"
	sh(t, both+"sync\numount /mnt/disk\npmnbd mirror verify disk\n"+sum+" >/run/before\n")
	fmt.Println("at rest")
	again := h.takes("had 2 ")
	sh(t, sum+" >/run/after\ncmp /run/before /run/after\npmnbd mirror verify disk\nfsck.ext4 -fn "+x.dev+"\nmount "+x.dev+" /mnt/disk\n")
	n, err := strconv.Atoi(again)
	require.NoError(t, err)
	require.True(t, bytes.Equal(stopped, h.has(2, n)), "the file of term 2 has changed")
	fmt.Println("has term 2")
	fmt.Println("the same")
	x.sync()
	<-x.ended
	require.Fail(t, "it outlived the power cut")
}

// second is host 2: standby, active, stopped and woken up, standby, and active.
func (h failoverHost) second() {
	t := h.t
	x := h.serves(2, "")
	h.hasTold(1)
	x.sync()
	h.takes("stop")
	require.NoError(t, x.server.cmd.Process.Signal(syscall.SIGSTOP))
	fmt.Println("gone")
	early := make(chan error, 1)
	go func() { early <- readDirect(x.dev) }() // its request waits in the socket
	h.takes("continue")
	require.NoError(t, x.server.cmd.Process.Signal(syscall.SIGCONT))
	require.ErrorIs(t, <-early, syscall.EIO, "a READ that came while it was stopped")
	require.ErrorIs(t, readDirect(x.dev), syscall.EIO, "a READ after it woke up")
	x.server.kill()
	synced := x.leaves()

	x = h.serves(4, "")
	h.hasTold(3)
	h.has(2, synced)
	sh(t, "umount /mnt/disk\nfsck.ext4 -fn "+x.dev+"\nnbd-client -d "+x.dev+"\n")
	x.server.stop()
}

// readDirect reads the first block of a device past the page cache.
func readDirect(dev string) error {
	block, err := unix.Mmap(-1, 0, blockSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return err
	}
	defer unix.Munmap(block) //nolint:errcheck // it is our own
	f, err := os.OpenFile(dev, os.O_RDONLY|unix.O_DIRECT, 0)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // nothing was written
	_, err = io.ReadFull(f, block)
	return err
}
