package main

import (
	"net"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"pmnbd/cmd/internal/daemon"
)

// A signal that comes before the first region is opened ends the start, though the target never answers.
func TestSignalBeforeTheFirstRegion(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, silent.Close()) }()
	dir := t.TempDir()
	c := call("--target=iwarp://"+silent.Addr().String()+"/log", "--listen=unix:"+filepath.Join(dir, "s"),
		"--control=unix:"+filepath.Join(dir, "control"), "--state-dir="+dir, "--window-dir="+t.TempDir())
	cfg, err := parse(c)
	require.NoError(t, err)
	signalled, stop := daemon.UntilSignal()
	defer stop()
	require.NoError(t, syscall.Kill(syscall.Getpid(), syscall.SIGTERM))
	<-signalled.Done()
	_, err = open(signalled, c, cfg, zap.NewNop())
	require.ErrorContains(t, err, "a signal ended the start")
	require.NotContains(t, err.Error(), "is pmnbd-target serving there?")
}
