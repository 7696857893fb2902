// Command pmnbd-bench measures how long an application waits for 4 KiB writes, reads, and
// writes followed by a flush, on NBD exports and on a local disk. The rounds of all targets
// alternate in one run, so that all meet the same state of the host. It prints one table. With
// --suite it compares two exports in more ways, the CPU time of their servers included.
//
// For that it is a client: it imports nbd/client, and does not know what is behind an export.
// pmnbd-bench compare answers what an fsync costs on exports, block devices and directories, with a
// report. pmnbd-bench methods is an initiator instead: on backend/remote it compares the durability
// methods without NBD and without a block device.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"pmnbd/cmd/internal/command"
	"pmnbd/cmd/internal/flags"
	"pmnbd/internal/sockio"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// options is the command line. As to the defaults: in two seconds the slowest cell has some
// ten thousand operations, enough for a p99; four rounds show whether the host's speed
// changes; 64 MiB do not fit a CPU's caches.
type options struct {
	perCell time.Duration
	rounds  int
	area    flags.Size
	json    string
	suite   bool
	works   []workload
	pids    map[string][]int // by a target's label, of the processes behind it
	targets []target
}

const help = `Measures 4 KiB operations at random offsets, and prints a row for each TARGET:
  [LABEL=]nbd+unix:///NAME?socket=/PATH   an export on a unix socket
  [LABEL=]nbd://HOST:PORT/NAME            an export on TCP
  [LABEL=]disk:DIR                        a file of its own in DIR: pwrite, fdatasync
The first --area bytes of every export are OVERWRITTEN.

Usage:
  pmnbd-bench [flags] TARGET…
  pmnbd-bench compare [flags] PLACE…    what would an fsync cost? pmnbd-bench compare --help
  pmnbd-bench methods [flags] TARGET…   compares durability methods: pmnbd-bench methods --help
  pmnbd-bench --version
`

// run runs a command line and returns the exit code.
func run(args []string, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	until := func(do func(context.Context, *command.Call) error) func(*command.Call) error {
		return func(call *command.Call) error {
			err := do(ctx, call)
			if ctx.Err() != nil {
				return errors.New("interrupted")
			}
			return err
		}
	}
	root := command.Command{
		Name: "pmnbd-bench", Help: help, Run: until(benchmark),
		Commands: []command.Command{
			{Name: "compare", Help: compareHelp, Run: until(benchCompare)},
			{Name: "methods", Help: methodsHelp, Run: until(benchMethods)},
			{Name: "floor", Help: floorHelp, Run: func(call *command.Call) error { return benchFloor(ctx, call) }},
			{Name: "charts", Help: chartsHelp, Run: benchCharts},
		},
	}
	return root.Main(args, stdout, stderr)
}

func benchmark(ctx context.Context, call *command.Call) error {
	sockio.Procs()
	o, err := parse(call)
	if err != nil {
		return err
	}
	if err := hasDirectory("json", o.json); err != nil {
		return err
	}
	r, err := measure(ctx, o)
	if err != nil {
		return err
	}
	if o.suite {
		r.addRatios()
	}
	if err := save(r, o.json); err != nil {
		return err
	}
	if o.suite {
		return r.markdown(call.Stdout)
	}
	return r.table(call.Stdout)
}

func parse(call *command.Call) (options, error) {
	o := options{area: 64 << 20, pids: make(map[string][]int)}
	var depth, connections, ranges int
	block := flags.Size(blockSize)
	var pids []string
	var shape string
	fs := call.Flags
	fs.DurationVar(&o.perCell, "time", 2*time.Second, "how long to measure each cell of the table, over all rounds")
	fs.IntVar(&o.rounds, "rounds", 4, "in how many rounds, each of which visits every cell")
	fs.IntVar(&depth, "depth", 1, "how many operations each connection has in flight")
	fs.IntVar(&connections, "connections", 1, "how many connections each export gets, each with an equal part of the area")
	fs.Var(&block, "block", "how many bytes a request has")
	fs.IntVar(&ranges, "ranges", 0, "measure FLUSHes instead, each after `N` writes of separate blocks; CPU time is then per write")
	fs.Var(&o.area, "area", "how much of each target to write and read, from its beginning")
	fs.StringVar(&o.json, "json", "", "file for the figures of every round, as JSON")
	fs.BoolVar(&o.suite, "suite", false, "compare the first two exports, in every way that docs/benchmarks.md names, and print ratios in Markdown; others, labelled "+labelFloor+" and "+labelOneHop+", are measured in some rows only")
	fs.StringVar(&shape, "shape", "", "only those rows of --suite whose names end so: qd1, qd32, 'qd32 single', 4x16")
	fs.StringArrayVar(&pids, "pids", nil, "the processes that serve a target, the one in front first, to measure what they use, `LABEL=PID[,PID...]`; can be repeated")
	if err := call.Parse("[…]"); err != nil {
		return o, err
	}
	for _, arg := range fs.Args() {
		t, err := parseTarget(arg)
		if err != nil {
			return o, err
		}
		if slices.ContainsFunc(o.targets, func(other target) bool { return other.label == t.label }) {
			return o, flags.Usagef("two targets are called %q; give them labels, as in a=%s", t.label, arg)
		}
		o.targets = append(o.targets, t)
	}
	switch {
	case len(o.targets) == 0:
		return o, flags.Usagef("no target: use %s", targetForms)
	case o.perCell < 10*time.Millisecond || o.perCell > time.Hour:
		return o, flags.Usagef("--time %v: use 10ms to 1h", o.perCell)
	case o.rounds < 1 || o.rounds > 1000:
		return o, flags.Usagef("--rounds %d: use 1 to 1000", o.rounds)
	case depth < 1 || depth > 1024:
		return o, flags.Usagef("--depth %d: use 1 to 1024", depth)
	case connections < 1 || connections > 64:
		return o, flags.Usagef("--connections %d: use 1 to 64", connections)
	case block < 512 || block > maxBlock || block&(block-1) != 0:
		return o, flags.Usagef("--block %v: use a power of two from 512 to %v", block, flags.Size(maxBlock))
	case ranges < 0 || ranges > 1<<20:
		return o, flags.Usagef("--ranges %d: use 1 to %d", ranges, 1<<20)
	case o.area < blockSize || o.area > 1<<40:
		return o, flags.Usagef("--area %v: use 4K to 1T", o.area)
	}
	for _, t := range o.targets {
		if t.dir != "" && (depth > 1 || connections > 1 || block != blockSize || ranges > 0 || o.suite) {
			return o, flags.Usagef("%s: a disk is measured with --depth 1, --connections 1 and --block %d only, without --ranges and --suite", t.label, blockSize)
		}
	}
	o.works = plain(depth, connections, int(block))
	if ranges > 0 {
		o.works = []workload{{name: fmt.Sprintf("flush of %d", ranges), cmds: []verb{cmdFlush}, depth: rangesDepth, conns: connections, block: int(block), ranges: ranges}}
	}
	if o.suite {
		o.works = slices.DeleteFunc(suite(), func(w workload) bool { return shape != "" && !strings.HasSuffix(w.name, " "+shape) })
		others := slices.ContainsFunc(o.targets[min(2, len(o.targets)):], func(t target) bool { return t.label != labelFloor && t.label != labelOneHop })
		switch {
		case len(o.targets) < 2 || others:
			return o, flags.Usagef("--suite compares two targets, there are %d; those labelled %s and %s come behind them", len(o.targets), labelFloor, labelOneHop)
		case fs.Changed("depth") || fs.Changed("connections") || fs.Changed("block") || fs.Changed("ranges"):
			return o, flags.Usagef("--suite has workloads of its own: leave out --depth, --connections, --block and --ranges")
		case len(o.works) == 0:
			return o, flags.Usagef("--shape %q: no row of --suite ends so", shape)
		}
	} else if shape != "" {
		return o, flags.Usagef("--shape is for --suite")
	}
	for _, arg := range pids {
		if err := o.addPIDs(arg); err != nil {
			return o, err
		}
	}
	return o, nil
}

// addPIDs reads the argument of a --pids.
func (o *options) addPIDs(arg string) error {
	label, list, ok := strings.Cut(arg, "=")
	if !ok || !slices.ContainsFunc(o.targets, func(t target) bool { return t.label == label }) {
		return flags.Usagef("--pids %s: use LABEL=PID[,PID...], with the label of a target", arg)
	}
	for _, p := range strings.Split(list, ",") {
		pid, err := strconv.Atoi(p)
		if err != nil || pid < 1 {
			return flags.Usagef("--pids %s: %q is not the id of a process", arg, p)
		}
		o.pids[label] = append(o.pids[label], pid)
	}
	return nil
}
