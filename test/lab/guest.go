package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Environment variables that make and the guest's setup set.
const (
	// kernelVar names the directory that scripts/lab-kernel printed.
	kernelVar = "PMNBD_LAB_KERNEL"
	// guestVar is set only in a guest. It names the guest's accelerator.
	guestVar = "PMNBD_LAB_GUEST"
)

// A Guest says what to boot and what to run in it. A zero field leaves its part out.
type Guest struct {
	// Setup names what guest/setup prepares before Command, in this order: wire, rdma-core, rxe
	// or rxe-repaired, siw, devdax, fsdax, nbd.
	Setup []string
	// Kernel names another kernel than the lab's own: "backports". scripts/lab-kernel prepares
	// it on demand.
	Kernel string
	// NVDIMM is the file behind the emulated NVDIMM. It keeps the guest's stores however the
	// guest ends.
	NVDIMM string
	// EADR makes the platform save the CPU caches when the power fails, and persistence_domain
	// say so. Otherwise it saves what the memory controller has.
	EADR bool
	// Nodes is the number of NUMA nodes; 0 means 1. The NVDIMM is on the last.
	Nodes int
	// Wires are links to other guests: eth0, eth1 and so on.
	Wires []*End
	// Env is added to the environment of Command, as NAME=VALUE.
	Env []string
	// Command is the program and its arguments. It runs in the caller's working
	// directory, as root, with bin/ of this repository on its PATH.
	Command []string

	shell bool // Command has the console, which is our terminal
}

// An End is one of the two ends of a wire.
type End struct {
	dir  string
	n    int // the third byte of its address
	side int // 1 or 2, the last byte
}

// Wire makes wire n, 0 to 255, whose sockets are in dir. The ends have the addresses 10.0.n.1 and
// 10.0.n.2. Packets to a guest that is not running are lost.
func Wire(dir string, n int) (a, b *End) { return &End{dir, n, 1}, &End{dir, n, 2} }

func (e *End) address() string { return fmt.Sprintf("10.0.%d.%d", e.n, e.side) }

func (e *End) socket(side int) string { return filepath.Join(e.dir, strconv.Itoa(side)+".sock") }

// A Machine is a booted guest.
type Machine struct {
	// Out is a directory that the guest sees as /out.
	Out string

	cmd     *exec.Cmd
	cancel  context.CancelCauseFunc // ends the guest
	console journal                 // the kernel's
	log     journal                 // the command's
	done    chan struct{}
	ended   error // of QEMU; set when done is closed
}

// upMark is what a guest prints before it runs its command.
const upMark = "lab: the guest is up\n"

const (
	// boots is how many times Boot tries.
	boots = 3
	// patience is how long a guest may take to begin its command. That is ten times what it takes
	// under TCG on a busy machine.
	patience = 3 * time.Minute
)

// errNotUp ends a guest whose command did not begin in time.
var errNotUp = errors.New("it was not up in time")

// Boot starts g on the best accelerator available. It returns when the command has started or
// the setup has failed. The guest ends with its command, with ctx, or with Kill. The caller
// must call Close in any case.
//
// Boot starts a guest again that dies or hangs before its command: QEMU's translator now and then
// runs another instruction than the one that the kernel has just patched into itself. No test has
// begun by then.
func Boot(ctx context.Context, g Guest) (*Machine, error) { return bootWithin(ctx, g, patience) }

func bootWithin(ctx context.Context, g Guest, limit time.Duration) (*Machine, error) {
	for n := 1; ; n++ {
		m, err := boot(ctx, g, accelerator())
		if err != nil || g.shell {
			return m, err
		}
		late := time.AfterFunc(limit, func() { m.cancel(errNotUp) })
		if m.WaitFor(context.Background(), upMark) == nil && late.Stop() {
			return m, nil
		}
		late.Stop()
		if _, err = m.Wait(); err == nil {
			return m, nil // it has a result
		}
		m.Close()
		if n == boots || ctx.Err() != nil {
			return nil, err
		}
		fmt.Println("lab: once more:", err)
	}
}

// Shell is Boot with a shell on our terminal as its command.
func Shell(ctx context.Context, g Guest) (*Machine, error) {
	g.Command, g.shell = []string{"bash"}, true
	return Boot(ctx, g)
}

// accelerator reports whether guests boot with KVM. It tries: on a host that is a guest itself
// /dev/kvm may exist and not work.
var accelerator = sync.OnceValue(func() string {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	m, err := boot(ctx, Guest{Command: []string{"true"}}, "kvm")
	if err == nil {
		_, err = m.Wait()
		m.Close()
	}
	if err != nil {
		return "tcg"
	}
	return "kvm"
})

func boot(ctx context.Context, g Guest, accel string) (*Machine, error) {
	kernel, err := g.kernel()
	if err != nil {
		return nil, err
	}
	out, err := os.MkdirTemp("", "pmnbd-lab-")
	if err != nil {
		return nil, err
	}
	m := &Machine{Out: out, done: make(chan struct{})}
	ctx, m.cancel = context.WithCancelCause(ctx)
	if err := m.start(ctx, g, kernel, accel); err != nil {
		m.cancel(nil)
		_ = os.RemoveAll(out) // the error above matters more
		return nil, fmt.Errorf("boot a guest: %w", err)
	}
	return m, nil
}

// errNoKernel means that Debian's mirror has no such kernel for this machine.
var errNoKernel = errors.New("the mirror has no such kernel")

// kernel returns the directory of the kernel that g boots.
func (g *Guest) kernel() (string, error) {
	if g.Kernel == "" {
		kernel := os.Getenv(kernelVar)
		if kernel == "" {
			return "", errors.New("no kernel: " + kernelVar + " is not set; run `make lab`")
		}
		return kernel, nil
	}
	script := exec.Command(filepath.Join(here, "../../scripts/lab-kernel"), g.Kernel)
	script.Stderr = os.Stderr
	printed, err := script.Output()
	switch exit := (*exec.ExitError)(nil); {
	case errors.As(err, &exit) && exit.ExitCode() == 3:
		return "", fmt.Errorf("kernel %q: %w", g.Kernel, errNoKernel)
	case err != nil:
		return "", fmt.Errorf("prepare kernel %q: %w", g.Kernel, err)
	}
	return strings.TrimSpace(string(printed)), nil
}

func (m *Machine) start(ctx context.Context, g Guest, kernel, accel string) error {
	script, err := g.script(accel)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(m.Out, "cmd"), []byte(script), 0o755); err != nil {
		return err
	}
	args, err := g.qemu(kernel, m.Out, accel)
	if err != nil {
		return err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	m.cmd = exec.CommandContext(ctx, "qemu-system-x86_64", args...)
	m.cmd.ExtraFiles = []*os.File{w} // its descriptor 3
	m.cmd.Cancel, m.cmd.WaitDelay = m.interrogate, confession
	m.cmd.Stdout, m.cmd.Stderr = &m.console, &m.console
	if g.shell {
		if err := os.WriteFile(filepath.Join(m.Out, "shell"), nil, 0o600); err != nil {
			return err
		}
		m.cmd.Stdin, m.cmd.Stdout, m.cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	}
	// The guest must not outlive us, whatever ends us: Ctrl-C or a test's time limit, too.
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	go func() {
		// The kernel sends Pdeathsig when the thread that started the process ends.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := m.cmd.Start()
		_ = w.Close()
		started <- err
		if err == nil {
			_, _ = m.log.ReadFrom(r) // until QEMU ends: only it holds the other end
			err := m.cmd.Wait()
			m.ended = errors.Join(context.Cause(ctx), err)
		}
		_ = r.Close()
		close(m.done)
	}()
	return <-started
}

// here is the directory of this file.
var here = func() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Dir(file)
}()

// script returns what the guest runs.
func (g *Guest) script(accel string) (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	env := append([]string{
		guestVar + "=" + accel,
		"PATH=" + filepath.Join(here, "../../bin") + ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
	}, g.Env...)
	if len(g.Wires) > 0 {
		var addresses []string
		for _, e := range g.Wires {
			addresses = append(addresses, e.address())
		}
		env = append(env, "LAB_WIRES="+strings.Join(addresses, " "))
	}
	var b strings.Builder
	b.WriteString("#!/bin/sh\n")
	fmt.Fprintf(&b, "export %s\n", quote(env))
	if len(g.Setup) > 0 {
		fmt.Fprintf(&b, "%s %s || exit\n", quote([]string{filepath.Join(here, "guest/setup")}), quote(g.Setup))
	}
	if !g.shell {
		fmt.Fprintf(&b, "echo %s\n", quote([]string{strings.TrimSpace(upMark)}))
	}
	fmt.Fprintf(&b, "cd %s && exec %s\n", quote([]string{dir}), quote(g.Command))
	return b.String(), nil
}

// quote joins words into one line for a shell.
func quote(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
	}
	return strings.Join(quoted, " ")
}

const memory = 2048 // of the guest, in MiB

// qemu returns QEMU's command line.
func (g *Guest) qemu(kernel, out, accel string) ([]string, error) {
	machine, nodes := "q35", max(g.Nodes, 1)
	if g.NVDIMM != "" {
		domain := "mem-ctrl"
		if g.EADR {
			domain = "cpu"
		}
		machine += ",nvdimm=on,nvdimm-persistence=" + domain
	}
	cpu := "max"
	if accel == "tcg" {
		accel += ",thread=multi"
		// QEMU 7.2's CMPXCHG16B may put foreign bits into EFLAGS: docs/lab.md.
		cpu += ",-cx16"
	}
	args := []string{
		"-machine", machine, "-accel", accel, "-cpu", cpu,
		"-smp", "2", "-m", fmt.Sprintf("%dM,slots=4,maxmem=64G", memory),
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-serial", "stdio", "-serial", "file:/dev/fd/3",
		"-qmp", "unix:" + filepath.Join(out, monitor) + ",server=on,wait=off",
		"-kernel", filepath.Join(kernel, "vmlinuz"), "-initrd", filepath.Join(kernel, "initrd"),
		"-append", "console=ttyS0 quiet panic=-1 mitigations=off nokaslr" +
			// The kernel counts ticks against a delay loop to find out how its timer is wired.
			// TCG on a busy machine is late with them, and it may boot on without a timer.
			" no_timer_check" +
			// A kernel that hangs must say where, by itself or when interrogate asks.
			" softlockup_panic=1 watchdog_thresh=60 unknown_nmi_panic panic_print=0x40" +
			" lab.kernel=" + filepath.Join(kernel, "root") +
			" lab.start=" + filepath.Join(here, "guest/start"),
	}
	for _, fs := range []struct{ tag, option string }{{"host", "path=/,readonly=on"}, {"out", "path=" + out}} {
		args = append(args,
			"-fsdev", "local,id="+fs.tag+","+fs.option+",security_model=none,multidevs=remap",
			"-device", "virtio-9p-pci,fsdev="+fs.tag+",mount_tag="+fs.tag)
	}
	if nodes > 1 {
		for n := range nodes {
			args = append(args,
				"-object", fmt.Sprintf("memory-backend-ram,id=ram%d,size=%dM", n, memory/nodes),
				"-numa", fmt.Sprintf("node,nodeid=%d,memdev=ram%[1]d,cpus=%[1]d", n))
		}
	}
	if g.NVDIMM != "" {
		info, err := os.Stat(g.NVDIMM)
		if err != nil {
			return nil, err
		}
		args = append(args,
			"-object", fmt.Sprintf("memory-backend-file,id=nv0,share=on,mem-path=%s,size=%d", g.NVDIMM, info.Size()),
			"-device", fmt.Sprintf("nvdimm,id=nvdimm0,memdev=nv0,node=%d", nodes-1))
	}
	for i, e := range g.Wires {
		args = append(args,
			"-netdev", fmt.Sprintf("dgram,id=wire%d,local.type=unix,local.path=%s,remote.type=unix,remote.path=%s", i, e.socket(e.side), e.socket(3-e.side)),
			"-device", fmt.Sprintf("virtio-net-pci,netdev=wire%d,mac=52:54:00:00:%02x:%02x", i, e.n, e.side))
	}
	return args, nil
}
