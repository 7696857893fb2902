package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Who ends a drain early is told what to do only where there is something to do.
func TestNotDrained(t *testing.T) {
	require.EqualError(t, notDrained("not drained in 1s", 4096),
		"not drained in 1s: 4096 bytes that were acknowledged are not flushed: start pmnbd again on this host before it reboots, or they are lost")
	none := notDrained("interrupt while draining", 0)
	require.ErrorContains(t, none, "interrupt while draining: nothing is lost")
	require.NotContains(t, none.Error(), "reboots")
}
