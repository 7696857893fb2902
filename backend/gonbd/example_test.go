package gonbd_test

import (
	"fmt"
	"log"
	"net"

	"github.com/pojntfx/go-nbd/pkg/client"
	"github.com/pojntfx/go-nbd/pkg/server"

	"pmnbd/backend/gonbd"
	"pmnbd/backend/mem"
)

// A program serves a device with go-nbd.
func Example() {
	dev, err := mem.New(1 << 20)
	if err != nil {
		log.Fatal(err)
	}
	b := gonbd.New(dev)

	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		nc, err := l.Accept() // a real program accepts many, and serves each on a goroutine
		if err != nil {
			log.Fatal(err)
		}
		// Handle returns an error unless the client has said that it leaves.
		_ = server.Handle(nc, []*server.Export{{Name: "disk", Backend: b}}, nil)
		_ = nc.Close()
	}()
	nc, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		log.Fatal(err)
	}
	names, err := client.List(nc)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("exports:", names)
	_, _ = nc.Close(), l.Close()
	<-ended

	// Close the Backend first, then its device.
	if err := b.Close(); err != nil {
		log.Fatal(err)
	}
	if err := dev.Close(); err != nil {
		log.Fatal(err)
	}
	// Output: exports: [disk]
}
