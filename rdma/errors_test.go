package rdma

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The reason that a peer gives reaches a terminal as plain text and nothing else.
func TestRejectError(t *testing.T) {
	for said, want := range map[string]string{
		"":                                   "connection refused by the peer",
		"\x00\x00":                           "connection refused by the peer",
		"no room\x00\x00":                    `connection refused by the peer: "no room"`,
		"\x1b[2J\x9b31m\u0085\u202e\x7f\xff": `connection refused by the peer: "\x1b[2J\x9b31m\u0085\u202e\x7f\xff"`,
		strings.Repeat("x", 500):             `connection refused by the peer: "` + strings.Repeat("x", MaxPrivateData) + `"`,
	} {
		require.EqualError(t, &RejectError{PrivateData: []byte(said)}, want)
	}
}
