package backend

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestErrnoOf(t *testing.T) {
	tests := []struct {
		err  error
		want Errno
	}{
		{nil, 0},
		{ErrInvalid, EINVAL},
		{ErrTooLarge, EINVAL},
		{ErrNoSpace, ENOSPC},
		{ErrOverflow, EOVERFLOW},
		{ErrReadOnly, EPERM},
		{ErrNotSupported, ENOTSUP},
		{ErrClosed, ESHUTDOWN},
		{ErrFailed, EIO},
		{ErrGone, EIO},
		{errors.New("anything else"), EIO},
		{fmt.Errorf("write 4096 bytes: %w", ErrNoSpace), ENOSPC},
		{errors.Join(errors.New("first"), ErrClosed), ESHUTDOWN},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprint(tt.err), func(t *testing.T) { require.Equal(t, tt.want, ErrnoOf(tt.err)) })
	}
}

func TestCommandNames(t *testing.T) {
	require.Equal(t, "READ WRITE WRITE_ZEROES TRIM FLUSH", fmt.Sprint(Read, " ", Write, " ", WriteZeroes, " ", Trim, " ", Flush))
	require.Equal(t, "unknown command", Command(99).String())
}
