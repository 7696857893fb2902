//go:build race

package sockio

import "syscall"

// Package syscall tells the race detector that what was written before a write(2) comes before
// what is read after a read(2). Here that is done by calls that move nothing.

func sending(fd int) { _, _ = syscall.Write(fd, nil) }

func received(fd int, p []byte) {
	_, _ = syscall.Read(fd, nil)
	copy(p, p) // the kernel's writes are ours
}
