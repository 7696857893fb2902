// Package lab boots throw-away virtual machines and runs tests in them: RDMA devices
// in software, an emulated NVDIMM, the kernel's NBD client and power cuts, on a
// machine that has none of them.
//
// It exists because the product is proven where it runs, against the kernel. It owns
// the guests: QEMU, the log, the end. It imports nothing of ours, so that every test
// may use it; its own tests import what they test.
//
// # How a test gets into a guest
//
// A guest sees the host's file system read-only beneath an overlay, so it finds the
// host's programs, this repository and the test binary that booted it. Run boots a
// guest that runs the same binary again, for the same test only, and passes on what it
// prints: results are those of go test.
//
//	func TestDevdax(t *testing.T) {
//		nvdimm := lab.Memory(t, 64<<20) // on the host
//		lab.Run(t, lab.Guest{Setup: []string{"rxe", "devdax"}, NVDIMM: nvdimm}, func(t *testing.T) {
//			// in the guest: rxe is up, /dev/dax0.0 is there
//		})
//	}
//
// For a power cut or two guests at a time, Boot them and Kill one; see smoke_test.go
// and wire_test.go.
//
// Without `make lab` or `make smoke`, which prepare the kernel, the tests skip.
// docs/lab.md is for people.
package lab
