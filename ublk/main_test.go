package ublk

import (
	"runtime"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

// The first goroutine gets the first thread.
func init() { runtime.LockOSThread() }

// onFirst is what TestMain has seen on the first thread: where it was, and where f of ownThread was.
var onFirst [2]int

func TestMain(m *testing.M) {
	onFirst[0] = unix.Gettid()
	ownThread(func() { onFirst[1] = unix.Gettid() })
	runtime.UnlockOSThread()
	goleak.VerifyTestMain(m)
}
