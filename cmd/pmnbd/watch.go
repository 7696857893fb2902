package main

import (
	"context"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"pmnbd/cmd/internal/daemon"
	"pmnbd/cmd/internal/status"
	"pmnbd/cmd/pmnbd/internal/report"
)

// watch shows what happens, again and again until a signal ends it: on a terminal in place,
// elsewhere one text after the other. find asks the processes.
func watch(stdout io.Writer, every time.Duration, find func(context.Context) ([]status.Found[report.Document], error)) error {
	ctx, stop := daemon.UntilSignal()
	defer stop()
	clear := ""
	if f, ok := stdout.(*os.File); ok {
		if _, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS); err == nil {
			clear = "\x1b[H\x1b[2J"
		}
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	var before map[int]*report.Watched // by process
	for {
		found, err := find(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if len(found) == 0 {
			return err
		}
		now := map[int]*report.Watched{}
		var texts []string
		if err != nil { // one of them does not answer
			texts = append(texts, err.Error()+"\n")
		}
		for i := range found {
			d := &report.Watched{Document: found[i].Document, At: time.Now()}
			old := before[d.PID]
			if old == nil { // what it has counted since it began
				old = &report.Watched{At: d.Started}
			}
			now[d.PID] = d
			texts = append(texts, d.Since(old))
		}
		before = now
		if _, err := io.WriteString(stdout, clear+strings.Join(texts, "\n")+"\n"); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}
