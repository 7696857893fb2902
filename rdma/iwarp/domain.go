package iwarp

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"

	"pmnbd/rdma"
)

// regionBase is the tagged offset of a region's first byte. Any would do; this
// one is not 0, so that whoever forgets it is refused.
const regionBase = 1 << 32

// A domain is a protection domain: a set of keys.
type domain struct {
	cfg Config

	// mu guards regions. It is read-held while a peer's operation is placed in or
	// taken from a region, so that Deregister, which holds it, returns only when
	// none is.
	mu      sync.RWMutex
	regions map[uint32]*region
}

// A region is registered memory. What a peer may do is decided by the fields
// that only this package can change.
type region struct {
	public *rdma.MemoryRegion
	mem    []byte
	access rdma.Access
	key    uint32
	// gone, guarded by the domain's mu: the key ended.
	gone bool
}

func newDomain(cfg Config) *domain {
	return &domain{cfg: cfg, regions: make(map[uint32]*region)}
}

// keys hands out STags: all 32-bit numbers but 0, in an order that differs from run
// to run, none twice in a run. A stranger who connects again and again uses some,
// so there must be many.
var keys struct {
	mu     sync.Mutex
	seed   uint32
	issued uint32
}

var errNoKeys = errors.New("this process has used up its STags")

func newKey() (uint32, error) {
	keys.mu.Lock()
	defer keys.mu.Unlock()
	if keys.issued == 0 {
		keys.seed = rand.Uint32()
	}
	for keys.issued < math.MaxUint32 {
		keys.issued++
		if key := scatter(keys.issued ^ keys.seed); key != 0 { // 0 is reserved in many an adapter
			return key, nil
		}
	}
	return 0, errNoKeys
}

// scatter maps the 32-bit numbers onto themselves, one to one: each step can be
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
	r.public = &rdma.MemoryRegion{Mem: mem, Key: key, LocalKey: key, Base: regionBase, Access: a}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.regions == nil {
		return nil, fmt.Errorf("register in a closed domain: %w", rdma.ErrClosed)
	}
	d.regions[key] = r
	return r.public, nil
}

// Deregister implements rdma.Domain. It may be called again, and after the peer
// invalidated the key.
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

// invalidate ends key for a peer's Send with Invalidate, if the peer could use it.
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

// local finds the region of sge and checks that sge lies in it and that it
// grants need. The caller holds mu.
func (d *domain) local(sge rdma.SGE, need rdma.Access) (*region, error) {
	if sge.Region == nil {
		if sge.Len == 0 {
			return nil, nil
		}
		return nil, fmt.Errorf("%d bytes of no region: %w", sge.Len, rdma.ErrLocalAccess)
	}
	r := d.regions[sge.Region.Key]
	switch size := uint64(len(sge.Region.Mem)); {
	case r == nil || r.public != sge.Region:
		return nil, fmt.Errorf("a region that is not registered here: %w", rdma.ErrLocalAccess)
	case sge.Off > size || uint64(sge.Len) > size-sge.Off:
		return nil, fmt.Errorf("bytes %d+%d of a region of %d: %w", sge.Off, sge.Len, size, rdma.ErrLocalAccess)
	case r.access&need != need:
		return nil, fmt.Errorf("a region without local write: %w", rdma.ErrLocalAccess)
	}
	return r, nil
}

// The ways in which reach can fail, as the layer that checks them names them.
type reachErrors struct{ stag, wrap, bounds *violation }

var (
	writeErrors = reachErrors{&badSTag, &badWrap, &badBounds}
	readErrors  = reachErrors{&badReadSTag, &badReadWrap, &badReadBounds}
)

// reach finds the n bytes at tagged offset to of key, for a peer that needs the
// right need. The caller holds mu.
func (d *domain) reach(key uint32, to, n uint64, need rdma.Access, e *reachErrors) (r *region, off uint64, bad *violation) {
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
	off = to - regionBase // wraps below the base to beyond every size
	if size := uint64(len(r.mem)); off > size || n > size-off {
		return nil, 0, e.bounds
	}
	return r, off, nil
}
