package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/cmd/internal/command"
	"pmnbd/cmd/internal/flags"
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

// etcd knows this host by the key. A user who can read the key can change the record of a mirror.
func TestArbiterKeyIsSecret(t *testing.T) {
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	s := issue(t, nil, "host", 1, nil)
	write(t, dir, map[string]string{"cert.pem": s.certPEM(), "key.pem": s.keyPEM(t)})
	a := arbiterSpec{
		uri: "etcds://127.0.0.1:1", endpoints: []string{"127.0.0.1:1"}, prefix: arbiterPrefix, tls: true,
		cert: cert, key: key, lease: defaultArbiterLease,
	}
	for _, mode := range []os.FileMode{0o644, 0o640} {
		require.NoError(t, os.Chmod(key, mode))
		_, err := a.open()
		require.ErrorContains(t, err, fmt.Sprintf("--arbiter-cert and --arbiter-key: %s has mode %04o", key, mode))
	}
	require.NoError(t, os.Chmod(key, 0o600))
	etcd, err := a.open()
	require.NoError(t, err)
	require.NoError(t, etcd.Close())
}

// What the file says for an arbiter harms nobody where the command line decides about that. Elsewhere it is as
// wrong as on the command line.
func TestArbiterOfFile(t *testing.T) {
	const export = "[[export]]\ntarget = [\"iwarp://pm1/log\", \"iwarp://pm2/log\"]\n"
	const none, plain = "--arbiter-lease is for an arbiter: name that with --arbiter, or leave --arbiter-lease out", "--arbiter-ca is for TLS, and --arbiter etcd://e1:2379 has none: use etcds://"
	gone := []string{"--degraded", "--without-arbiter"}
	for name, c := range map[string]struct {
		file string
		args []string
		says string // a usage error
	}{
		"a lease, and it is gone":           {file: `arbiter-lease = "9s"`, args: gone},
		"a CA, and it is gone":              {file: `arbiter-ca = "/ca"`, args: gone},
		"a certificate, and it is gone":     {file: "arbiter-cert = \"/c\"\narbiter-key = \"/k\"", args: gone},
		"a standby, and it is gone":         {file: "standby = true", args: gone},
		"a member alone":                    {file: "standby = true\narbiter-lease = \"9s\"\nleg-timeout = \"5s\"", args: []string{logTarget, "--degraded-single"}},
		"another one, without TLS":          {file: "arbiter = \"etcds://e1:2379\"\narbiter-ca = \"/ca\"", args: []string{"--arbiter=etcd://localhost:2379"}},
		"another one, with TLS":             {file: "arbiter = \"etcd://e1:2379\"\narbiter-lease = \"9s\"", args: []string{"--arbiter=etcds://e2:2379"}},
		"a lease alone":                     {file: `arbiter-lease = "9s"`, says: none},
		"a standby alone":                   {file: "standby = true", says: "--standby waits for a lease"},
		"a CA without TLS":                  {file: "arbiter = \"etcd://e1:2379\"\narbiter-ca = \"/ca\"", says: plain},
		"a CA without TLS, by a flag":       {file: `arbiter-ca = "/x"`, args: []string{"--arbiter=etcd://e1:2379", "--arbiter-ca=/ca"}, says: plain},
		"a lease by a flag, and it is gone": {file: `arbiter-lease = "9s"`, args: append(gone, "--arbiter-lease=8s"), says: none},
		"it is gone, and in the file":       {file: `arbiter = "etcd://e1:2379"`, args: gone, says: "not beside --arbiter"},
		"a member alone, and a flag":        {args: []string{logTarget, "--degraded-single", "--leg-timeout=5s"}, says: "--leg-timeout is for mirrors"},
		"a setting of mirrors, and none":    {file: `leg-timeout = "5s"`, args: []string{logTarget}, says: "--leg-timeout is for mirrors"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parsed(t, c.file+"\n"+export, c.args...)
			if c.says != "" {
				require.ErrorIs(t, err, flags.ErrUsage)
				require.ErrorContains(t, err, c.says)
				return
			}
			require.NoError(t, err)
		})
	}
}
