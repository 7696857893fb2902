package main

import (
	"bytes"
	"crypto/tls"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"pmnbd/cmd/internal/command"
	"pmnbd/cmd/internal/flags"
)

const (
	logTarget  = "--target=iwarp://pm1/log"
	dataTarget = "--target=iwarp://pm2/data"
)

// call is a command line for a command.
func call(args ...string) *command.Call { return command.NewCall(args, io.Discard, io.Discard) }

// What TestMistakes of test/e2e has is not here.
func TestParseServe(t *testing.T) {
	for name, c := range map[string]struct {
		args    []string
		exports string
		says    string // a usage error
	}{
		"one":                    {args: []string{logTarget}, exports: "log=iwarp://pm1:7204/log"},
		"one, named":             {args: []string{logTarget, "--export=a"}, exports: "a=iwarp://pm1:7204/log"},
		"two":                    {args: []string{logTarget, dataTarget}, exports: "log=iwarp://pm1:7204/log data=iwarp://pm2:7204/data"},
		"two, named":             {args: []string{logTarget, "--export=a", "--export=b", dataTarget}, exports: "a=iwarp://pm1:7204/log b=iwarp://pm2:7204/data"},
		"named as the other's":   {args: []string{logTarget, dataTarget, "--export=data", "--export=log"}, exports: "data=iwarp://pm1:7204/log log=iwarp://pm2:7204/data"},
		"two regions of a name":  {args: []string{logTarget, "--target=iwarp://pm2/log"}, says: `two exports are named "log"`},
		"a region twice":         {args: []string{logTarget, "--target=iwarp://pm1:7204/log", "--export=a", "--export=b"}, says: "is given twice"},
		"a long name":            {args: []string{logTarget, "--export", strings.Repeat("x", 4097)}, says: "at most 4096"},
		"a mirror":               {args: []string{"--target=iwarp://pm1/log,iwarp://pm2/copy"}, exports: "log=iwarp://pm1:7204/log,iwarp://pm2:7204/copy"},
		"a mirror and a region":  {args: []string{"--target=iwarp://pm1/log,iwarp://pm2/log", dataTarget, "--degraded", "--leg-timeout=0"}, exports: "log=iwarp://pm1:7204/log,iwarp://pm2:7204/log data=iwarp://pm2:7204/data"},
		"a mirror of one region": {args: []string{"--target=iwarp://pm1/log,iwarp://pm1:7204/log"}, says: "names iwarp://pm1:7204/log twice"},
		"a region in two":        {args: []string{"--target=iwarp://pm1/log,iwarp://pm2/log", "--target=iwarp://pm3/x,iwarp://pm2/log"}, says: "is given twice"},
		"one member, degraded":   {args: []string{logTarget, "--degraded", "--leg-timeout=1s"}, exports: "log=iwarp://pm1:7204/log"},
		"a member alone":         {args: []string{logTarget, "--degraded-single"}, exports: "log=iwarp://pm1:7204/log"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg, err := parse(call(c.args...))
			if c.says != "" {
				require.ErrorIs(t, err, flags.ErrUsage)
				require.ErrorContains(t, err, c.says)
				return
			}
			require.NoError(t, err)
			var exports []string
			for _, e := range cfg.exports {
				var members []string
				for _, m := range e.targets {
					members = append(members, m.String())
				}
				exports = append(exports, e.name+"="+strings.Join(members, ","))
			}
			require.Equal(t, c.exports, strings.Join(exports, " "))
		})
	}
}

// Beyond loopback clients prove who they are, or the operator says that they need not.
func TestBeyondLoopback(t *testing.T) {
	dir := t.TempDir()
	ca := issue(t, nil, "ca", 1, nil)
	server := issue(t, ca, "server", 2, nil)
	write(t, dir, map[string]string{tlsCA: ca.certPEM(), tlsCert: server.certPEM(), tlsKey: server.keyPEM(t)})
	certificates := "--tls-certificates=" + dir
	for name, c := range map[string]struct {
		listen string
		more   []string
		ok     bool
	}{
		"loopback":                     {"tcp:10809", nil, true},
		"loopback, IPv6":               {"tcp:[::1]:10809", nil, true},
		"loopback, another of them":    {"tcp:127.1.2.3:10809", nil, true},
		"loopback as IPv6":             {"tcp:[::ffff:127.0.0.1]:10809", nil, true},
		"a unix socket":                {"unix:/run/s", nil, true},
		"every address":                {"tcp:0.0.0.0:10809", nil, false},
		"every address, IPv6":          {"tcp:[::]:10809", nil, false},
		"an address":                   {"tcp:192.0.2.1:10809", nil, false},
		"TLS as clients like":          {"tcp:0.0.0.0:10809", []string{"--tls=on", certificates}, false},
		"TLS as they like, verified":   {"tcp:0.0.0.0:10809", []string{"--tls=on", "--tls-verify-peer", certificates}, false},
		"TLS, whoever it is":           {"tcp:0.0.0.0:10809", []string{"--tls=require", certificates}, false},
		"TLS, verified":                {"tcp:0.0.0.0:10809", []string{"--tls=require", "--tls-verify-peer", certificates}, true},
		"a network of one's own":       {"tcp:0.0.0.0:10809", []string{"--insecure-no-auth"}, true},
		"behind one that is all right": {"tcp:192.0.2.1:10809", []string{"--listen=tcp:10809"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parse(call(append(c.more, logTarget, "--listen="+c.listen)...))
			if c.ok {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, flags.ErrUsage)
			require.ErrorContains(t, err, "--tls=require --tls-verify-peer")
			require.ErrorContains(t, err, "--insecure-no-auth")
		})
	}
}

func TestServeFlags(t *testing.T) {
	cfg, err := parse(call(logTarget))
	require.NoError(t, err)
	require.Equal(t, 64, cfg.connections)
	require.Equal(t, 10*time.Second, cfg.handshake)
	require.Empty(t, cfg.metrics.String())
	cfg, err = parse(call(logTarget, "--read-only", "--max-connections=3", "--handshake-timeout=5s", "--socket-mode=660"))
	require.NoError(t, err)
	require.True(t, cfg.readOnly)
	require.Equal(t, 3, cfg.connections)
	require.Equal(t, 5*time.Second, cfg.handshake)
	require.EqualValues(t, 0o660, cfg.socketMode)

	require.Equal(t, []string{"nbd"}, cfg.schemes())
	cfg.tls = &tls.Config{MinVersion: tls.VersionTLS13}
	require.Equal(t, []string{"nbds", "nbd"}, cfg.schemes())
	cfg.requireTLS = true
	require.Equal(t, []string{"nbds"}, cfg.schemes())

	var help bytes.Buffer
	require.Zero(t, run([]string{"serve", "--help"}, &help, io.Discard))
	for _, s := range []string{"--export name", "--tls off, on or require", "--read-only", "--max-connections N", "--handshake-timeout duration", "systemd", "(default 64M)"} {
		require.Contains(t, help.String(), s)
	}
}
