package iwarp

import (
	"testing"

	"pmnbd/rdma"
)

func BenchmarkWrite4K(b *testing.B) {
	for _, depth := range []int{1, 32} {
		b.Run(map[int]string{1: "depth 1", 32: "batches of 32"}[depth], func(b *testing.B) {
			e := connect(b, 1<<20, rdma.ConnConfig{})
			var wrs []rdma.WorkRequest
			for i := range depth {
				off := uint64(i) << 12
				wrs = append(wrs, rdma.WorkRequest{Op: rdma.OpWrite, Local: rdma.SGE{Region: e.ra, Off: off, Len: 4096}, Remote: at(e.rb, off)})
			}
			pingPong(b, e, wrs, depth)
		})
	}
}

func BenchmarkSendPingPong(b *testing.B) {
	pingPong(b, connect(b, 1<<20, rdma.ConnConfig{}), nil, 1)
}

// pingPong posts wrs and a Send together, which the peer answers by a Send. A round is per
// operations.
func pingPong(b *testing.B, e *ends, wrs []rdma.WorkRequest, per int) {
	msg := make([]byte, 64)
	wrs = append(wrs, rdma.WorkRequest{ID: 1, Op: rdma.OpSend, Inline: msg, Signaled: true})
	recvA := []rdma.WorkRequest{{ID: 2, Local: rdma.SGE{Region: e.ra, Off: 1 << 19, Len: 64}}}
	recvB := []rdma.WorkRequest{{ID: 2, Local: rdma.SGE{Region: e.rb, Off: 1 << 19, Len: 64}}}
	if e.b.PostRecv(recvB) != nil {
		b.Fatal("no receive")
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		ack := []rdma.WorkRequest{{ID: 1, Op: rdma.OpSend, Inline: msg, Signaled: true}}
		var cs [4]rdma.Completion
		for {
			n, err := e.b.Poll(cs[:])
			if n == 0 && err == nil {
				err = e.b.Wait()
			}
			if err != nil {
				return
			}
			for _, c := range cs[:n] {
				if c.Op == rdma.OpRecv {
					_ = e.b.PostRecv(recvB)
					_, _ = e.b.Post(ack)
				}
			}
		}
	}()
	b.ReportAllocs()
	b.ResetTimer()
	for i := 0; i < b.N; i += per {
		if e.a.PostRecv(recvA) != nil {
			b.Fatal("no receive")
		}
		post(b, e.a, wrs)
		next(b, e.a, 1)
		next(b, e.a, 2)
	}
	b.StopTimer()
	if err := e.a.Close(); err != nil {
		b.Fatal(err)
	}
	<-done
}

func BenchmarkRead4K(b *testing.B) {
	for _, depth := range []int{1, 32} {
		b.Run(map[int]string{1: "depth 1", 32: "batches of 32"}[depth], func(b *testing.B) {
			e := connect(b, 1<<20, rdma.ConnConfig{MaxReads: 32, MaxReadsIn: 32})
			var wrs []rdma.WorkRequest
			for i := range depth {
				off := uint64(i) << 12
				wrs = append(wrs, rdma.WorkRequest{ID: 1, Op: rdma.OpRead, Local: rdma.SGE{Region: e.ra, Off: off, Len: 4096}, Remote: at(e.rb, off)})
			}
			done := make(chan struct{})
			go func() {
				defer close(done)
				_ = e.b.Wait()
			}()
			b.ReportAllocs()
			b.ResetTimer()
			for i := 0; i < b.N; i += depth {
				post(b, e.a, wrs)
				for range wrs {
					next(b, e.a, 1)
				}
			}
			b.StopTimer()
			if err := e.a.Close(); err != nil {
				b.Fatal(err)
			}
			<-done
		})
	}
}
