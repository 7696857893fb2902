package nbd

import (
	"testing"

	"pmnbd/backend/backendtest"
	"pmnbd/nbd/client"
	"pmnbd/nbd/wire"
)

// BenchmarkServer measures the floor: a unix socket, this server, and a device that costs
// one copy. An operation of wflush1 is WRITE, reply, FLUSH, reply.
func BenchmarkServer(b *testing.B) {
	const size = 4096
	data, sink := backendtest.Pattern(128<<10, 1), make([]byte, 128<<10)
	write := func(n int, flags wire.CommandFlags) func(*client.Client, uint32, uint64) {
		return func(c *client.Client, tag uint32, off uint64) { c.Write(tag, off, data[:n], flags) }
	}
	read := func(n int) func(*client.Client, uint32, uint64) {
		return func(c *client.Client, tag uint32, off uint64) { c.Read(tag, off, sink[:n]) }
	}
	flush := func(c *client.Client, tag uint32, _ uint64) { c.Flush(tag) }
	for _, bm := range []struct {
		name  string
		depth int
		bytes int
		ops   []func(*client.Client, uint32, uint64) // each after the reply to the one before
	}{
		{"write-qd1", 1, size, []func(*client.Client, uint32, uint64){write(size, 0)}},
		{"fua-qd1", 1, size, []func(*client.Client, uint32, uint64){write(size, wire.CmdFlagFUA)}},
		{"read-qd1", 1, size, []func(*client.Client, uint32, uint64){read(size)}},
		{"wflush1-qd1", 1, size, []func(*client.Client, uint32, uint64){write(size, 0), flush}},
		{"write-qd32", 32, size, []func(*client.Client, uint32, uint64){write(size, 0)}},
		{"read-qd32", 32, size, []func(*client.Client, uint32, uint64){read(size)}},
		{"seqwrite", 8, 128 << 10, []func(*client.Client, uint32, uint64){write(128<<10, 0)}},
		{"seqread", 8, 128 << 10, []func(*client.Client, uint32, uint64){read(128 << 10)}},
	} {
		b.Run(bm.name, func(b *testing.B) {
			f := serve(b, newMem(b, 64<<20))
			c := f.client()
			b.SetBytes(int64(bm.bytes))
			b.ReportAllocs()
			done := 0
			for b.Loop() {
				for _, op := range bm.ops {
					if bm.depth == 1 {
						op(c, 0, uint64(done*bm.bytes)%(64<<20))
						exchange(b, c, 1)
						continue
					}
					// depth operations are one batch.
					op(c, uint32(done%bm.depth), uint64(done*bm.bytes)%(64<<20))
					if done%bm.depth == bm.depth-1 {
						exchange(b, c, bm.depth)
					}
				}
				done++
			}
			if rest := done % bm.depth; rest > 0 {
				exchange(b, c, rest)
			}
		})
	}
}

// exchange sends what is queued and receives n replies.
func exchange(b *testing.B, c *client.Client, n int) {
	if err := c.Send(); err != nil {
		b.Fatal(err)
	}
	for range n {
		if _, errno, err := c.Recv(); errno != 0 || err != nil {
			b.Fatal(errno, err)
		}
	}
}
