package flush

import (
	"bufio"
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// asChild, in the environment, makes a run of these tests a child of TestInstructions.
const asChild = "PMNBD_TEST_INSTRUCTIONS"

func TestMain(m *testing.M) {
	if os.Getenv(asChild) != "" {
		flushSpans()
		return
	}
	os.Exit(m.Run())
}

// A span is n bytes at offset off of the memory.
type span struct{ off, n int }

// spansOf returns spans with every kind of end. They touch few lines, because the
// emulator logs each instruction. The last span needs two pieces.
func spansOf(line int) (all []span) {
	for _, off := range []int{0, 1, line - 1, line, line + 1} {
		for _, n := range []int{0, 1, line - 1, line, line + 1, 2*line - 1, 2 * line, 3*line + 1} {
			all = append(all, span{off, n})
		}
	}
	return append(all, span{line + 1, pieceSize})
}

// flushSpans is the child. It prints where its memory lies, and flushes each span with a
// Fence in front.
func flushSpans() {
	mem, err := unix.Mmap(-1, 0, 2*pieceSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Printf("%d %d %s\n", address(mem), best.line, Instruction())
	for _, s := range spansOf(best.line) {
		Fence()
		Lines(mem[s.off : s.off+s.n])
	}
}

// A machine is an architecture, and what the test has to know of its code.
type machine struct {
	goarch, emulator string
	funcs            []string // the functions in assembly; Fence is the last
	// decode names the instruction with which b begins, if it is one that counts, and the
	// register that holds its address.
	decode func(b []byte) (name, register string)
	// pc is the register's name in the emulator's log. Each record starts with first.
	pc, first string
}

// Intel SDM vol. 2A and 2B. Each takes its address from RAX, without an offset.
func decodeAMD64(b []byte) (name, register string) {
	for _, i := range []struct{ code, name, register string }{
		{"\x66\x0f\xae\x30", "clwb", "RAX"},
		{"\x66\x0f\xae\x38", "clflushopt", "RAX"},
		{"\x0f\xae\x38", "clflush", "RAX"},
		{"\x0f\xae\xf8", "fence", ""},
	} {
		if bytes.HasPrefix(b, []byte(i.code)) {
			return i.name, i.register
		}
	}
	return "", ""
}

// Arm ARM DDI 0487, C5.3 and C6.2. The fence is DSB SY: for all accesses, and the whole
// system.
func decodeARM64(b []byte) (name, register string) {
	if len(b) < 4 {
		return "", ""
	}
	switch i := binary.LittleEndian.Uint32(b); {
	case i == 0xd5033f9f:
		return "fence", ""
	case i&^0x1f == 0xd50b7c20:
		return "dc cvap", fmt.Sprintf("X%02d", i&0x1f)
	}
	return "", ""
}

var (
	amd64 = machine{"amd64", "x86_64", []string{"clwb", "clflushopt", "clflush", "sfence"}, decodeAMD64, "RIP", "RAX="}
	arm64 = machine{"arm64", "aarch64", []string{"dccvap", "dsb"}, decodeARM64, "PC", " PC="}
)

// An event is an executed instruction: "fence" behind lines, "Fence" in its own function,
// or one that writes back the line at an address.
type event struct {
	name string
	at   uint64
}

// The instructions that a CPU executes, with their addresses. Each line that a range
// touches is written back once, by its first byte, in order, and no other line is. A
// fence follows each piece. This holds for every alignment. The instruction is the best
// one that the CPU has.
func TestInstructions(t *testing.T) {
	for _, tt := range []struct {
		m    *machine
		cpu  string
		name string
	}{
		{&amd64, "max", "clwb"},
		{&amd64, "max,-clwb", "clflushopt"},
		{&amd64, "max,-clwb,-clflushopt", "clflush"},
		{&arm64, "max", "dc cvap"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, base, line := tt.m.run(t, tt.cpu, tt.name)
			var want []event
			var of []span
			for _, s := range spansOf(line) {
				events := tt.m.expect(tt.name, base, line, s)
				want = append(want, events...)
				of = append(of, slices.Repeat([]span{s}, len(events))...)
			}
			for i := range min(len(got), len(want)) {
				if got[i] != want[i] {
					t.Fatalf("%+v: %#x, not %#x; instruction %d, memory at %#x", of[i], got[i], want[i], i, base)
				}
			}
			require.Len(t, got, len(want))
		})
	}
}

// expect returns what a child must execute for s, if its memory is at base.
func (m *machine) expect(name string, base uint64, line int, s span) []event {
	events := []event{{name: "Fence"}}
	if s.n == 0 {
		return events
	}
	first, last := s.off/line, (s.off+s.n-1)/line
	for i := first; i <= last; i++ {
		events = append(events, event{name: name, at: base + uint64(i*line)})
		if i == last || (i-first+1)*line%pieceSize == 0 {
			events = append(events, event{name: "fence"})
		}
	}
	return events
}

// run runs a child on cpu and returns what it executed, where its memory lies (base) and
// the size of a line.
func (m *machine) run(t *testing.T, cpu, name string) (events []event, base uint64, line int) {
	qemu := emulator(t, m.emulator)
	bin := buildTests(t, m.goarch)
	places, filter := m.places(t, bin)
	log := filepath.Join(t.TempDir(), "log")
	child := func() (string, error) {
		// It logs the registers in front of each instruction in filter.
		cmd := exec.Command(qemu, "-cpu", cpu, "-d", "cpu,nochain", "-dfilter", filter, "-D", log, bin)
		// One instruction at a time. QEMU 8.1 renamed the option.
		cmd.Env = append(os.Environ(), "QEMU_SINGLESTEP=1", "QEMU_ONE_INSN_PER_TB=1", asChild+"=1")
		var out, errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errs
		if err := cmd.Run(); err != nil {
			return errs.String(), err
		}
		return out.String(), nil
	}
	out, err := child()
	if err != nil && name == "dc cvap" && strings.Contains(out, "SIGILL") {
		withoutCVAP(t, bin)
		out, err = child()
	}
	require.NoError(t, err, out)
	fields := strings.SplitN(strings.TrimSpace(out), " ", 3)
	require.Len(t, fields, 3, out)
	require.Equal(t, name, fields[2], "the method that the child detected")
	base, err = strconv.ParseUint(fields[0], 10, 64)
	require.NoError(t, err)
	line, err = strconv.Atoi(fields[1])
	require.NoError(t, err)
	return m.read(t, log, places), base, line
}

// A place is an instruction in the program.
type place struct {
	name, register string
}

// places finds the instructions that count in the assembly of program bin, and makes the
// emulator's filter from them.
func (m *machine) places(t *testing.T, bin string) (places map[uint64]place, filter string) {
	f, err := elf.Open(bin)
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	symbols, err := f.Symbols()
	require.NoError(t, err)
	text := f.Section(".text")
	require.NotNil(t, text)
	code, err := text.Data()
	require.NoError(t, err)
	places = make(map[uint64]place)
	var ranges []string
	for _, name := range m.funcs {
		i := slices.IndexFunc(symbols, func(s elf.Symbol) bool { return s.Name == "pmnbd/internal/flush."+name+".abi0" })
		require.GreaterOrEqual(t, i, 0, "no function %s", name)
		s := symbols[i]
		for at := s.Value; at < s.Value+s.Size; at++ {
			// decode also finds some inside other instructions. No CPU executes those.
			if what, register := m.decode(code[at-text.Addr:]); what != "" {
				if name == m.funcs[len(m.funcs)-1] {
					what = "Fence"
				}
				places[at] = place{what, register}
				ranges = append(ranges, fmt.Sprintf("%#x+1", at))
			}
		}
	}
	require.NotEmpty(t, ranges)
	return places, strings.Join(ranges, ",")
}

// read reads the emulator's log. A record has lines of fields such as RAX=0123.
func (m *machine) read(t *testing.T, log string, places map[uint64]place) (events []event) {
	f, err := os.Open(log)
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	var record, before []byte
	end := func() {
		// After a signal the emulator starts the interrupted instruction again, and logs
		// it again. Otherwise no two records are the same, because a register counts the
		// lines. Flags do not count: the emulator computes them only when it has to.
		record, _, _ = bytes.Cut(record, []byte(" RFL="))
		if len(record) > 0 && !bytes.Equal(record, before) {
			p := places[register(t, record, m.pc)]
			require.NotEmpty(t, p.name, "%s", record)
			e := event{name: p.name}
			if p.register != "" {
				e.at = register(t, record, p.register)
			}
			events = append(events, e)
		}
		record, before = before[:0], record
	}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if bytes.HasPrefix(lines.Bytes(), []byte(m.first)) {
			end()
		}
		record = append(append(record, ' '), lines.Bytes()...)
	}
	require.NoError(t, lines.Err())
	end()
	return events
}

// register returns the value of a register in a record.
func register(t *testing.T, record []byte, name string) uint64 {
	_, value, ok := bytes.Cut(record, []byte(" "+name+"="))
	require.True(t, ok, "no %s in %s", name, record)
	value, _, _ = bytes.Cut(value, []byte(" "))
	n, err := strconv.ParseUint(string(value), 16, 64)
	require.NoError(t, err)
	return n
}
