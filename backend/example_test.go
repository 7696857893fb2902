package backend_test

import (
	"fmt"
	"log"

	"pmnbd/backend"
	"pmnbd/backend/mem"
)

// A client is a Sink that has one op outstanding.
type client struct{ done chan struct{} }

func (c *client) Complete(*backend.Op) { c.done <- struct{}{} }
func (c *client) Kick()                {} // there is no queue of replies
func (c *client) Gone() bool           { return false }

// A client writes to a device and makes the write durable.
func Example() {
	dev, err := mem.New(1 << 20)
	if err != nil {
		log.Fatal(err)
	}
	c := &client{done: make(chan struct{}, 1)}
	room := backend.NewAdmission(dev.Arenas())
	do := func(op *backend.Op) {
		op.Sink = c
		if err := room.Admit(op, nil); err != nil {
			log.Fatal(err)
		}
		dev.Submit([]*backend.Op{op})
		room.Unpin()
		dev.Post()
		if <-c.done; op.Err != nil {
			log.Fatal(op.Err)
		}
	}

	chunks, err := dev.Arenas().Write.Get(nil, 1, nil)
	if err != nil {
		log.Fatal(err)
	}
	n := copy(chunks[0].Bytes(), "persistent")
	do(&backend.Op{Cmd: backend.Write, Off: 4096, Len: uint64(n), Data: []backend.Span{{Chunk: chunks[0], Len: uint32(n)}}})
	chunks[0].Release()
	do(&backend.Op{Cmd: backend.Flush})

	chunks, err = dev.Arenas().Read.Get(nil, 1, nil)
	if err != nil {
		log.Fatal(err)
	}
	span := backend.Span{Chunk: chunks[0], Len: 10}
	do(&backend.Op{Cmd: backend.Read, Off: 4096, Len: 10, Data: []backend.Span{span}})
	fmt.Printf("%s\n", span.Bytes())
	chunks[0].Release()

	if err := dev.Close(); err != nil {
		log.Fatal(err)
	}
	// Output: persistent
}
