package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseTarget(t *testing.T) {
	for _, tc := range []struct {
		name, arg string
		want      target
	}{
		{"unix", "nbd+unix:///exp?socket=/run/s", target{label: "nbd+unix:///exp?socket=/run/s", network: "unix", address: "/run/s", export: "exp"}},
		{"the default export", "nbd+unix:///?socket=/run/s", target{label: "nbd+unix:///?socket=/run/s", network: "unix", address: "/run/s"}},
		{"a label before a query", "a b=nbd+unix:///?socket=/run/s", target{label: "a b", network: "unix", address: "/run/s"}},
		{"an escaped name", "nbd+unix:///a%20b?socket=/run/s", target{label: "nbd+unix:///a%20b?socket=/run/s", network: "unix", address: "/run/s", export: "a b"}},
		{"tcp", "x=nbd://10.0.0.1:7/exp", target{label: "x", network: "tcp", address: "10.0.0.1:7", export: "exp"}},
		{"the default port, IPv6", "x=nbd://[::1]", target{label: "x", network: "tcp", address: "[::1]:10809"}},
		{"disk", "disk:/var/tmp", target{label: "disk:/var/tmp", dir: "/var/tmp"}},
		{"labelled disk", "local=disk:.", target{label: "local", dir: "."}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := parseTarget(tc.arg)
			require.NoError(t, err)
			require.Equal(t, tc.want, got)
		})
	}
	for _, tc := range []struct{ name, arg, want string }{
		{"no scheme", "/dev/sda", "use [LABEL=]nbd+unix"},
		{"another scheme", "http://x/", "use [LABEL=]nbd+unix"},
		{"no URI at all", "nbd://[::1", "not a URI"},
		{"no socket", "nbd+unix:///exp", "socket=/PATH"},
		{"no host", "nbd:///exp", "HOST:PORT"},
		{"no directory", "disk:", "disk:DIR"},
		{"an empty label", "=disk:.", "empty label"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := parseTarget(tc.arg)
			require.ErrorContains(t, err, tc.want)
		})
	}
}
