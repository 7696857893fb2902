// Package lab boots throw-away virtual machines and runs tests in them. A guest has RDMA
// devices in software, an emulated NVDIMM and the kernel's NBD client, and a test can cut its
// power. The host needs none of these.
//
// The package owns the guests: QEMU, the log, the end. It imports no other package of this
// module, so that every test may use it; its own tests import what they test.
//
// # How a test gets into a guest
//
// A guest sees the host's file system read-only beneath an overlay. So it finds the host's
// programs, this repository and the test binary that booted it. Run boots a guest that runs the
// same test of the same binary once more, and relays its output: a test in a guest passes,
// fails and skips like any other.
//
//	func TestDevdax(t *testing.T) {
//		nvdimm := lab.Memory(t, 64<<20) // on the host
//		lab.Run(t, lab.Guest{Setup: []string{"rxe", "devdax"}, NVDIMM: nvdimm}, func(t *testing.T) {
//			// in the guest: rxe is up, /dev/dax0.0 exists
//		})
//	}
//
// Cut does the same and ends with a power cut. A test that needs two guests at a time boots
// them with Start; see wire_test.go.
//
// The tests skip unless `make lab` or `make smoke` has prepared the kernel. docs/lab.md tells
// people how to use the lab.
package lab
