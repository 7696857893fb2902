package main

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/ublk"
)

// TestUblkLeft: if an earlier pmnbd left a block device, the export becomes that one again, or none. The writes that
// the kernel holds for it would go over newer ones by another block device (docs/rules.md).
func TestUblkLeft(t *testing.T) {
	const mine = ublkMark<<ublkMarkShift | 7
	const left = `export "log" is /dev/ublkb3 already: an earlier pmnbd left that device, and its I/O waits. Continue it (pmnbd attach --ublk log /dev/ublkb3, or serve --ublk log=/dev/ublkb3), or give up what its users have not flushed (pmnbd detach --force /dev/ublkb3)`
	for name, tt := range map[string]struct {
		number    int
		devices   map[int]uint64 // their identities
		fails     error          // of the look at all devices
		continues bool
		says      string
	}{
		"a number of the kernel's":   {number: ublk.Any},
		"that and others":            {number: ublk.Any, devices: map[int]uint64{0: mine + 1, 1: 7}},
		"a new one":                  {number: 4, devices: map[int]uint64{0: mine + 1}},
		"that of an earlier pmnbd":   {number: 3, devices: map[int]uint64{3: mine, 4: mine + 1}, continues: true},
		"beside it":                  {number: ublk.Any, devices: map[int]uint64{3: mine}, says: left},
		"a new one beside it":        {number: 4, devices: map[int]uint64{3: mine}, says: left},
		"another export's beside it": {number: 4, devices: map[int]uint64{3: mine, 4: mine + 1}, says: left},
		"one of two that were left":  {number: 4, devices: map[int]uint64{3: mine, 4: mine}, says: left},
		"another lineage":            {number: 3, devices: map[int]uint64{3: mine + 1}, says: "/dev/ublkb3: its server was another one"},
		"another program's":          {number: 3, devices: map[int]uint64{3: 7}, says: "/dev/ublkb3, of pid 5: it is somebody else's"},
		"nobody can tell":            {number: ublk.Any, fails: errors.New("no sysfs"), says: "no sysfs"},
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
		})
	}
}
