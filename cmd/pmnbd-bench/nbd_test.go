package main

import (
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"pmnbd/backend/mem"
	"pmnbd/cmd/internal/command"
	"pmnbd/nbd"
)

// serveMem serves a device in memory on a unix socket and on TCP, and returns
// their URIs.
func serveMem(t *testing.T, size uint64) (unix, tcp string) {
	t.Helper()
	dev, err := mem.New(size)
	require.NoError(t, err)
	s, err := nbd.New(nbd.Config{}, nbd.Export{Name: "mem", Device: dev})
	require.NoError(t, err)
	socket := filepath.Join(t.TempDir(), "s")
	served := make(chan error, 2)
	for _, l := range []struct{ network, address string }{{"unix", socket}, {"tcp", "127.0.0.1:0"}} {
		l, err := net.Listen(l.network, l.address)
		require.NoError(t, err)
		tcp = "nbd://" + l.Addr().String() + "/mem"
		go func() { served <- s.Serve(l) }()
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		require.NoError(t, s.Shutdown(ctx))
		require.NoError(t, <-served)
		require.NoError(t, <-served)
		require.NoError(t, dev.Close())
	})
	return "nbd+unix:///mem?socket=" + socket, tcp
}

func TestExports(t *testing.T) {
	unix, tcp := serveMem(t, 3<<20)
	const numbers = `( +[0-9.]+){9}$`
	for _, tc := range []struct {
		name string
		args []string
	}{
		{"one at a time", nil},
		{"deep", []string{"--depth=16"}},
		{"several connections", []string{"--depth=4", "--connections=3"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			args := append(tc.args, "--time=20ms", "--rounds=2", "--area=64M", "unix="+unix, "tcp="+tcp)
			code, stdout, stderr := runs(t, args...)
			require.Zero(t, code, stderr)
			require.Regexp(t, `(?m)^unix`+numbers, stdout)
			require.Regexp(t, `(?m)^tcp`+numbers, stdout)
		})
	}

	t.Run("suite", func(t *testing.T) {
		raw := filepath.Join(t.TempDir(), "raw.json")
		pid := strconv.Itoa(os.Getpid())
		code, stdout, stderr := runs(t, "--suite", "--time=10ms", "--rounds=1", "--json="+raw,
			"--pids=a="+pid, "--pids=b="+pid+","+pid, "a="+unix, "b="+tcp)
		require.Zero(t, code, stderr)
		require.Regexp(t, `(?m)^\| fua qd32 single \|`, stdout)
		require.Equal(t, len(suite())+2, strings.Count(stdout, "\n|"))
		require.FileExists(t, raw)
	})
	t.Run("ranges", func(t *testing.T) {
		code, stdout, stderr := runs(t, "--ranges=100", "--block=512", "--time=10ms", "--rounds=1", "--area=1M", "x="+unix)
		require.Zero(t, code, stderr)
		require.Contains(t, stdout, "flush of 100")
	})
	t.Run("an export that is not served", func(t *testing.T) {
		code, stdout, stderr := runs(t, "x="+tcp+"-")
		require.Equal(t, 1, code)
		require.Empty(t, stdout)
		require.Contains(t, stderr, "x: ")
		require.Contains(t, stderr, "mem-")
	})
	t.Run("too small for its connections", func(t *testing.T) {
		code, _, stderr := runs(t, "--connections=2", "--area=4K", "x="+tcp)
		require.Equal(t, 1, code)
		require.Contains(t, stderr, "too small")
	})
}

// A server that says nothing does not keep an interrupted run.
func TestInterrupt(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		nc, err := l.Accept()
		cancel()
		if err == nil {
			_, _ = io.Copy(io.Discard, nc) // until the other end is gone
			_ = nc.Close()
		}
	}()
	o, err := parse(command.NewCall([]string{"x=nbd://" + l.Addr().String()}, nil, nil))
	require.NoError(t, err)
	_, err = measure(ctx, o)
	require.Error(t, err)
}
