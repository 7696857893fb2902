package report

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"pmnbd/backend/remote"
	"pmnbd/nbd"
)

// Rates and latencies are those since the document before, by client and lane too.
func TestWatch(t *testing.T) {
	began := time.Unix(1000, 0).UTC()
	before := &Watched{Document: sample(), At: began}
	now := &Watched{Document: sample(), At: began.Add(2 * time.Second)}
	for i := range 2 {
		before.Exports[i].Device.Since, now.Exports[i].Device.Since = began, began
	}
	was, is := &before.Exports[0], &now.Exports[0]
	for range 100 {
		was.Latency.Write.Note(time.Second) // long ago
		is.Latency.Write.Note(time.Second)
	}
	for i := range 1000 {
		is.Latency.Write.Note(time.Duration(i) * time.Microsecond)
	}
	for range 10 {
		is.Latency.Flush.Note(time.Millisecond)
		is.Device.Targets[0].Barriers.Note(500 * time.Microsecond)
	}
	is.Latency.FUA.Note(46 * time.Second)
	is.Commands.Write.Bytes += 8 << 20
	is.Device.Lanes[0].Posted += 2000
	is.Device.Targets[0].Outages.Note(3 * time.Second)
	is.Device.Targets[0].DoubtLeft = 1 << 30
	was.Clients = []nbd.Client{{Name: "of /tmp/s", Number: 4, Commands: nbd.Commands{Write: nbd.Count{Requests: 50}}}}
	is.Clients = []nbd.Client{
		{Name: "of /tmp/s", Number: 4, Commands: nbd.Commands{Write: nbd.Count{Requests: 1050}}, Latency: is.Latency},
		{Name: "of /tmp/s", Number: 5, Commands: nbd.Commands{Read: nbd.Count{Requests: 2}}},
	}
	require.Equal(t, `export log: serving since 1970-01-01T00:16:40Z
                             /s  bytes/s     p50     p99  slowest
  READ                        0        0       -       -        -
  WRITE                     500       4M   581µs  1.16ms   1.16ms
  FLUSH                       5        -  1.16ms  1.16ms   1.16ms
  FUA                         0        -   53.8s   53.8s    53.8s
  barrier at 10.0.0.2:7204    5        -   581µs   581µs    581µs
  window    3M of 80M (3 %), 12 of 32768 entries (0 %); 48K not flushed
  outages   1 of 10.0.0.2:7204, 3s in all, the longest 3.36s
  doubt     10.0.0.2:7204 has 1G left to flush
  lane 0    10.0.0.2:7204, 1000 work requests/s, 5 outstanding
  client 4  of /tmp/s, READ 0/s, WRITE 500/s, FLUSH and FUA 5/s, p99 of these 53.8s
  client 5  of /tmp/s, READ 1/s, WRITE 0/s, FLUSH and FUA 0/s, p99 of these -
`, (&Watched{Document: Document{Header: now.Header, Exports: now.Exports[:1]}, At: now.At}).Since(before))

	// A process that is new, or began anew.
	text := now.Since(&Watched{At: began})
	require.Contains(t, text, "export data: serving")
	require.Contains(t, text, "WRITE                     550 ")
	now.Starting = []Starting{{Name: "late", Waits: "waits for B"}}
	require.Contains(t, now.Since(before), "export late: waiting: it is starting: waits for B")
	again := &Watched{Document: before.Document, At: now.At.Add(2 * time.Second)}
	require.Contains(t, again.Since(now), "WRITE                     50 ", "fewer than before: it began anew")

	is.Device.State, is.Device.WaitingSince, is.Device.Cause = remote.StateWaiting, &began, "connection lost"
	require.Contains(t, now.Since(before), "export log: waiting since 1970-01-01T00:16:40Z: ")
}
