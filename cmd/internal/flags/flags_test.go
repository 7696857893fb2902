package flags

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/internal/endpoint"
	"pmnbd/rdma/verbs"
)

func TestParseSize(t *testing.T) {
	for _, c := range []struct {
		in   string
		want Size
		ok   bool
	}{
		{"0", 0, true},
		{"4096", 4096, true},
		{"1K", 1 << 10, true},
		{"64M", 64 << 20, true},
		{"3G", 3 << 30, true},
		{"2T", 2 << 40, true},
		{"8388607T", 8388607 << 40, true},
		{"9223372036854775807", math.MaxInt64, true},
		{"8388608T", 0, false},
		{"9223372036854775808", 0, false},
		{"18446744073709551615T", 0, false},
		{"18446744073709551616", 0, false},
		{"", 0, false},
		{"K", 0, false},
		{"-1", 0, false},
		{"+1", 0, false},
		{"1k", 0, false},
		{"1KB", 0, false},
		{"1 K", 0, false},
		{"1.5G", 0, false},
		{"0x10", 0, false},
		{"1_0", 0, false},
	} {
		t.Run(fmt.Sprintf("%q", c.in), func(t *testing.T) {
			got, err := ParseSize(c.in)
			if !c.ok {
				require.ErrorIs(t, err, ErrUsage)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.want, got)
		})
	}
}

func TestSizeString(t *testing.T) {
	for want, s := range map[string]Size{"0": 0, "1023": 1023, "1K": 1024, "1025": 1025, "1536K": 1536 << 10, "1T": 1 << 40, "1024T": 1 << 50} {
		require.Equal(t, want, s.String())
	}
}

func TestSizeRounded(t *testing.T) {
	for want, s := range map[string]Size{"0": 0, "1023": 1023, "1K": 1024, "1.50K": 1536, "12.3M": 12_900_000, "1G": 1 << 30, "999.0G": 999<<30 + 1<<20, "2048T": 1 << 51} {
		require.Equal(t, want, s.Rounded())
	}
}

func FuzzParseSize(f *testing.F) {
	for _, s := range []string{"0", "1K", "8388607T", "99999999999999999999G", "é"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n, err := ParseSize(s)
		if err != nil {
			return
		}
		again, err := ParseSize(n.String())
		require.NoError(t, err)
		require.Equal(t, n, again)
	})
}

func TestEndpoints(t *testing.T) {
	for _, c := range []struct {
		in             string
		target, listen bool
		want           endpoint.Endpoint
		uri            string
	}{
		{"iwarp://pm1@192.0.2.1/log", true, false, endpoint.Endpoint{Provider: "iwarp", Name: "pm1", Host: "192.0.2.1", Port: 7204, Region: "log"}, "iwarp://pm1@192.0.2.1:7204/log"},
		{"iwarp://127.0.0.1:7204/log", true, false, endpoint.Endpoint{Provider: "iwarp", Host: "127.0.0.1", Port: 7204, Region: "log"}, "iwarp://127.0.0.1:7204/log"},
		{"iwarp://pm1/log-2.a_b", true, false, endpoint.Endpoint{Provider: "iwarp", Host: "pm1", Port: 7204, Region: "log-2.a_b"}, "iwarp://pm1:7204/log-2.a_b"},
		{"iwarp://[::1]:99/x", true, false, endpoint.Endpoint{Provider: "iwarp", Host: "::1", Port: 99, Region: "x"}, "iwarp://[::1]:99/x"},
		{"iwarp://[::1]:0", false, true, endpoint.Endpoint{Provider: "iwarp", Host: "::1", Port: 0, Region: ""}, "iwarp://[::1]:0"},
		{"iwarp://0.0.0.0", false, true, endpoint.Endpoint{Provider: "iwarp", Host: "0.0.0.0", Port: 7204, Region: ""}, "iwarp://0.0.0.0:7204"},
		{"iwarp://h:1/", false, true, endpoint.Endpoint{Provider: "iwarp", Host: "h", Port: 1, Region: ""}, "iwarp://h:1"},
		{in: "iwarp://127.0.0.1:0/log"},
		{in: "iwarp://:7204"},
		{in: "iwarp:///log"},
		{in: "iwarp://h:65536/log"},
		{in: "iwarp://h:-1/log"},
		{in: "iwarp://h:x/log"},
		{in: "iwarp://h/a/b"},
		{in: "iwarp://a b@h/a"},
		{in: "iwarp://@h/a"},
		{in: "iwarp://pm1:x@h/a"},
		{in: "iwarp://pm1@h:1"},
		{in: "iwarp://h/a?b=c"},
		{in: "iwarp://h/a?"},
		{in: "iwarp://h/a#b"},
		{in: "iwarp:h/a"},
		{"rdma://h/a", verbs.Built, false, endpoint.Endpoint{Provider: "rdma", Host: "h", Port: 7204, Region: "a"}, "rdma://h:7204/a"},
		{"rdma://h:1", false, verbs.Built, endpoint.Endpoint{Provider: "rdma", Host: "h", Port: 1, Region: ""}, "rdma://h:1"},
		{in: "tcp:h:1"},
		{in: "h:1/a"},
		{in: ""},
	} {
		t.Run(c.in, func(t *testing.T) {
			for _, way := range []struct {
				name  string
				ok    bool
				parse func(string) (endpoint.Endpoint, error)
			}{{"target", c.target, ParseTarget}, {"listen", c.listen, ParseListen}} {
				got, err := way.parse(c.in)
				if !way.ok {
					require.ErrorIs(t, err, ErrUsage, way.name)
					continue
				}
				require.NoError(t, err, way.name)
				require.Equal(t, c.want, got, way.name)
				require.Equal(t, c.uri, got.String(), way.name)
			}
		})
	}
}

func FuzzParseTarget(f *testing.F) {
	f.Add("iwarp://[::1]:99/x")
	f.Add("iwarp://pm1/%2f")
	f.Fuzz(func(t *testing.T, s string) {
		e, err := ParseTarget(s)
		if err != nil {
			return
		}
		again, err := ParseTarget(e.String())
		require.NoError(t, err, "%q → %q", s, e)
		require.Equal(t, e, again)
	})
}
