package remote_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"pmnbd/backend/gonbd"
	"pmnbd/backend/remote"
	"pmnbd/persist/region"
	"pmnbd/persist/target"
	"pmnbd/rdma/iwarp"
)

// A program that keeps its log in the memory of another machine.
func ExampleOpen() {
	addr, stop := serveRegion()
	defer stop()
	state, err := os.MkdirTemp("", "log-")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(state) }()

	ctx := context.Background()
	dev, err := remote.Open(ctx, "iwarp://"+addr+"/log", remote.WithStateDir(state),
		remote.AllowVolatile()) // for this example only: the region is anonymous memory
	if err != nil {
		log.Fatal(err)
	}
	b := gonbd.New(dev)
	if _, err := b.WriteAt([]byte("committed"), 4096); err != nil {
		log.Fatal(err)
	}
	if err := dev.Sync(ctx); err != nil { // one round trip, for any number of writes
		log.Fatal(err)
	}
	got := make([]byte, 9)
	if _, err := b.ReadAt(got, 4096); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s: %s\n", dev.Info().Description, got)

	if err := b.Close(); err != nil {
		log.Fatal(err)
	}
	if err := dev.Close(); err != nil { // flushes, and gives the region back
		log.Fatal(err)
	}
	// Output: region log, VOLATILE: FLUSH means visible at the target, and its contents are lost with the target's power: committed
}

// serveRegion is the other machine: what pmnbd-target does.
func serveRegion() (addr string, stop func()) {
	r, err := region.Open(region.PathMemfd, region.OpenOptions{Name: "log", CreateSize: 1 << 20, AllowVolatile: true})
	if err != nil {
		log.Fatal(err)
	}
	l, err := iwarp.New(iwarp.Config{}).Listen(context.Background(), "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	s := target.New(target.Config{}, []*region.Region{r})
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	return l.Addr(), func() {
		for _, err := range []error{s.Close(), <-served, r.Close()} {
			if err != nil {
				log.Fatal(err)
			}
		}
	}
}
