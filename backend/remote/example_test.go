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
	"pmnbd/rdma"
	"pmnbd/rdma/iwarp"
)

// A program that keeps its log in the memory of another machine.
func ExampleDial() {
	provider := iwarp.New(iwarp.Config{})
	addr, stop := serveRegion(provider)
	defer stop()
	state, err := os.MkdirTemp("", "log-")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(state) }()

	dev, err := remote.Dial(context.Background(), remote.Config{
		Provider: provider, Addr: addr, Region: "log",
		ID:            [16]byte{1}, // this machine's, kept over restarts
		StateDir:      state,
		AllowVolatile: true, // for this example only: the region is anonymous memory
	})
	if err != nil {
		log.Fatal(err)
	}
	b := gonbd.New(dev)
	if _, err := b.WriteAt([]byte("committed"), 4096); err != nil {
		log.Fatal(err)
	}
	if err := b.Sync(); err != nil { // one round trip, for any number of writes
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
func serveRegion(provider rdma.Provider) (addr string, stop func()) {
	r, err := region.Open(region.PathMemfd, region.OpenOptions{Name: "log", CreateSize: 1 << 20, AllowVolatile: true})
	if err != nil {
		log.Fatal(err)
	}
	l, err := provider.Listen(context.Background(), "127.0.0.1:0")
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
