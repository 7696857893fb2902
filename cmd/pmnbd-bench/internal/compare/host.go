package compare

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"pmnbd/cmd/pmnbd-bench/internal/storage"
	"pmnbd/internal/plain"
	"pmnbd/internal/release"
)

// A Host is the machine that measured, and how busy others kept it.
type Host struct {
	OS      string `json:"os"`
	Kernel  string `json:"kernel"`
	CPU     string `json:"cpu"`
	CPUs    int    `json:"cpus"`
	Virtual bool   `json:"virtual"`
	// Threads is how many goroutines can run at a time (GOMAXPROCS).
	Threads int `json:"gomaxprocs"`
	// Load is the load average of one minute before the run.
	Load float64 `json:"load_before"`
	// Busy is the share of the CPUs that others used just before the run; -1 if nobody looked.
	Busy float64 `json:"busy_before"`
	// Stolen is the share of the CPUs that the hypervisor gave to others during the run.
	Stolen float64 `json:"stolen"`

	root  string
	start cpuTimes
}

func version() string {
	if r := release.Revision(); r != "" {
		return release.Version + ", revision " + r
	}
	return release.Version
}

func thisHost(s storage.System) Host {
	h := Host{
		OS: runtime.GOOS + "/" + runtime.GOARCH, CPU: "unknown", CPUs: runtime.NumCPU(), Threads: runtime.GOMAXPROCS(0),
		Virtual: s.Hypervisor(), Busy: -1, root: s.Root,
	}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		h.Kernel = plain.Text(unix.ByteSliceToString(u.Release[:]))
	}
	for line := range strings.Lines(h.read("/proc/cpuinfo")) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			h.CPU = plain.Text(strings.TrimSpace(value))
			break
		}
	}
	if fields := strings.Fields(h.read("/proc/loadavg")); len(fields) > 0 {
		h.Load, _ = strconv.ParseFloat(fields[0], 64) // 0 if Linux does not say
	}
	return h
}

// read returns a file of the machine; "" if there is none.
func (h *Host) read(path string) string {
	b, err := os.ReadFile(filepath.Join(h.root, path))
	if err != nil {
		return ""
	}
	return string(b)
}

// cpuTimes are the times that all CPUs together have spent so far, in ticks.
type cpuTimes struct{ all, idle, stolen float64 }

// times reads the first line of /proc/stat.
func (h *Host) times() (t cpuTimes) {
	line, _, _ := bytes.Cut([]byte(h.read("/proc/stat")), []byte("\n"))
	fields := strings.Fields(string(line))
	// proc_stat(5): user, nice, system, idle, iowait, irq, softirq, steal; guests are in user.
	for i := 1; i < len(fields) && i <= 8; i++ {
		v, err := strconv.ParseFloat(fields[i], 64)
		if err != nil {
			return cpuTimes{}
		}
		t.all += v
		switch i {
		case 4, 5:
			t.idle += v
		case 8:
			t.stolen += v
		}
	}
	return t
}

// watch looks for a while how busy the machine is.
func (h *Host) watch(ctx context.Context, idle time.Duration) error {
	if idle > 0 {
		h.start = h.times()
		select {
		case <-ctx.Done():
			return errInterrupted
		case <-time.After(idle):
		}
		if now := h.times(); now.all > h.start.all {
			h.Busy = 1 - (now.idle-h.start.idle)/(now.all-h.start.all)
		}
	}
	h.start = h.times()
	return nil
}

// end computes what is known after the run.
func (h *Host) end() {
	if now := h.times(); now.all > h.start.all {
		h.Stolen = (now.stolen - h.start.stolen) / (now.all - h.start.all)
	}
}
