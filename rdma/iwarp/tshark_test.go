package iwarp

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/rdma"
	"pmnbd/rdma/rdmatest"
)

// A capture records what a TCP proxy passes on, as a pcap file. The bytes are those on the
// wire; it makes up the Ethernet, IPv4 and TCP headers around them.
type capture struct {
	mu   sync.Mutex
	pcap []byte
	sent [2][]byte // by initiator and responder
	seq  [2]uint32 // of initiator and responder
	usec uint32
}

var be, le = binary.BigEndian, binary.LittleEndian

func newCapture() *capture {
	c := &capture{seq: [2]uint32{1000, 2000}}
	for _, v := range []uint32{0xa1b2c3d4, 2 | 4<<16, 0, 0, 1 << 18, 1} { // version 2.4, Ethernet
		c.pcap = le.AppendUint32(c.pcap, v)
	}
	const syn, ack = 0x02, 0x10
	c.packet(0, syn, nil)
	c.packet(1, syn|ack, nil)
	c.packet(0, ack, nil)
	return c
}

const (
	tcpSYN, tcpPSHACK = 0x02, 0x18
	// packetMax is how many bytes fit an IPv4 packet beside the headers.
	packetMax = 1<<16 - 1 - 40
)

// packet records one packet that side from sent.
func (c *capture) packet(from int, flags byte, p []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	hosts := [2]byte{1, 2}
	ports := [2]uint16{40000, 7204}
	to := 1 - from

	b := []byte{2, 0, 0, 0, 0, hosts[to], 2, 0, 0, 0, 0, hosts[from], 8, 0} // Ethernet
	ip := []byte{0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, hosts[from], 10, 0, 0, hosts[to]}
	be.PutUint16(ip[2:], uint16(40+len(p)))
	sum := uint32(0)
	for i := 0; i < len(ip); i += 2 {
		sum += uint32(be.Uint16(ip[i:]))
	}
	be.PutUint16(ip[10:], ^uint16(sum+sum>>16))
	b = append(b, ip...)
	b = be.AppendUint16(b, ports[from])
	b = be.AppendUint16(b, ports[to])
	b = be.AppendUint32(b, c.seq[from])
	b = be.AppendUint32(b, c.seq[to])
	b = append(b, 5<<4, flags, 0xff, 0xff, 0, 0, 0, 0)
	b = append(b, p...)
	c.seq[from] += uint32(len(p))
	c.sent[from] = append(c.sent[from], p...)
	if flags&tcpSYN != 0 {
		c.seq[from]++
	}

	c.usec++
	for _, v := range []uint32{1, c.usec, uint32(len(b)), uint32(len(b))} {
		c.pcap = le.AppendUint32(c.pcap, v)
	}
	c.pcap = append(c.pcap, b...)
}

// pass copies one direction until it ends.
func (c *capture) pass(from int, dst, src net.Conn) {
	buf := make([]byte, packetMax)
	for {
		n, err := src.Read(buf)
		if n > 0 {
			c.packet(from, tcpPSHACK, buf[:n])
			if _, err := dst.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			_ = dst.(*net.TCPConn).CloseWrite() // the other side may be gone
			return
		}
	}
}

// counts returns what one side sent after its start-up frame, which begins with key.
func (c *capture) counts(t *testing.T, from int, key string) counts {
	c.mu.Lock()
	defer c.mu.Unlock()
	stream := bytes.NewReader(c.sent[from])
	_, err := readMPA(stream, key)
	require.NoError(t, err)
	return count(t, c.sent[from][len(c.sent[from])-stream.Len():])
}

// A proxied listener is one that dialers reach through a capture.
type proxied struct {
	rdma.Listener
	addr string
}

func (p proxied) Addr() string { return p.addr }

// proxy puts c in front of l, for one connection.
func (c *capture) proxy(t *testing.T, l rdma.Listener) (through rdma.Listener, done *sync.WaitGroup) {
	front, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	done = new(sync.WaitGroup)
	done.Go(func() {
		defer func() { _ = front.Close() }()
		a, err := front.Accept()
		if err != nil {
			return
		}
		defer func() { _ = a.Close() }()
		b, err := net.Dial("tcp", l.Addr())
		if err != nil {
			return
		}
		defer func() { _ = b.Close() }()
		var wg sync.WaitGroup
		wg.Go(func() { c.pass(0, b, a) })
		wg.Go(func() { c.pass(1, a, b) })
		wg.Wait()
	})
	return proxied{l, front.Addr().String()}, done
}

// Wireshark's dissectors, which were written without this package, read every frame of a
// session and find every CRC good.
func TestTsharkReadsASession(t *testing.T) {
	tshark, err := exec.LookPath("tshark")
	if err != nil {
		t.Skip("tshark is missing: install Debian's package tshark")
	}
	l := listen(t, Config{})
	c := newCapture()
	through, done := c.proxy(t, l)
	a, b := rdmatest.ConnectTo(t, New(Config{}), through, rdmatest.Config{ConnConfig: rdma.ConnConfig{PrivateData: []byte("session")}})
	for range 3 {
		b.Recv(t, 1, 0, 64)
	}
	// RPC-over-RDMA's dissector would take shorter ones for its own and call them malformed.
	message := bytes.Repeat([]byte("message "), 8)
	for n := range uint32(9) { // every length of pad
		a.Post(t, rdma.WorkRequest{Op: rdma.OpWrite, Local: a.Local(1, n), Remote: b.At(512)})
	}
	a.Post(t,
		rdma.WorkRequest{Op: rdma.OpWrite, Local: a.Local(0, 100_000), Remote: b.At(4096)},
		rdma.WorkRequest{Op: rdma.OpSend, Inline: message},
		rdma.WorkRequest{ID: 7, Op: rdma.OpRead, Local: a.Local(0, 100_000), Remote: b.At(4096)})
	require.EqualValues(t, 7, a.Next(t).ID)
	own, err := b.Domain.Register(rdmatest.Memory(t, 4096), rdmatest.All)
	require.NoError(t, err)
	require.NoError(t, b.Domain.Deregister(own))
	a.Post(t, rdma.WorkRequest{Op: rdma.OpWrite, Local: a.Local(0, 8), Remote: rdma.Remote{Key: own.Key, Addr: own.Base}})
	require.ErrorIs(t, a.Failed(t), rdma.ErrRemoteAccess)
	a.Close(t)
	b.Close(t)
	done.Wait()
	sent, back := c.counts(t, 0, requestKey), c.counts(t, 1, replyKey)

	file := filepath.Join(t.TempDir(), "session.pcap")
	require.NoError(t, os.WriteFile(file, c.pcap, 0o600))
	dissect := func(args ...string) []string {
		cmd := exec.Command(tshark, append([]string{"-r", file}, args...)...)
		cmd.Stderr = io.Discard // it warns of running as root
		out, err := cmd.Output()
		require.NoError(t, err)
		return strings.Fields(strings.ReplaceAll(string(out), ",", "\n"))
	}
	field := func(name string) []string { return dissect("-T", "fields", "-e", name) }

	require.Len(t, field("iwarp_mpa.key.req"), 1)
	require.Len(t, field("iwarp_mpa.key.rep"), 1)
	require.Equal(t, []string{"2", "2"}, field("iwarp_mpa.rev"))
	require.Len(t, field("iwarp_mpa.ulpdulength"), sent.fpdus+back.fpdus, "every FPDU")
	segments := map[string]int{}
	for _, op := range field("iwarp_rdma.opcode") {
		segments[op]++
	}
	for op, n := range map[string]int{"0x01": 1, "0x03": 1, "0x07": 1} { // the others come in parts
		require.Equal(t, n, segments[op], "opcode %s", op)
	}
	require.GreaterOrEqual(t, segments["0x00"], sent.writes)
	require.GreaterOrEqual(t, segments["0x02"], back.responses)
	// Layer DDP, tagged buffer error, invalid STag.
	require.Equal(t, []string{"0x01"}, field("iwarp_rdma.term_layer"))
	require.Equal(t, []string{"0x01"}, field("iwarp_rdma.term_etype_ddp"))
	require.Equal(t, []string{"0x00"}, field("iwarp_rdma.term_errcode_ddp_tagged"))
	verbose := strings.Join(dissect("-V"), " ")
	require.Equal(t, sent.fpdus+back.fpdus, strings.Count(verbose, "(Good CRC32)"))
	require.False(t, strings.Contains(verbose, "Bad CRC"))
	i := strings.Index(verbose, "Malformed")
	require.Negative(t, i, "%s", verbose[max(i-1000, 0):max(i, 0)])
}
