package nbd_test

import (
	"context"
	"fmt"
	"log"
	"net"
	"os"
	"path/filepath"

	"pmnbd/backend/mem"
	"pmnbd/nbd"
	"pmnbd/nbd/client"
)

// A program serves a device on a unix socket, and a client connects.
func Example() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	dev, err := mem.New(1 << 20)
	if err != nil {
		log.Fatal(err)
	}
	srv, err := nbd.New(nbd.Config{}, nbd.Export{Name: "disk", Device: dev})
	if err != nil {
		log.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(dir, "sock"))
	if err != nil {
		log.Fatal(err)
	}
	served := make(chan error)
	go func() { served <- srv.Serve(l) }()

	nc, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		log.Fatal(err)
	}
	c, err := client.New(nc, client.Config{Export: "disk"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("size:", c.Export().Size)
	if err := c.Close(); err != nil {
		log.Fatal(err)
	}

	if err := srv.Shutdown(context.Background()); err != nil {
		log.Fatal(err)
	}
	if err := <-served; err != nil {
		log.Fatal(err)
	}
	if err := dev.Close(); err != nil { // after Shutdown
		log.Fatal(err)
	}
	// Output: size: 1048576
}
