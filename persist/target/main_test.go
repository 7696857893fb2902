package target

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"pmnbd/internal/logtest"
	"pmnbd/internal/testhost"
	"pmnbd/persist"
	"pmnbd/persist/region"
	"pmnbd/persist/region/regiontest"
	"pmnbd/persist/wire"
	"pmnbd/rdma"
	"pmnbd/rdma/rdmafake"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// nothing is the last of a Change whose caller does nothing with the regions that it withdraws.
func nothing() {}

// A site is a region that is served, and the wire to it.
type site struct {
	p      *rdmafake.Provider
	region *region.Region
	path   string
	server *Server
	addr   string
	stop   func()
}

const size = 1 << 20

// serveRegion serves the region at path. It creates a missing region.
func serveRegion(t *testing.T, path string, sync func(int) error, cfg Config) *site {
	return serveWith(t, path, regiontest.Medium{Sync: sync}, cfg)
}

func serveWith(t *testing.T, path string, m regiontest.Medium, cfg Config) *site {
	r, err := region.Open(path, region.OpenOptions{Name: "log", CreateSize: size, AllowVolatile: true, Wrap: m.Wrap})
	require.NoError(t, err)
	return serveOpened(t, path, r, cfg)
}

func serveOpened(t *testing.T, path string, r *region.Region, cfg Config) *site {
	cfg.Log, cfg.Name = logtest.New(t), testName
	s := &site{p: rdmafake.New(rdmafake.Config{}), region: r, path: path, server: New(cfg, []*region.Region{r})}
	l, err := s.p.Listen(context.Background(), "")
	require.NoError(t, err)
	s.addr = l.Addr()
	served := make(chan error, 1)
	go func() { served <- s.server.Serve(l) }()
	stopped := false
	s.stop = func() {
		if stopped {
			return
		}
		stopped = true
		require.NoError(t, s.server.Close())
		require.NoError(t, s.server.Close(), "a second Close must do nothing")
		require.NoError(t, <-served)
		require.NoError(t, r.Close())
	}
	t.Cleanup(s.stop)
	return s
}

// onDisk returns the path of a file that is not there yet. A region in it is of class file.
func onDisk(t testing.TB) string {
	return filepath.Join(testhost.Disk(t), "region")
}

func newSite(t *testing.T) *site {
	return serveRegion(t, onDisk(t), nil, Config{})
}

// A peer is an initiator that sends whatever the test wants.
type peer struct {
	t      *testing.T
	domain rdma.Domain
	conn   rdma.Conn
	mem    []byte // a message to send, then receives, then data
	mr     *rdma.MemoryRegion
}

const peerBuffers = 40

func (s *site) connect(t *testing.T) *peer { return dial(t, s.p, s.addr) }

func dial(t *testing.T, provider rdma.Provider, addr string) *peer {
	p, err := dialWith(t, provider, addr, nil)
	require.NoError(t, err)
	return p
}

// dialWith connects with private data.
func dialWith(t *testing.T, provider rdma.Provider, addr string, privateData []byte) (p *peer, err error) {
	return dialAs(t, provider, addr, rdma.ConnConfig{PrivateData: privateData})
}

// dialAs connects as cfg says.
func dialAs(t *testing.T, provider rdma.Provider, addr string, cfg rdma.ConnConfig) (p *peer, err error) {
	p = &peer{t: t}
	p.domain, err = provider.OpenDomain(context.Background(), addr)
	require.NoError(t, err)
	p.mem, err = unix.Mmap(-1, 0, peerBuffers*wire.MaxMessage, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	require.NoError(t, err)
	p.mr, err = p.domain.Register(p.mem, rdma.LocalWrite)
	require.NoError(t, err)
	cfg.MaxRecvWR = peerBuffers
	var recvs []rdma.WorkRequest
	for i := uint64(1); i < peerBuffers-1; i++ {
		recvs = append(recvs, rdma.WorkRequest{ID: i, Op: rdma.OpRecv, Local: rdma.SGE{Region: p.mr, Off: i * wire.MaxMessage, Len: wire.MaxMessage}})
	}
	p.conn, err = p.domain.Dial(context.Background(), addr, cfg, recvs)
	t.Cleanup(func() {
		if p.conn != nil {
			require.NoError(t, p.conn.Close())
		}
		require.NoError(t, p.domain.Close())
		require.NoError(t, unix.Munmap(p.mem))
	})
	return p, err
}

func (p *peer) post(wr rdma.WorkRequest) {
	_, _ = p.conn.Post([]rdma.WorkRequest{wr}) // receive returns the error of a broken connection
}

func (p *peer) send(msg []byte) {
	n := copy(p.mem, msg)
	p.post(rdma.WorkRequest{Op: rdma.OpSend, Local: rdma.SGE{Region: p.mr, Len: uint32(n)}})
}

// receive waits for a message.
func (p *peer) receive() ([]byte, error) {
	var cs [1]rdma.Completion
	for {
		n, err := p.conn.Poll(cs[:])
		if n == 1 && cs[0].Op == rdma.OpRecv {
			return p.mem[cs[0].ID*wire.MaxMessage:][:cs[0].Len], nil
		}
		if n == 0 && err == nil {
			err = p.conn.Wait()
		}
		if n == 0 && err != nil {
			return nil, err
		}
	}
}

// everyMethod is what an initiator offers that accepts every method.
const everyMethod = persist.Methods(1<<persist.MethodGPSPM | 1<<persist.MethodAPM | 1<<persist.MethodFlush)

type message interface {
	Append([]byte) []byte
	Decode([]byte) error
}

// ask sends m and decodes the answer.
func (p *peer) ask(m message, answer message) {
	p.t.Helper()
	p.send(m.Append(nil))
	require.NoError(p.t, p.decode(answer))
}

// decode waits for a message and decodes it.
func (p *peer) decode(answer message) error {
	msg, err := p.receive()
	if err != nil {
		return err
	}
	return answer.Decode(msg)
}

// signed returns m with the initiator's proof.
func signed(s *wire.Secret, m message) []byte {
	b := m.Append(nil)
	s.SignRequest(b)
	return b
}

var (
	alice = persist.Owner{ID: [16]byte{1}, Nonce: [16]byte{1}}
	bob   = persist.Owner{ID: [16]byte{2}, Nonce: [16]byte{2}}
)

// refused sends OPEN and returns the refusal.
func (p *peer) refused(owner persist.Owner, epoch uint64) (r wire.Refused) {
	p.t.Helper()
	p.ask(&wire.Open{Methods: everyMethod, Owner: owner, Epoch: epoch, Region: "log", Flags: wire.OpenAllowVolatile}, &r)
	return r
}

// open gets a session.
func (p *peer) open(owner persist.Owner) (o wire.Opened) { return p.openNamed(owner, "log") }

func (p *peer) openNamed(owner persist.Owner, region string) (o wire.Opened) {
	p.t.Helper()
	var r wire.Refused
	m := wire.Open{Methods: everyMethod, Owner: owner, Region: region, Flags: wire.OpenAllowVolatile}
	p.ask(&m, &r)
	require.Equal(p.t, wire.CodeEpoch, r.Code, r.Text)
	m.Epoch = r.Epoch
	p.ask(&m, &o)
	return o
}

// write posts a Write of b at off and a barrier behind it, and waits for the
// acknowledgement.
func (p *peer) write(o wire.Opened, seq uint64, off uint64, b []byte) error {
	const data = (peerBuffers - 1) * wire.MaxMessage
	copy(p.mem[data:], b)
	p.post(rdma.WorkRequest{Op: rdma.OpWrite, Local: rdma.SGE{Region: p.mr, Off: data, Len: uint32(len(b))}, Remote: rdma.Remote{Key: o.Key, Addr: o.Base + off}})
	p.send((&wire.Barrier{Seq: seq, Last: true, Ranges: []persist.Range{{Off: off, Len: uint64(len(b))}}}).Append(nil))
	msg, err := p.receive()
	if err != nil {
		return err
	}
	var ack wire.BarrierAck
	require.NoError(p.t, ack.Decode(msg))
	require.Equal(p.t, wire.BarrierAck{Seq: seq, Last: true}, ack)
	return nil
}

// durable sends a barrier without ranges and waits for its acknowledgement.
func (p *peer) durable(seq uint64) {
	p.t.Helper()
	var ack wire.BarrierAck
	p.ask(&wire.Barrier{Seq: seq, Last: true}, &ack)
	require.Equal(p.t, wire.BarrierAck{Seq: seq, Last: true}, ack)
}
