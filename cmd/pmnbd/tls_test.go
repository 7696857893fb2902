package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/cmd/internal/flags"
)

func TestTLSFlags(t *testing.T) {
	for _, c := range []struct {
		name, mode, dir string
		verify          bool
		err             string
	}{
		{"off", "off", "", false, ""},
		{"off, with certificates", "off", "/pki", false, "need --tls=on or --tls=require"},
		{"off, verifying", "off", "", true, "need --tls=on or --tls=require"},
		{"on, without certificates", "on", "", false, "--tls=on needs --tls-certificates"},
		{"require, without certificates", "require", "", true, "--tls=require needs --tls-certificates"},
		{"nonsense", "yes", "/pki", false, `--tls "yes": use off, on or require`},
		{"nothing", "", "", false, `--tls "": use off, on or require`},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg, must, err := serverTLS(c.mode, c.dir, c.verify)
			require.Nil(t, cfg)
			require.False(t, must)
			if c.err == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, flags.ErrUsage)
			require.ErrorContains(t, err, c.err)
		})
	}
}
