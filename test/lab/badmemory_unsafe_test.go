package lab_test

import (
	"os"
	"runtime/debug"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pmnbd/test/lab"
)

// poison takes a page of a file away as a machine check does that finds its memory broken.
func poison(t *testing.T, file string, off int64) {
	t.Helper()
	f, err := os.OpenFile(file, os.O_RDWR, 0)
	require.NoError(t, err)
	page, err := unix.Mmap(int(f.Fd()), off, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
	require.NoError(t, err)
	func() {
		defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
		defer func() { _ = recover() }() // touching the page is a fault in this process
		_, _, errno := unix.RawSyscall(unix.SYS_MADVISE, uintptr(unsafe.Pointer(&page[0])), uintptr(len(page)), unix.MADV_HWPOISON)
		require.Zero(t, errno)
	}()
	require.NoError(t, unix.Munmap(page))
	require.NoError(t, f.Close())
}

// TestBadPlacesOfMemory breaks a page of a region of class protected. The kernel makes no page of tmpfs good
// that somebody uses, so reading and writing that block fails. Nothing else does. It can be repaired by
// hand.
func TestBadPlacesOfMemory(t *testing.T) {
	g := lab.Guest{Setup: []string{"fsdax", "nbd"}, NVDIMM: lab.Memory(t, 256<<20)}
	lab.Run(t, g, func(t *testing.T) {
		const at = "iwarp://127.0.0.1:7204"
		sh(t, "umount /mnt/pmem; mkdir -p "+protectedSave+"; mount /dev/pmem0 "+protectedSave)
		sh(t, "pmnbd-target region create disk "+protectedMemory+" --class protected --save "+protectedSave+" --size 48M; head -c 48M /dev/urandom >/run/noise")
		arguments := []string{"--insecure-no-auth", "--listen", at, "--region", "disk=" + protectedMemory + ",save=" + protectedSave}
		target := serve(t, "pmnbd-target", arguments...)
		initiate(t, at)
		sh(t, attach+badScript+"fill 0 6144")
		poison(t, protectedMemory, 2<<20+2048*4096)
		sh(t, badScript+`
			others & beside=$!
			lost 2048; lost 2048; same 2047 1; same 2049 1; same 0 2048
			wait $beside
			pmnbd-target status | tee /run/status
			grep -E 'bad places.* 8388608\+4096$' /run/status
			if fill 2048 1; then exit 1; fi
			others
			lost 2048; same 2049 1
			pmnbd-target status --json | jq -e '.[0].regions[0].failed == false'
			[ $(pmnbd status --json | jq -r '.[0].exports[0].device.state') = open ]
			if pmnbd-target save >/run/saved; then cat /run/saved; exit 1; fi
			cat /run/saved
			grep -q 'lost 4096 bytes at 8388608' /run/saved
			pmnbd-target resume`)
		target.stop()
		target = serve(t, "pmnbd-target", arguments...) // which finds the place again
		sh(t, badScript+`
			pmnbd-target status | grep -E 'bad places.* 8388608\+4096$'
			lost 2048; same 2047 1; same 2049 1; same 0 2048`)
		target.stop()
		sh(t, "fallocate --punch-hole --offset $((2 << 20 | 2048 * 4096)) --length 4096 "+protectedMemory)
		serve(t, "pmnbd-target", arguments...)
		sh(t, badScript+`
			while pmnbd status | grep -q 'bad places'; do sleep 0.05; done # until the session is back
			fill 2048 1; same 0 6144
			pmnbd-target save`)
	})
}
