package main

import (
	"bytes"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/cmd/pmnbd/internal/attach"
	"pmnbd/cmd/pmnbd/internal/kernel"
)

func TestParseAttach(t *testing.T) {
	for _, tc := range []struct {
		args []string
		want attach.Want
		err  string
	}{
		{args: []string{"/dev/nbd3"}},
		{args: []string{"log", "/dev/nbd3"}, want: attach.Want{Export: "log"}},
		{args: []string{"nbd+unix:///a%20b?socket=/run/x%26y", "/dev/nbd3"}, want: attach.Want{Export: "a b", Socket: "/run/x&y"}},
		{args: []string{"nbd+unix:///?socket=/run/x", "/dev/nbd3", "--timeout", "90s"}, want: attach.Want{Socket: "/run/x"}},
		{args: nil, err: "/dev/nbdX is missing"},
		{args: []string{"/dev/sda"}, err: "use /dev/nbd0"},
		{args: []string{"/dev/nbd3", "log"}, err: "use /dev/nbd0"},
		{args: []string{"a", "/dev/nbd3", "b"}, err: "too many"},
		{args: []string{"nbd+unix:///a", "/dev/nbd3"}, err: "nbd+unix:///EXPORT?socket=PATH"},
		{args: []string{"nbd+unix://host/a?socket=x", "/dev/nbd3"}, err: "nbd+unix:///EXPORT?socket=PATH"},
		{args: []string{"/dev/nbd3", "--connections", "0"}, err: "use 1 to 64"},
		{args: []string{"/dev/nbd3", "--connections", "65"}, err: "use 1 to 64"},
		{args: []string{"/dev/nbd3", "--timeout", "10ms"}, err: "use whole seconds"},
		{args: []string{"/dev/nbd3", "--timeout", "1500ms"}, err: "use whole seconds"},
		{args: []string{"/dev/nbd3", "--timeout", "0"}, err: "use whole seconds"},
	} {
		cfg, byUblk, err := parseAttach(call(tc.args...))
		if tc.err != "" {
			require.ErrorContains(t, err, tc.err, tc.args)
			continue
		}
		require.NoError(t, err, tc.args)
		require.False(t, byUblk)
		require.Equal(t, tc.want, cfg.Want)
		require.Equal(t, kernel.Device{Index: 3, Root: "/"}, cfg.Device)
	}
	for _, args := range [][]string{{"attach", "--help"}, {"detach", "--help"}} {
		var out, errs bytes.Buffer
		require.Zero(t, run(args, &out, &errs))
		require.Contains(t, out.String(), "--timeout")
	}
	for _, args := range [][]string{{"attach"}, {"detach"}, {"detach", "/dev/nbd"}, {"detach", "/dev/nbd0", "--timeout", "0s"}} {
		require.Equal(t, 2, run(args, io.Discard, io.Discard), args)
	}
}
