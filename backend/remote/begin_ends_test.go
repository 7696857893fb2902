package remote

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"pmnbd/persist"
	"pmnbd/persist/wire"
	"pmnbd/rdma"
	"pmnbd/rdma/rdmafake"
)

// A start of a mirror that has all its sessions, and has begun no generation yet, can be given up, and can fail. It
// takes nothing with it: the process may serve others.
func TestStartOfAMirrorEndsBeforeItServes(t *testing.T) {
	for name, start := range map[string]func(t *testing.T, ctx context.Context) error{
		"given up while it copies first": func(t *testing.T, ctx context.Context) error {
			s := fakesOf(t, 2, 2, rdmafake.Config{})
			s.loseContents(t, 1)
			cfg := s.config(t)
			cfg.Degraded, cfg.ResyncRate = true, 16<<10
			_, err := Dial(ctx, cfg)
			return err
		},
		"given up while the arbiter is away": func(t *testing.T, ctx context.Context) error {
			a := newArbitrated(t)
			a.lost = true
			_, err := Dial(ctx, a.cfg)
			return err
		},
		"another one was faster at the arbiter": func(t *testing.T, ctx context.Context) error {
			a := newArbitrated(t)
			a.swap = func(next *persist.Record) {
				a.mu.Lock()
				defer a.mu.Unlock()
				a.held = *next
				a.held.Nonce[0]++
			}
			_, err := Dial(ctx, a.cfg)
			require.ErrorAs(t, err, new(*TakenError))
			return context.DeadlineExceeded
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				require.ErrorIs(t, start(t, ctx), context.DeadlineExceeded)
			})
		})
	}
}

// A start of a mirror that fails before it serves leaves what it found: nothing that anybody was told is lost, so the
// next start needs nobody who accepts a loss.
func TestStartOfAMirrorFailsBeforeItServes(t *testing.T) {
	for name, before := range map[string]bool{"nobody was ever served": false, "behind a run that was closed": true} {
		t.Run(name, func(t *testing.T) {
			h := newMirrorHost(t, 2)
			if before {
				d, c := h.run()
				h.write(c, 0, block)
				require.NoError(t, d.Close())
			}
			network := h.network(1)
			h.tap(1, func(wr *rdma.WorkRequest) {
				if wr.Op != rdma.OpSend || wr.Local.Region == nil {
					return
				}
				if typ, err := wire.TypeOf(wr.Local.Region.Mem[wr.Local.Off:][:wr.Local.Len]); err == nil && typ == wire.TypeRecord {
					network.Down()
				}
			})
			h.cfg.Members[1].Provider = h.pairs[1].provider
			cfg := h.cfg
			cfg.LossTimeout = 10 * time.Millisecond
			_, err := Dial(context.Background(), cfg)
			require.ErrorContains(t, err, "could not go on")
			require.NotEqual(t, windowFailed, h.left().State)
			network.Up()
			h.cfg.Members[1].Provider = network
			d, c := h.run()
			h.readsAll(c)
			require.NoError(t, d.Close())
		})
	}
}
