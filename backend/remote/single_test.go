package remote

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"pmnbd/backend/backendtest"
	"pmnbd/persist"
	"pmnbd/rdma/rdmafake"
)

// A member of a mirror is opened alone only by a start that says so. Then the mirror does not take it
// for equal to the others any more.
func TestMemberAlone(t *testing.T) {
	h := newMirrorHost(t, 2)
	d, c := h.run()
	h.write(c, 0, block)
	require.NoError(t, d.Close())
	alone := h.pairs[1].config(t)
	alone.LossTimeout, alone.WindowDir = 0, inMemory(t)
	_, err := Dial(context.Background(), alone)
	var no *RefusedError
	require.ErrorAs(t, err, &no)
	require.Equal(t, ReasonMember, no.Reason())
	require.ErrorContains(t, err, "name the targets of all its members, or open it alone")
	alone.Single = true
	d, err = Dial(context.Background(), alone)
	require.NoError(t, err)
	c = backendtest.NewClient(t, d)
	read := c.Read(0, block, 0)
	require.NoError(t, c.Do(read))
	require.Equal(t, h.want[:block], read.Got)
	require.NoError(t, c.Do(c.Write(block, backendtest.Pattern(block, 99), 0), c.Flush()))
	require.NoError(t, d.Close())
	h.cfg.Degraded = true // it was in sync
	d, c = h.run()
	h.readsAll(c)
	h.comesBack(d)
	require.NoError(t, d.Close())

	cfg := h.cfg
	cfg.Single = true
	_, err = Dial(context.Background(), cfg)
	require.ErrorContains(t, err, "either Members or Single")
}

// A life that copies first can copy to a member that was served alone. That one has the newest generation, and its
// record names other contents than those of the others (mirror §5.1).
func TestMemberAloneAndTheFirstCopies(t *testing.T) {
	for alone := range 2 {
		t.Run(persist.Member(alone).String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := fakesOf(t, 2, 2, rdmafake.Config{})
				cfg := s[alone].config(t)
				cfg.Single = true
				d, err := Dial(t.Context(), cfg)
				require.NoError(t, err)
				c := backendtest.NewClient(t, d)
				require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0), c.Flush()))
				require.NoError(t, d.Close())
				cfg = s.config(t)
				cfg.Degraded = true // it was in sync
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				d, err = Dial(ctx, cfg)
				require.NoError(t, err)
				s.inSync(t, d)
				require.NoError(t, d.Close())
				require.Equal(t, make([]byte, block), s[alone].region.Data()[:block])
			})
		})
	}
}
