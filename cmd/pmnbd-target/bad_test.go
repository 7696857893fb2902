package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/persist/target"
)

func TestBadText(t *testing.T) {
	many := make([]target.PlaceSnapshot, shownBad+2)
	for i := range many {
		many[i] = target.PlaceSnapshot{Offset: uint64(i) * 8192, Length: 4096}
	}
	for name, c := range map[string]struct {
		places  []target.PlaceSnapshot
		unknown string
		says    string
	}{
		"nothing": {nil, "", ""},
		"two":     {many[1:3], "", "8K lost, requests there get an I/O error (offset+length in bytes): 8192+4096 16384+4096"},
		"many":    {many, "", "40K lost, requests there get an I/O error (offset+length in bytes): 0+4096 8192+4096 16384+4096 24576+4096 32768+4096 40960+4096 49152+4096 57344+4096 and 2 more"},
		"unknown": {nil, "only root can read it", "there may be more: only root can read it"},
		"both":    {many[:1], "x", "4K lost, requests there get an I/O error (offset+length in bytes): 0+4096; there may be more: x"},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.says, badText(c.places, c.unknown)) })
	}
}
