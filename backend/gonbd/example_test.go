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

// go-nbd's server on a device.
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
		nc, err := l.Accept() // a program takes many, each with a goroutine
		if err != nil {
			log.Fatal(err)
		}
		// Its end is an error, unless the client said goodbye.
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

	// The Backend first, then the Device that it is made of.
	if err := b.Close(); err != nil {
		log.Fatal(err)
	}
	if err := dev.Close(); err != nil {
		log.Fatal(err)
	}
	// Output: exports: [disk]
}
