package main

import (
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/cmd/internal/command"
)

// What --arbiter names, and mistakes with the flags that belong to it.
func TestParseArbiter(t *testing.T) {
	const mirror = "--target=iwarp://pm1/log,iwarp://pm2/log"
	for name, c := range map[string]struct {
		args      []string
		endpoints []string
		prefix    string
		tls       bool
		says      string // a usage error
	}{
		"none":                     {args: []string{mirror}},
		"one":                      {args: []string{mirror, "--arbiter=etcd://e1:2379"}, endpoints: []string{"e1:2379"}, prefix: "/pmnbd"},
		"three, TLS, a prefix":     {args: []string{mirror, "--arbiter=etcds://e1:2379,e2:2379,[::1]:2379/a/b"}, endpoints: []string{"e1:2379", "e2:2379", "[::1]:2379"}, prefix: "/a/b", tls: true},
		"one member is named":      {args: []string{logTarget, "--arbiter=etcd://e1:2379", "--standby", "--leg-timeout=1s"}, endpoints: []string{"e1:2379"}, prefix: "/pmnbd"},
		"another scheme":           {args: []string{mirror, "--arbiter=http://e1:2379"}, says: "use etcd://HOST:PORT"},
		"no port":                  {args: []string{mirror, "--arbiter=etcd://e1"}, says: "2379"},
		"no host":                  {args: []string{mirror, "--arbiter=etcd://:2379"}, says: "is not HOST:PORT"},
		"a comma too many":         {args: []string{mirror, "--arbiter=etcd://e1:2379,"}, says: "is not HOST:PORT"},
		"a standby of nobody":      {args: []string{mirror, "--standby"}, says: "--arbiter"},
		"a certificate alone":      {args: []string{mirror, "--arbiter=etcds://e1:2379", "--arbiter-cert=x"}, says: "belong together"},
		"a lease too short":        {args: []string{mirror, "--arbiter=etcd://e1:2379", "--arbiter-lease=1s"}, says: "from 2s to 1m0s"},
		"a lease too long":         {args: []string{mirror, "--arbiter=etcd://e1:2379", "--arbiter-lease=2m"}, says: "from 2s to 1m0s"},
		"a lease of odd length":    {args: []string{mirror, "--arbiter=etcd://e1:2379", "--arbiter-lease=2500ms"}, says: "whole seconds"},
		"two words":                {args: []string{logTarget, "--arbiter=etcd://e1:2379", "--degraded", "--without-arbiter"}, says: "--without-arbiter is for --degraded"},
		"without it":               {args: []string{logTarget, "--without-arbiter"}, says: "--without-arbiter is for --degraded"},
		"a member without mirror":  {args: []string{logTarget, "--arbiter=etcd://e1:2379", "--degraded-single"}, says: "use one of them"},
		"a file that is not there": {args: []string{mirror, "--arbiter=etcds://e1:2379", "--arbiter-ca=/nowhere"}, endpoints: []string{"e1:2379"}, prefix: "/pmnbd", tls: true},
	} {
		t.Run(name, func(t *testing.T) {
			cfg, err := parse(command.NewCall(c.args, io.Discard, io.Discard))
			if c.says != "" {
				require.ErrorContains(t, err, c.says)
				return
			}
			require.NoError(t, err)
			a := &cfg.arbiter
			require.Equal(t, c.endpoints, a.endpoints)
			require.Equal(t, c.prefix, a.prefix)
			require.Equal(t, c.tls, a.tls)
			require.Equal(t, c.endpoints != nil, cfg.member)
			if a.ca != "" {
				_, err := a.open()
				require.ErrorContains(t, err, "--arbiter-ca")
			}
		})
	}
}
