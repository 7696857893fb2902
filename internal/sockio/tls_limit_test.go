package sockio

import (
	"io"
	"testing"

	"github.com/stretchr/testify/require"
)

// A connection encrypts no more than its keys may, by Flush or by Write. What was encrypted before
// arrives, and what counts as written was encrypted.
func TestTLSLimit(t *testing.T) {
	const limit = 10 * MaxRecord
	for name, write := range map[string]func(s *TLS, q *Queue, b []byte) (uint64, error){
		"Flush": func(s *TLS, q *Queue, b []byte) (uint64, error) {
			began := q.Written()
			q.Data(b)
			for {
				if err := s.Flush(q); err != nil || q.Empty() {
					return q.Written() - began, err
				}
				if err := s.WaitWritable(); err != nil {
					return q.Written() - began, err
				}
			}
		},
		"Write": func(s *TLS, _ *Queue, b []byte) (uint64, error) {
			n, err := s.Write(b)
			return uint64(n), err
		},
	} {
		t.Run(name, func(t *testing.T) {
			server, client := identity()
			s, c := secure(t, "tcp", server, client, goClient)
			s.Limit(limit)
			got := make(chan int64, 1)
			go func() {
				n, _ := io.Copy(io.Discard, c)
				got <- n
			}()
			var q Queue
			sent, err := write(s, &q, make([]byte, limit/2))
			require.NoError(t, err)
			require.EqualValues(t, limit/2, sent)
			more, err := write(s, &q, make([]byte, 4*limit))
			require.ErrorIs(t, err, ErrKeysUsedUp)
			again, err := write(s, &q, make([]byte, 1))
			require.ErrorIs(t, err, ErrKeysUsedUp)
			require.Zero(t, again)
			require.LessOrEqual(t, sent+more, uint64(limit), "a record counts for more than its bytes")
			require.Greater(t, sent+more, uint64(limit-2*MaxRecord))
			require.NoError(t, s.Close())
			require.EqualValues(t, sent+more, <-got)
		})
	}
}

// Small records count for what they cost: they cannot pass the limit by their number.
func TestTLSLimitOfSmallRecords(t *testing.T) {
	server, client := identity()
	s, c := secure(t, "tcp", server, client, goClient)
	go func() { _, _ = io.Copy(io.Discard, c) }()
	s.Limit(100 * (1 + recordCost))
	n := 0
	for ; ; n++ {
		if _, err := s.Write([]byte{1}); err != nil {
			require.ErrorIs(t, err, ErrKeysUsedUp)
			break
		}
	}
	require.Equal(t, 100, n)
}
