package main

import (
	"os"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestUsed(t *testing.T) {
	runtime.LockOSThread() // so that the thread lives as long as the test
	defer runtime.UnlockOSThread()
	pids := []int{os.Getpid(), os.Getpid()}
	before, err := used(pids)
	require.NoError(t, err)
	require.Contains(t, before.switches, os.Getpid())
	c := make(chan struct{})
	for range 50 { // each hand-over to a locked thread is a switch, and so is the way back
		go func() { c <- struct{}{} }()
		<-c
	}
	after, err := used(pids)
	require.NoError(t, err)
	require.NotZero(t, after.switched(before))
	require.LessOrEqual(t, after.front, after.cpu)
	require.GreaterOrEqual(t, after.cpu, before.cpu)

	_, err = used([]int{1 << 30})
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestSwitched(t *testing.T) {
	before := usage{switches: map[int]uint64{1: 10, 2: 5}}
	after := usage{switches: map[int]uint64{1: 12, 3: 4}} // 2 has ended, 3 is new
	require.EqualValues(t, 6, after.switched(before))
}
