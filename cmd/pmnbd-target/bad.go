package main

import (
	"fmt"
	"strings"

	"pmnbd/cmd/internal/flags"
	"pmnbd/persist/target"
)

// shownBad is how many bad places people are shown.
const shownBad = 8

func badBytes(places []target.PlaceSnapshot) (n uint64) {
	for _, p := range places {
		n += p.Length
	}
	return n
}

// badText says in words what a medium has lost, and why there may be more; "" if there is nothing to say.
func badText(places []target.PlaceSnapshot, unknown string) string {
	var words []string
	if len(places) > 0 {
		var at []string
		for _, p := range places[:min(len(places), shownBad)] {
			at = append(at, fmt.Sprintf("%d+%d", p.Offset, p.Length))
		}
		if len(places) > shownBad {
			at = append(at, fmt.Sprintf("and %d more", len(places)-shownBad))
		}
		words = append(words, fmt.Sprintf("%s lost, requests there get an I/O error (offset+length in bytes): %s", flags.Size(badBytes(places)), strings.Join(at, " ")))
	}
	if unknown != "" {
		words = append(words, "there may be more: "+unknown)
	}
	return strings.Join(words, "; ")
}
