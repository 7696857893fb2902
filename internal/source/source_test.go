package source

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOf(t *testing.T) {
	for peer, want := range map[string]string{
		"192.0.2.1:7204": "192.0.2.1/32", "[::1]:7204": "::/64", "[2001:db8::1:2]:7204": "2001:db8::/64",
		"[fe80::1%lo]:7204": "fe80::1/128", "[::ffff:127.0.0.1]:7204": "127.0.0.1/32",
	} {
		require.Equal(t, netip.MustParsePrefix(want), Of(peer), peer)
	}
	require.Equal(t, netip.Prefix{}, Of("fake"))
}

func TestCrowded(t *testing.T) {
	for name, c := range map[string]struct {
		peers []string
		want  int
	}{
		"one":                       {[]string{"192.0.2.1:1"}, 0},
		"the oldest of one address": {[]string{"192.0.2.1:1", "192.0.2.1:2"}, 0},
		"not the oldest of all":     {[]string{"192.0.2.9:1", "192.0.2.1:1", "192.0.2.1:2"}, 1},
		"the oldest of equals":      {[]string{"192.0.2.9:1", "192.0.2.1:1"}, 0},
		"a network of IPv6":         {[]string{"192.0.2.9:1", "[2001:db8::1]:1", "[2001:db8:0:1::1]:1", "[2001:db8::2]:1"}, 1},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.want, Crowded(c.peers, Of)) })
	}
}
