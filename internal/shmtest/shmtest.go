// Package shmtest makes directories in memory for tests, where nothing waits for a disk and a region
// is of class volatile. It is only for this module.
package shmtest

import "os"

// Env names the environment variable with the directory in which Dir makes its own. A test that runs
// other tests sets it, and removes what they leave if they end by a panic.
const Env = "PMNBD_TEST_SHM"

// T is what Dir needs of a test. It is a testing.TB or a rapid.T.
type T interface {
	Helper()
	Fatalf(format string, args ...any)
	Cleanup(f func())
}

// Dir returns a new directory on a tmpfs, by default in /dev/shm. It goes when the test has ended.
func Dir(t T) string {
	t.Helper()
	in := os.Getenv(Env)
	if in == "" {
		in = "/dev/shm"
	}
	dir, err := os.MkdirTemp(in, "pmnbd-test-")
	if err != nil {
		t.Fatalf("make a directory in memory: %v", err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Fatalf("remove a directory in memory: %v", err)
		}
	})
	return dir
}
