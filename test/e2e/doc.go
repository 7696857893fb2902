// Package e2e drives the real binaries, as people start them, with the clients
// that people have: nbdinfo, nbdcopy, qemu-io, qemu-img and fio. It exists to
// show on whole processes what the packages' own tests show on their parts: data
// that comes back, crashes, disk errors, exit codes.
//
// It builds pmnbd and pmnbd-target once, with the race detector if the tests
// have it. A test whose client is not installed is skipped and names the Debian
// package. It may import nbd/client; nothing imports it.
package e2e
