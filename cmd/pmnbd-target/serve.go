package main

import (
	"errors"
	"io"

	"pmnbd/cmd/internal/flags"
)

func runServe(_ []string, _, stderr io.Writer) int {
	return flags.Exit(stderr, "pmnbd-target serve", errors.New("not built in yet"))
}
