package daemon

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

type closer func() error

func (c closer) Close() error { return c() }

func TestOpened(t *testing.T) {
	failure, stuck := errors.New("failure"), errors.New("stuck")
	for _, failed := range []error{nil, failure} {
		var closed []int
		start := func() (err error) {
			var opened Opened
			defer opened.CloseOn(&err)
			opened.Add(nil)
			for i := range 3 {
				opened.Add(closer(func() error {
					closed = append(closed, i)
					if i == 1 {
						return stuck
					}
					return nil
				}))
			}
			return failed
		}
		err := start()
		if failed == nil {
			require.NoError(t, err)
			require.Empty(t, closed)
			continue
		}
		require.ErrorIs(t, err, failure)
		require.ErrorIs(t, err, stuck)
		require.Equal(t, []int{2, 1, 0}, closed, "the last first, and all of them")
	}
}
