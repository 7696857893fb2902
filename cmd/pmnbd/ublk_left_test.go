package main

import (
	"errors"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/cmd/internal/command"
	"pmnbd/ublk"
)

// exitCode is the code that a command exits with after err.
func exitCode(t *testing.T, err error) int {
	t.Helper()
	failing := command.Command{Name: "pmnbd", Commands: []command.Command{{Name: "fail", Run: func(*command.Call) error { return err }}}}
	return failing.Main([]string{"fail"}, io.Discard, io.Discard)
}

// TestUblkLeft: if an earlier pmnbd left a block device, the export becomes that one again, or none. The writes that
// the kernel holds for it would go over newer ones by another block device (docs/rules.md). A person has to decide
// about it, so the code keeps a service manager from trying again.
func TestUblkLeft(t *testing.T) {
	const mine = ublkMark<<ublkMarkShift | 7
	const left = `export "log" is /dev/ublkb3 already: an earlier pmnbd left that device, and its I/O waits. Continue it (pmnbd attach --ublk log /dev/ublkb3, or serve --ublk log=/dev/ublkb3), or give up what its users have not flushed (pmnbd detach --force /dev/ublkb3)`
	const several = `export "log" is /dev/ublkb3 and /dev/ublkb4 already: earlier pmnbds left these devices, and their I/O waits. Only one of them can continue. Detach each of the others with pmnbd detach --force, which gives up what its users have not flushed`
	for name, tt := range map[string]struct {
		number    int
		devices   map[int]uint64 // their identities
		fails     error          // of the look at all devices
		continues bool
		says      string
		code      int
	}{
		"a number of the kernel's":   {number: ublk.Any},
		"that and others":            {number: ublk.Any, devices: map[int]uint64{0: mine + 1, 1: 7}},
		"a new one":                  {number: 4, devices: map[int]uint64{0: mine + 1}},
		"that of an earlier pmnbd":   {number: 3, devices: map[int]uint64{3: mine, 4: mine + 1}, continues: true},
		"beside it":                  {number: ublk.Any, devices: map[int]uint64{3: mine}, says: left, code: exitLoss},
		"a new one beside it":        {number: 4, devices: map[int]uint64{3: mine}, says: left, code: exitLoss},
		"another export's beside it": {number: 4, devices: map[int]uint64{3: mine, 4: mine + 1}, says: left, code: exitLoss},
		"the first of two":           {number: 3, devices: map[int]uint64{3: mine, 4: mine}, says: several, code: exitLoss},
		"the second of two":          {number: 4, devices: map[int]uint64{3: mine, 4: mine}, says: several, code: exitLoss},
		"beside two":                 {number: ublk.Any, devices: map[int]uint64{3: mine, 4: mine}, says: several, code: exitLoss},
		"another lineage":            {number: 3, devices: map[int]uint64{3: mine + 1}, says: "/dev/ublkb3: its server was another one", code: exitLoss},
		"another program's":          {number: 3, devices: map[int]uint64{3: 7}, says: "/dev/ublkb3, of pid 5: it is somebody else's", code: 1},
		"nobody can tell":            {number: ublk.Any, fails: errors.New("no sysfs"), says: "no sysfs", code: 1},
	} {
		t.Run(name, func(t *testing.T) {
			k := ublkKernel{
				find: func(identity uint64) (found []int, err error) {
					for n := range 5 {
						if tt.devices[n] == identity {
							found = append(found, n)
						}
					}
					return found, tt.fails
				},
				inspect: func(n int) (ublk.State, error) {
					if tt.devices[n] == 0 {
						return ublk.State{}, ublk.ErrNone
					}
					return ublk.State{Identity: tt.devices[n], PID: 5}, nil
				},
			}
			continues, err := k.continues("log", tt.number, mine)
			require.Equal(t, tt.continues, continues)
			if tt.says == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tt.says)
			require.Equal(t, tt.code, exitCode(t, err))
		})
	}
}
