package iwarp

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"

	"pmnbd/rdma"
	"pmnbd/rdma/internal/queue"
)

// regionBase is the tagged offset of a region's first byte. Any value would do. It is
// not 0, so that a peer that forgets to add it is refused.
const regionBase = 1 << 32

// A domain is a protection domain: a set of keys.
type domain struct {
	cfg Config

	// mu guards regions. A goroutine that carries out a peer's operation on a region
	// holds mu for reading. So Deregister, which holds it for writing, returns only
	// when no such operation is left.
	mu      sync.RWMutex
	regions map[uint32]*region
}

// A region is registered memory. What a peer may do depends only on these fields,
// which no other package can change.
type region struct {
	public *rdma.MemoryRegion
	mem    []byte
	access rdma.Access
	key    uint32
	// gone means that the key has ended. The domain's mu guards it.
	gone bool
}

func newDomain(cfg Config) *domain {
	return &domain{cfg: cfg, regions: make(map[uint32]*region)}
}

// keys hands out STags: every 32-bit number but 0, each once in a run, in an order that
// differs from run to run. There must be many, because a stranger who connects again
// and again uses some up.
var keys struct {
	mu     sync.Mutex
	seed   uint32
	issued uint32
}

var errNoKeys = errors.New("this process has used up its STags: restart it")

func newKey() (uint32, error) {
	keys.mu.Lock()
	defer keys.mu.Unlock()
	if keys.issued == 0 {
		keys.seed = rand.Uint32()
	}
	for keys.issued < math.MaxUint32 {
		keys.issued++
		if key := scatter(keys.issued ^ keys.seed); key != 0 { // many adapters reserve 0
			return key, nil
		}
	}
	return 0, errNoKeys
}

// scatter maps the 32-bit numbers onto themselves, one to one: each of its steps can be
// undone.
func scatter(x uint32) uint32 {
	x ^= x >> 16
	x *= 0x7feb352d
	x ^= x >> 15
	x *= 0x846ca68b
	return x ^ x>>16
}

// Register implements rdma.Domain.
func (d *domain) Register(mem []byte, a rdma.Access) (*rdma.MemoryRegion, error) {
	if a&rdma.RemoteFlush != 0 {
		return nil, fmt.Errorf("register with RemoteFlush: %w", rdma.ErrNotSupported)
	}
	if len(mem) == 0 {
		return nil, fmt.Errorf("register no memory: %w", rdma.ErrLocalAccess)
	}
	if a&rdma.RemoteWrite != 0 {
		a |= rdma.LocalWrite
	}
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	r := &region{mem: mem, access: a, key: key}
	r.public = &rdma.MemoryRegion{Mem: mem, Key: key, Base: regionBase, Access: a}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.regions == nil {
		return nil, fmt.Errorf("register in a closed domain: %w", rdma.ErrClosed)
	}
	d.regions[key] = r
	return r.public, nil
}

// Deregister implements rdma.Domain. It does nothing if the key has ended, by an
// earlier call or because the peer invalidated it.
func (d *domain) Deregister(r *rdma.MemoryRegion) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if reg := d.regions[r.Key]; reg != nil && reg.public == r {
		reg.gone = true
		delete(d.regions, r.Key)
	}
	return nil
}

// Close implements rdma.Domain.
func (d *domain) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, r := range d.regions {
		r.gone = true
	}
	d.regions = nil
	return nil
}

// invalidate ends key for a peer's Send with Invalidate. It refuses a key that the peer
// could not use.
func (d *domain) invalidate(key uint32) *violation {
	d.mu.Lock()
	defer d.mu.Unlock()
	r := d.regions[key]
	if r == nil || r.access&(rdma.RemoteRead|rdma.RemoteWrite) == 0 {
		return &badInvalidate
	}
	r.gone = true
	delete(d.regions, key)
	return nil
}

// localLocked finds the region of sge and checks that sge lies in it and that it grants
// need. It returns nil for an empty sge without a region.
func (d *domain) localLocked(sge rdma.SGE, need rdma.Access) (*region, error) {
	var r *region
	if sge.Region != nil {
		r = d.regions[sge.Region.Key]
	}
	if r == nil || r.public != sge.Region {
		return nil, queue.CheckLocal(sge, false, 0, 0, need)
	}
	return r, queue.CheckLocal(sge, true, uint64(len(r.mem)), r.access, need)
}

// A reachErrors names the ways in which reachLocked can fail. DDP and RDMAP have
// different codes for them.
type reachErrors struct{ stag, wrap, bounds *violation }

var (
	writeErrors = reachErrors{&badSTag, &badWrap, &badBounds}
	readErrors  = reachErrors{&badReadSTag, &badReadWrap, &badReadBounds}
)

// reachLocked finds the n bytes at tagged offset to of key, for a peer that needs the
// right need.
func (d *domain) reachLocked(key uint32, to, n uint64, need rdma.Access, e *reachErrors) (r *region, off uint64, bad *violation) {
	r = d.regions[key]
	if r == nil {
		return nil, 0, e.stag
	}
	if r.access&need == 0 {
		return nil, 0, &noAccess
	}
	if to+n < to {
		return nil, 0, e.wrap
	}
	off = to - regionBase // below the base it wraps to beyond every size
	if size := uint64(len(r.mem)); off > size || n > size-off {
		return nil, 0, e.bounds
	}
	return r, off, nil
}
