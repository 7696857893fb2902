package image

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// inFlight is how many blocks are written or read at a time: enough to keep a disk busy while
// CPUs copy others and compute their CRCs.
const inFlight = 8

// A Progress is how far a save is. Others may read it.
type Progress struct {
	// Of is how many bytes of blocks the save writes, and Written how many it has written.
	Of, Written atomic.Uint64
}

// A Sum returns the CRC32C of memory, or the error of touching it.
type Sum func([]byte) (uint32, error)

// Save makes the image whole: it writes the blocks of mem that dirty names, and then a header
// with what set changes in it. It counts in progress the blocks that it writes. Nobody may change
// mem meanwhile. After an error the image is Changeable, or was whole before it, or may be
// whole: of mem as it is.
func (im *Image) Save(ctx context.Context, mem []byte, dirty func(block int) bool, sum Sum, set func(*Header), progress *Progress) error {
	for i := range im.lay.n {
		if _, n := im.lay.block(i); dirty(i) {
			progress.Of.Add(n)
		}
	}
	if !im.Changeable() { // or the blocks would be older than a header that says whole
		if err := im.MakeLive(func(*Header) {}); err != nil {
			return err
		}
	}
	err := each(ctx, im.lay.n, func(i int) error {
		if !dirty(i) {
			return nil
		}
		off, n := im.lay.block(i)
		b := mem[off : off+n]
		crc, err := sum(b)
		if err != nil {
			return err
		}
		if _, err := im.f.WriteAt(b, im.lay.blockOffset(i)); err != nil {
			return fmt.Errorf("write block %d of %s: %w", i, im.f.Name(), err)
		}
		im.table[i] = crc // nobody else has this block
		progress.Written.Add(n)
		return nil
	})
	if err != nil {
		return err
	}
	crc, err := im.writeTable()
	if err != nil {
		return err
	}
	next := im.head
	set(&next)
	next.State, next.Speed, next.Table = Whole, im.Speed(), crc
	return im.write(next)
}

// writeTable makes the table durable, and the blocks that were written before.
func (im *Image) writeTable() (uint32, error) {
	b, err := buffer(im.lay.tableSize())
	if err != nil {
		return 0, err
	}
	crc := encodeTable(b, im.table)
	if _, err = im.f.WriteAt(b, tableOffset); err != nil {
		err = fmt.Errorf("write the table of %s: %w", im.f.Name(), err)
	} else {
		err = im.sync()
	}
	return crc, release(b, err)
}

// ReadTable reads the table of an image that is whole, so that a save can leave blocks out.
// The error is ErrTorn, or one of reading.
func (im *Image) ReadTable() error {
	b, err := buffer(im.lay.tableSize())
	if err != nil {
		return err
	}
	if _, err = im.f.ReadAt(b, tableOffset); err != nil {
		err = fmt.Errorf("read the table of %s: %w", im.f.Name(), err)
	} else {
		var table []uint32
		if table, err = decodeTable(b, im.lay.n, im.head.Table); err == nil {
			im.table = table
		} else {
			err = fmt.Errorf("%s: %w", im.f.Name(), err)
		}
	}
	return errors.Join(err, unix.Munmap(b))
}

// Load reads an image that is whole into mem, several blocks at a time, and checks every block
// there. It calls room before it reads n bytes to off: that memory is there then. After an error mem
// has anything. The error is ErrTorn, or one of reading, of room or of sum.
func (im *Image) Load(ctx context.Context, mem []byte, room func(off, n uint64) error, sum Sum) error {
	if im.head.State != Whole {
		return fmt.Errorf("%s: %w: it is %v", im.f.Name(), ErrTorn, im.head.State)
	}
	if err := im.ReadTable(); err != nil {
		return err
	}
	return each(ctx, im.lay.n, func(i int) error {
		off, n := im.lay.block(i)
		if err := room(off, n); err != nil {
			return err
		}
		b := mem[off : off+n]
		if _, err := im.f.ReadAt(b, im.lay.blockOffset(i)); err != nil {
			return fmt.Errorf("read block %d of %s: %w", i, im.f.Name(), err)
		}
		crc, err := sum(b)
		if err == nil && crc != im.table[i] {
			err = fmt.Errorf("%s: %w: wrong CRC of block %d", im.f.Name(), ErrTorn, i)
		}
		return err
	})
}

// Measure writes the scratch extent of the image in f, of a memory of some bytes, as Save writes
// blocks. It returns how many bytes the disk took in a second. Others may use the image meanwhile.
func Measure(ctx context.Context, f File, bytes uint64) (speed uint64, err error) {
	b, err := buffer(BlockSize)
	if err != nil {
		return 0, err
	}
	fill(b)
	lay := layoutOf(bytes)
	n := lay.scratchBlocks()
	began := time.Now()
	err = each(ctx, n, func(i int) error {
		_, err := f.WriteAt(b, lay.scratchOffset()+int64(i)*BlockSize)
		return err
	})
	if err == nil {
		err = f.Sync()
	}
	took := time.Since(began)
	if err = release(b, err); err != nil {
		return 0, fmt.Errorf("measure %s: %w", f.Name(), err)
	}
	return SpeedOf(uint64(n)*BlockSize, took), nil
}

// Measure measures the disk, and sets the speed: to 0 after an error.
func (im *Image) Measure(ctx context.Context) error {
	speed, err := Measure(ctx, im.f, im.lay.bytes)
	im.SetSpeed(speed)
	return err
}

// SpeedOf returns how many bytes a second a disk takes that took n bytes so long.
func SpeedOf(n uint64, took time.Duration) uint64 {
	return max(1, uint64(float64(n)/max(took.Seconds(), 1e-6)))
}

// Probe writes one page of the scratch extent of the image in f, of a memory of some bytes,
// durably. Others may use the image meanwhile.
func Probe(f File, bytes uint64) error {
	b, err := buffer(pageSize)
	if err != nil {
		return err
	}
	if _, err = f.WriteAt(b, layoutOf(bytes).scratchOffset()); err == nil {
		err = f.Sync()
	}
	if err != nil {
		err = fmt.Errorf("write to %s: %w", f.Name(), err)
	}
	return errors.Join(err, unix.Munmap(b))
}

// fill fills b with bytes that a disk cannot compress.
func fill(b []byte) {
	x := uint64(0x9e3779b97f4a7c15)
	for i := range b {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		b[i] = byte(x >> 32)
	}
}

// each calls f for 0 to n-1, some at a time, and returns when all calls have returned. After
// an error, or when ctx has ended, it calls f no more.
func each(ctx context.Context, n int, f func(i int) error) error {
	var next atomic.Int64
	var first atomic.Pointer[error]
	var all sync.WaitGroup
	for range min(n, inFlight) {
		all.Go(func() {
			for first.Load() == nil {
				err := ctx.Err()
				if i := int(next.Add(1) - 1); err == nil && i < n {
					err = f(i)
				} else if err == nil {
					return
				}
				if err != nil {
					first.CompareAndSwap(nil, &err)
				}
			}
		})
	}
	all.Wait()
	if err := first.Load(); err != nil {
		return *err
	}
	return nil
}
