package remote

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/backend/backendtest"
	"pmnbd/persist/region/regiontest"
	"pmnbd/persist/wire"
)

// What can have happened before another initiator has the region.
var heldByAnother = []struct {
	name   string
	before func(h *host, take func() *Device) // take has the other initiator open the region
	why    string                             // the loss; "" if the region is only busy
}{
	{"nothing", func(_ *host, take func() *Device) { take() }, ""},
	{"a clean end", func(h *host, take func() *Device) {
		closed(h)
		take()
	}, ""},
	{"a kill before OPEN was granted", func(h *host, take func() *Device) {
		closed(h)
		h.rewrite(unsent)
		take()
	}, ""},
	{"a kill, and a boot since", func(h *host, take func() *Device) {
		killedDirty(h)
		h.boot()
		take()
	}, ""},
	{"a kill", func(h *host, take func() *Device) {
		killedDirty(h)
		take()
	}, "; 4096 acknowledged bytes were not flushed"},
	{"a kill, and the target started since, for whoever has the region", func(h *host, take func() *Device) {
		killedDirty(h)
		o := take()
		require.NoError(h.t, o.leave(context.Background(), false))
		require.NoError(h.t, o.release())
		h.stop()
		h.start(h.path, regiontest.ADR)
	}, "another owner"},
	{"a device that failed by that", func(h *host, take func() *Device) {
		d, c := h.run()
		require.NoError(h.t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0)))
		take()
		require.Error(h.t, c.Do(c.Flush()))
		require.Error(h.t, d.Close())
	}, "the device failed in the previous run"},
	{"a kill, and the header damaged", func(h *host, take func() *Device) {
		killed(h)
		h.scribble(func(half []byte) { half[headerPrefix] ^= 1 })
		take()
	}, "is damaged"},
}

// While another initiator holds the region, a start whose loss is certain by now ends with that
// loss. Every other start ends as busy, and keeps what the previous run left.
func TestRegionIsHeldByAnother(t *testing.T) {
	for _, tt := range heldByAnother {
		t.Run(tt.name, func(t *testing.T) {
			h := newHost(t)
			other := h.cfg
			other.ID, other.StateDir, other.WindowDir, other.Takeover = [16]byte{7}, t.TempDir(), "", true
			var o *Device
			tt.before(h, func() *Device {
				var err error
				o, err = Dial(context.Background(), other)
				require.NoError(t, err)
				return o
			})
			busy := func() {
				t.Helper()
				_, err := Dial(context.Background(), h.cfg)
				var loss *LossError
				require.False(t, errors.As(err, &loss), "%v", err)
				var refused *RefusedError
				require.ErrorAs(t, err, &refused)
				require.Equal(t, wire.CodeBusy, refused.said.Code)
				require.Equal(t, other.ID, refused.said.Holder)
			}
			for range 2 { // a second start finds the same
				if tt.why != "" {
					h.refused(tt.why)
				} else {
					busy()
				}
				h.cfg.AcceptLoss = true
				busy()
				h.cfg.AcceptLoss = false
			}
			h.cfg.AcceptLoss, h.cfg.Takeover = true, true
			d, c := h.run()
			require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 9), 0), c.Flush()))
			require.NoError(t, d.Close())
			if o.legs[0].keeping.Err() == nil {
				require.Error(t, o.Close())
			}
		})
	}
}
