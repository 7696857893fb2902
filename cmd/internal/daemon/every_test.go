package daemon

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestEvery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		said := 0
		stop := Every(SayEvery, func() { said++ })
		<-time.After(3*SayEvery + time.Second)
		stop()
		require.Equal(t, 3, said)
	})
}
