package iwarp_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"golang.org/x/sys/unix"

	"pmnbd/rdma"
	"pmnbd/rdma/iwarp"
)

// A program writes into another's memory. Here both are one program.
func Example() {
	p := iwarp.New(iwarp.Config{})
	l, err := p.Listen(context.Background(), "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	remote := make(chan rdma.Remote, 1)
	served := make(chan error, 1)
	go func() { served <- serve(l, remote) }()

	d, err := p.OpenDomain(context.Background(), l.Addr())
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = d.Close() }()
	c, err := d.Dial(context.Background(), l.Addr(), rdma.ConnConfig{}, nil)
	if err != nil {
		log.Fatal(err)
	}
	mem := mapped()
	r, err := d.Register(mem, 0)
	if err != nil {
		log.Fatal(err)
	}
	n := copy(mem, "hello")
	_, err = c.Post([]rdma.WorkRequest{
		{Op: rdma.OpWrite, Local: rdma.SGE{Region: r, Len: uint32(n)}, Remote: <-remote},
		{Op: rdma.OpSend, Inline: []byte("look"), Signaled: true},
	})
	if err == nil {
		err = wait(c)
	}
	if err != nil {
		log.Fatal(err)
	}
	if err := errors.Join(<-served, c.Close()); err != nil {
		log.Fatal(err)
	}
	// Output: hello
}

// serve takes one connection, lets its peer write, and prints what the peer has written.
func serve(l rdma.Listener, remote chan<- rdma.Remote) error {
	req, err := l.Accept()
	if err != nil {
		return err
	}
	d, err := req.OpenDomain()
	if err != nil {
		return err
	}
	defer func() { _ = d.Close() }()
	mem := mapped()
	r, err := d.Register(mem, rdma.RemoteWrite)
	if err != nil {
		return err
	}
	// A receive for the message behind the Write.
	c, err := req.Accept(d, rdma.ConnConfig{}, []rdma.WorkRequest{{Local: rdma.SGE{Region: r, Off: 64, Len: 64}}})
	if err != nil {
		return err
	}
	remote <- rdma.Remote{Key: r.Key, Addr: r.Base} // a real program sends it in a message
	if err := wait(c); err != nil {
		return err
	}
	fmt.Println(string(mem[:5]))
	return c.Close()
}

// wait waits for one completion. A program that goes on has a goroutine that loops here.
func wait(c rdma.Conn) error {
	var done [1]rdma.Completion
	for {
		n, err := c.Poll(done[:])
		if n > 0 || err != nil {
			return err
		}
		if err := c.Wait(); err != nil {
			return err
		}
	}
}

// mapped maps a page: registered memory is never Go heap.
func mapped() []byte {
	mem, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		log.Fatal(err)
	}
	return mem
}
