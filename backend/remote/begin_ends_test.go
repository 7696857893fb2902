package remote

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"pmnbd/persist"
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
