package remote

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/persist/region"
	"pmnbd/persist/target"
	"pmnbd/rdma"
	"pmnbd/rdma/rdmafake"
)

// An attempts is a provider that tells of each attempt to connect anew.
type attempts struct {
	*rdmafake.Provider
	began func()
}

func (a *attempts) OpenDomain(ctx context.Context, addr string) (rdma.Domain, error) {
	a.began()
	return a.Provider.OpenDomain(ctx, addr)
}

// A session that is lost while the device closes is given back, even if the target is
// still busy with the keeper's last RESUME.
func TestCloseAsksAgain(t *testing.T) {
	var hold atomic.Bool
	var tries atomic.Int64
	began, released := make(chan struct{}), make(chan struct{})
	release := sync.OnceFunc(func() { close(released) })
	network := &attempts{rdmafake.New(rdmafake.Config{}), func() {
		if tries.Add(1) == 4 { // Dial, the keeper, once while the target is busy
			release()
		}
	}}
	p := newPairOn(t, network, "", inMemory(t), target.Config{}, region.OpenOptions{
		PMem: region.DomainMemory, Lines: func([]byte) {}, Header: func([]byte) {
			if hold.Swap(false) {
				close(began)
				<-released
			}
		},
	})
	t.Cleanup(release)
	d := p.dialPatient(t, 1)
	hold.Store(true)
	network.Cut()
	<-began
	require.NoError(t, d.leave(true))
	require.NoError(t, d.release())
	require.True(t, p.region.Superblock().Clean)
	require.GreaterOrEqual(t, tries.Load(), int64(4))
}
