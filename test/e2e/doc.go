// Package e2e drives the real binaries with the clients that people use: nbdinfo, nbdcopy,
// qemu-io, qemu-img and fio. The tests of each package cover its parts. These cover whole
// processes: data that comes back, crashes, disk errors, exit codes.
//
// The tests build pmnbd and pmnbd-target once, with the race detector if they have it
// themselves. A test whose client is not installed skips and names the Debian package. No
// package may import this one.
package e2e
