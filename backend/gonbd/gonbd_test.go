package gonbd

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"testing"
	"testing/iotest"

	gobackend "github.com/pojntfx/go-nbd/pkg/backend"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"pmnbd/backend"
	"pmnbd/backend/backendtest"
	"pmnbd/backend/mem"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var _ gobackend.Backend = (*Backend)(nil)

const (
	size       = 8 << 20
	maxRequest = 1 << 20
)

// A device is memory. Tests choose its shape and its results.
type device struct {
	*mem.Device
	info   backend.Info
	arenas backend.Arenas
	// take, if not nil, gets each op first. It reports true if it keeps the op.
	take func(op *backend.Op) bool
}

func newDevice(t testing.TB) *device {
	m, err := mem.New(size)
	require.NoError(t, err)
	d := &device{Device: m, info: m.Info(), arenas: *m.Arenas()}
	d.info.MaxRequest = maxRequest
	t.Cleanup(func() { require.NoError(t, m.Close(), "everything must be back") })
	return d
}

func (d *device) Info() backend.Info      { return d.info }
func (d *device) Arenas() *backend.Arenas { return &d.arenas }

func (d *device) Submit(ops []*backend.Op) {
	if d.take == nil || !d.take(ops[0]) {
		d.Device.Submit(ops)
	}
}

// fail completes op with err.
func fail(op *backend.Op, err error) bool {
	op.Err = err
	op.Sink.Complete(op)
	return true
}

// open makes a Backend, and closes it before the device when the test ends.
func open(t testing.TB, d backend.Device) *Backend {
	b := New(d)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return b
}

func TestReadAndWrite(t *testing.T) {
	for _, tt := range []struct {
		name   string
		off, n int
		ops    int
	}{
		{"nothing", 5, 0, 0},
		{"one byte", 5, 1, 1},
		{"the last byte", size - 1, 1, 1},
		{"across a chunk's size", backend.ChunkSize - 7, 14, 1},
		{"a chunk and a byte", 3, backend.ChunkSize + 1, 1},
		{"the largest request", 4096, maxRequest, 1},
		{"a byte more than that", 4096, maxRequest + 1, 2},
		{"the whole device", 0, size, size / maxRequest},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := newDevice(t)
			want := backendtest.Pattern(size, 1)
			b := open(t, d)
			_, err := b.WriteAt(want, 0)
			require.NoError(t, err)

			ops := 0
			d.take = func(op *backend.Op) bool {
				require.LessOrEqual(t, op.Len, uint64(maxRequest))
				ops++
				return false
			}
			data := backendtest.Pattern(tt.n, 2)
			n, err := b.WriteAt(data, int64(tt.off))
			require.NoError(t, err)
			require.Equal(t, tt.n, n)
			require.Equal(t, tt.ops, ops)
			copy(want[tt.off:], data)

			got := make([]byte, tt.n)
			n, err = b.ReadAt(got, int64(tt.off))
			require.NoError(t, err)
			require.Equal(t, tt.n, n)
			require.True(t, bytes.Equal(data, got))
			require.Equal(t, 2*tt.ops, ops)

			all := make([]byte, size)
			_, err = b.ReadAt(all, 0)
			require.NoError(t, err)
			require.True(t, bytes.Equal(want, all), "what lies around it")
			require.NoError(t, b.Sync())
		})
	}
}

func TestEndOfDevice(t *testing.T) {
	for _, tt := range []struct {
		name    string
		off     int64
		n       int
		read    int
		readErr error
		written error // nothing is written in part
	}{
		{"up to the end", size - 10, 10, 10, nil, nil},
		{"over it", size - 10, 11, 10, io.EOF, backend.ErrNoSpace},
		{"at it", size, 1, 0, io.EOF, backend.ErrNoSpace},
		{"nothing at it", size, 0, 0, nil, nil},
		{"behind it", size + 1, 1, 0, io.EOF, backend.ErrNoSpace},
		{"at the highest offset", math.MaxInt64, 1, 0, io.EOF, backend.ErrNoSpace},
		{"before the start", -1, 1, 0, backend.ErrInvalid, backend.ErrInvalid},
		{"before all starts", math.MinInt64, 1, 0, backend.ErrInvalid, backend.ErrInvalid},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := open(t, newDevice(t))
			before := backendtest.Pattern(size, 1)
			_, err := b.WriteAt(before, 0)
			require.NoError(t, err)

			n, err := b.ReadAt(make([]byte, tt.n), tt.off)
			require.ErrorIs(t, err, tt.readErr)
			if tt.readErr == io.EOF { //nolint:errorlint // readers compare with ==
				require.Equal(t, io.EOF, err)
			}
			require.Equal(t, tt.read, n)

			n, err = b.WriteAt(make([]byte, tt.n), tt.off)
			require.ErrorIs(t, err, tt.written)
			if tt.written != nil {
				require.Zero(t, n)
				after := make([]byte, size)
				_, err = b.ReadAt(after, 0)
				require.NoError(t, err)
				require.True(t, bytes.Equal(before, after))
			}
		})
	}
}

func TestIsAReader(t *testing.T) {
	d := newDevice(t)
	d.info.Size = 4096
	b := open(t, d)
	want := backendtest.Pattern(4096, 1)
	_, err := b.WriteAt(want, 0)
	require.NoError(t, err)
	require.NoError(t, iotest.TestReader(io.NewSectionReader(b, 0, 4096), want))
}

func TestSize(t *testing.T) {
	d := newDevice(t)
	n, err := open(t, d).Size()
	require.NoError(t, err)
	require.EqualValues(t, size, n)
	d.info.Size = math.MaxInt64 + 1
	_, err = open(t, d).Size()
	require.ErrorIs(t, err, backend.ErrTooLarge)
}

func TestAlignment(t *testing.T) {
	d := newDevice(t)
	d.info.BlockMin = 512
	b := open(t, d)
	for _, tt := range []struct{ off, n int }{{256, 512}, {512, 256}, {1, 1}} {
		_, err := b.ReadAt(make([]byte, tt.n), int64(tt.off))
		require.ErrorIs(t, err, backend.ErrInvalid, "%+v", tt)
		_, err = b.WriteAt(make([]byte, tt.n), int64(tt.off))
		require.ErrorIs(t, err, backend.ErrInvalid, "%+v", tt)
	}
	_, err := b.WriteAt(make([]byte, 1024), 512)
	require.NoError(t, err)
}

func TestFailure(t *testing.T) {
	d := newDevice(t)
	b := open(t, d)
	cause := fmt.Errorf("the target is on fire: %w", backend.ErrFailed)
	p := make([]byte, 3*maxRequest)

	d.take = func(op *backend.Op) bool { return op.Off == 2*maxRequest && fail(op, cause) }
	n, err := b.WriteAt(p, 0)
	require.ErrorIs(t, err, cause)
	require.ErrorContains(t, err, "write 3145728 bytes at 0: ")
	require.Equal(t, 2*maxRequest, n, "what was written before it")
	n, err = b.ReadAt(p, 0)
	require.ErrorIs(t, err, cause)
	require.ErrorContains(t, err, "read 3145728 bytes at 0: ")
	require.Equal(t, 2*maxRequest, n)

	d.take = func(op *backend.Op) bool { return fail(op, cause) }
	err = b.Sync()
	require.ErrorIs(t, err, cause)
	require.ErrorContains(t, err, "flush: ")

	d.take = func(op *backend.Op) bool { op.Sink.Complete(op); return true }
	require.NoError(t, b.Sync(), "an answer is not kept")
}

func TestClose(t *testing.T) {
	b := open(t, newDevice(t))
	_, err := b.WriteAt([]byte("x"), 0)
	require.NoError(t, err)
	require.NoError(t, b.Close())
	require.NoError(t, b.Close())
	_, err = b.WriteAt([]byte("x"), 0)
	require.ErrorIs(t, err, backend.ErrClosed)
	_, err = b.ReadAt(make([]byte, 1), 0)
	require.ErrorIs(t, err, backend.ErrClosed)
	require.ErrorIs(t, b.Sync(), backend.ErrClosed)
}

func TestAllocations(t *testing.T) {
	b := open(t, newDevice(t))
	for _, n := range []int{4096, backend.ChunkSize + 1, 2 * maxRequest} {
		p := make([]byte, n)
		require.Zero(t, testing.AllocsPerRun(100, func() {
			_, err := b.WriteAt(p, 4096)
			if err == nil {
				_, err = b.ReadAt(p, 4096)
			}
			if err == nil {
				err = b.Sync()
			}
			if err != nil {
				t.Fatal(err)
			}
		}), "%d bytes", n)
	}
}
