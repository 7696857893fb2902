package ublk

import (
	"encoding/hex"
	"errors"
	"os"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestNumbers compares with what the macros of Linux's header make.
func TestNumbers(t *testing.T) {
	for name, tt := range map[string]struct{ got, want uint64 }{
		"UBLK_U_CMD_GET_DEV_INFO":        {cmdGetInfo, 0x80207502},
		"UBLK_U_CMD_ADD_DEV":             {cmdAdd, 0xc0207504},
		"UBLK_U_CMD_START_DEV":           {cmdStart, 0xc0207506},
		"UBLK_U_CMD_GET_PARAMS":          {cmdGetParams, 0x80207509},
		"UBLK_U_CMD_GET_FEATURES":        {cmdFeatures, 0x80207513},
		"UBLK_U_IO_FETCH_REQ":            {ioFetch, 0xc0107520},
		"UBLK_U_IO_COMMIT_AND_FETCH_REQ": {ioCommit, 0xc0107521},
		"features":                       {features, 0xd8},
		"first payload":                  {uint64(payloadOffset(0, 0)), 0x80000000},
		"a payload":                      {uint64(payloadOffset(3, 5)), 0x80000000 + 3<<41 + 5<<25},
	} {
		require.Equal(t, tt.want, tt.got, name)
	}
}

// littleEndian skips a test whose vectors are for such machines.
func littleEndian(t *testing.T) {
	if native.Uint16([]byte{1, 0}) != 1 {
		t.Skip("the vectors are little-endian")
	}
}

func TestLayouts(t *testing.T) {
	littleEndian(t)
	b := make([]byte, 128)
	putControl(b, 7, 0x1122, 0xaabbccdd00, 64)
	require.Equal(t, "07000000ffff400000ddccbbaa00000022110000000000000000000000000000", hex.EncodeToString(b[:controlSize]))
	putIO(b, 2, 5, -5)
	require.Equal(t, "02000500fbffffff0000000000000000", hex.EncodeToString(b[:ioSize]))
	in := info{queues: 2, depth: 128, state: 1, maxIO: 1 << 20, id: 3, pid: 77, flags: features, identity: 0x706d_0102_0304_0506}
	in.put(b)
	require.Equal(t, "0200800001000000"+"00001000"+"03000000"+"4d00000000000000"+"d800000000000000"+"0605040302016d70"+"000000000000000000000000000000000000000000000000",
		hex.EncodeToString(b[:infoSize]))
	require.Equal(t, in, getInfo(b))
	p := params{readOnly: true, sectors: 1 << 33, maxIO: 2048, maxZero: 4096}
	p.put(b)
	require.Equal(t, "40000000"+"03000000"+"0d000000"+"090c120c"+"00080000"+"00000000"+"0000000002000000"+"0000000000000000"+
		"00000000"+"00100000"+"00002000"+"00100000"+"01000000"+"00000000", hex.EncodeToString(b[:paramsSize]))
	require.Equal(t, p, getParams(b))
}

func TestRefusedRing(t *testing.T) {
	for errno, want := range map[unix.Errno]string{
		unix.EPERM:  "make an io_uring: this process may not: look at sysctl kernel.io_uring_disabled, and in a container at its seccomp profile: io_uring_setup: operation not permitted",
		unix.ENOSYS: "make an io_uring: the kernel has none, or a container's seccomp profile hides it: io_uring_setup: function not implemented",
		unix.ENOMEM: "make an io_uring: io_uring_setup: cannot allocate memory",
	} {
		err := refusedRing(os.NewSyscallError("io_uring_setup", errno))
		require.EqualError(t, err, want)
		require.ErrorIs(t, err, errno)
	}
}

// testRing makes a ring, or skips the test where the kernel has none.
func testRing(t *testing.T, n uint32) *ring {
	runtime.LockOSThread()
	r, err := newRing(n, true)
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) || errors.Is(err, unix.EINVAL) {
		t.Skipf("this kernel has no io_uring for us: %v", err)
	}
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, r.close())
		runtime.UnlockOSThread()
	})
	return r
}

// TestRing goes around a ring several times: what is prepared reaches the kernel in order, and comes back.
func TestRing(t *testing.T) {
	r := testRing(t, 4)
	event, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	require.NoError(t, err)
	defer func() { require.NoError(t, unix.Close(event)) }()
	into, err := wakeMemory()
	require.NoError(t, err)
	for round := range uint64(10) {
		for i := range uint64(4) {
			r.read(event, into, round<<8|i)
		}
		require.Panics(t, func() { r.prepare() }, "full")
		require.NoError(t, r.enter(false))
		_, _, ok := r.next()
		require.False(t, ok, "nothing was written")
		var came []uint64
		for range 4 {
			_, err := unix.Write(event, []byte{1, 0, 0, 0, 0, 0, 0, 0})
			require.NoError(t, err)
			for {
				require.NoError(t, r.enter(true))
				if user, result, ok := r.next(); ok {
					require.EqualValues(t, 8, result)
					came = append(came, user)
					break
				}
			}
		}
		require.ElementsMatch(t, []uint64{round << 8, round<<8 | 1, round<<8 | 2, round<<8 | 3}, came)
	}
}

// TestRingCommand: a command for a file that knows none comes back with an error, and with its user data.
func TestRingCommand(t *testing.T) {
	r := testRing(t, 1)
	null, err := unix.Open("/dev/zero", unix.O_RDWR|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	defer func() { require.NoError(t, unix.Close(null)) }()
	require.Len(t, r.command(null, ioFetch, 42), 80)
	require.NoError(t, r.enter(true))
	user, result, ok := r.next()
	require.True(t, ok)
	require.EqualValues(t, 42, user)
	require.Negative(t, result)
}

// TestWake: wake ends an enter that waits, and is no completion of a request.
func TestWake(t *testing.T) {
	r := testRing(t, 2)
	event, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	require.NoError(t, err)
	defer func() { require.NoError(t, unix.Close(event)) }()
	into, err := wakeMemory()
	require.NoError(t, err)
	p := &linuxPort{ring: r, event: event, woken: into}
	p.listen()
	for range 3 {
		go p.wake()
		for woken := false; !woken; { // a signal may end a wait
			require.NoError(t, p.enter(true))
			woken = r.cqHead.load() != r.cqTail.load()
		}
		_, ok := p.next()
		require.False(t, ok)
	}
	require.Zero(t, testing.AllocsPerRun(10, func() {
		p.wake()
		if p.enter(true) != nil {
			panic("broken")
		}
		p.next()
	}))
}

// TestDescriptor reads descriptors where the kernel has them.
func TestDescriptor(t *testing.T) {
	m, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	require.NoError(t, err)
	defer func() { require.NoError(t, unix.Munmap(m)) }()
	at := m[3*descriptorSize:]
	native.PutUint32(at, opWrite|flagFUA)
	native.PutUint32(at[4:], 8)
	native.PutUint64(at[8:], 1<<40)
	p := &linuxPort{descriptors: m}
	require.Equal(t, descriptor{opWrite | flagFUA, 8, 1 << 40}, p.descriptor(3))
	require.Panics(t, func() { p.descriptor(1000) })
}
