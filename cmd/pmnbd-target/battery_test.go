package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pmnbd/persist/target"
)

func TestParseBattery(t *testing.T) {
	for name, tt := range map[string]struct {
		text string
		want target.Battery
		err  string
	}{
		"upsc":         {text: "battery.charge: 100\nbattery.runtime: 1234\nups.model: Smart-UPS: 1500\nups.status: OL CHRG\n", want: target.Battery{Runtime: 1234 * time.Second, Known: true}},
		"on battery":   {text: "ups.status: OB DISCHRG\nbattery.runtime: 90.5", want: target.Battery{OnBattery: true, Runtime: 90500 * time.Millisecond, Known: true}},
		"no runtime":   {text: "ups.status: OB\n", want: target.Battery{OnBattery: true}},
		"low":          {text: "ups.status: OB LB\nbattery.runtime: 30\n", want: target.Battery{OnBattery: true, Weak: "LB", Runtime: 30 * time.Second, Known: true}},
		"low, charges": {text: "ups.status: OL LB\n", want: target.Battery{Weak: "LB"}},
		"shut down":    {text: "ups.status: FSD OL\n", want: target.Battery{Weak: "FSD"}},
		"bypass":       {text: "ups.status: BYPASS\n", want: target.Battery{Weak: "BYPASS"}},
		"two, the worst": {
			text: "ups.status: OB\nbattery.runtime: 50\nups.status: OL\nbattery.runtime: 900\n",
			want: target.Battery{OnBattery: true, Runtime: 50 * time.Second, Known: true},
		},
		"two, of which one says no time": {
			text: "ups.status: OB\nups.status: OL\nbattery.runtime: 900\n",
			want: target.Battery{OnBattery: true},
		},
		"no space, CRLF":        {text: "ups.status:OL\r\nbattery.runtime:7\r\n", want: target.Battery{Runtime: 7 * time.Second, Known: true}},
		"another key":           {text: "ups.status.x: OL\ninput.ups.status: OL\n", err: "it prints no line ups.status"},
		"nothing":               {err: "it prints no line ups.status"},
		"not yet known":         {text: "ups.status: WAIT\n", err: `ups.status is "WAIT": neither OL (on line) nor OB (on battery)`},
		"one not known":         {text: "ups.status: OL\nups.status: WAIT\n", err: "neither OL"},
		"a word with OL in it":  {text: "ups.status: COLD\n", err: "neither OL"},
		"an empty status":       {text: "ups.status:\n", err: "neither OL"},
		"a runtime in words":    {text: "ups.status: OL\nbattery.runtime: long\n", err: `battery.runtime is "long": not a number of seconds`},
		"a negative runtime":    {text: "ups.status: OL\nbattery.runtime: -1\n", err: "not a number of seconds"},
		"a runtime for ever":    {text: "ups.status: OL\nbattery.runtime: inf\n", err: "not a number of seconds"},
		"a runtime that is NaN": {text: "ups.status: OL\nbattery.runtime: nan\n", err: "not a number of seconds"},
		"a runtime of years":    {text: "ups.status: OL\nbattery.runtime: 1e300\n", err: "not a number of seconds"},
		"commands to terminals": {text: "ups.status: \x1b[2J\n", err: `ups.status is "\x1b[2J"`},
	} {
		t.Run(name, func(t *testing.T) {
			b, err := parseBattery(tt.text)
			if tt.err != "" {
				require.ErrorContains(t, err, tt.err)
			} else {
				require.NoError(t, err)
			}
			require.Equal(t, tt.want, b)
		})
	}
}

// FuzzParseBattery: whatever a command prints, the answer is an error or makes sense.
func FuzzParseBattery(f *testing.F) {
	f.Add("battery.runtime: 1234\nups.status: OL CHRG\n")
	f.Add("ups.status: OB LB\nbattery.runtime: 1e9\n")
	f.Fuzz(func(t *testing.T, text string) {
		b, err := parseBattery(text)
		if err != nil {
			require.Zero(t, b)
			require.NotContains(t, err.Error(), "\n")
			return
		}
		require.GreaterOrEqual(t, b.Runtime, time.Duration(0))
		require.LessOrEqual(t, b.Runtime, maxRuntime)
		require.True(t, b.Known || b.Runtime == 0)
		require.True(t, b.OnBattery || b.Weak != "" || strings.Contains(text, "OL"))
	})
}

func TestBatteryCommand(t *testing.T) {
	for name, tt := range map[string]struct {
		command string
		want    target.Battery
		err     string
	}{
		"prints":         {command: "printf ups.status:OB\\nbattery.runtime:9\\n", want: target.Battery{OnBattery: true, Runtime: 9 * time.Second, Known: true}},
		"fails":          {command: "ls /no/such/ups", err: "ls: exit status 2: ls: cannot access '/no/such/ups'"},
		"is not there":   {command: "/no/such/command", err: "no such file or directory"},
		"prints no end":  {command: "head -c 70000 /dev/zero", err: "head printed more than 65536 bytes"},
		"prints nothing": {command: "true", err: "it prints no line ups.status"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("LC_ALL", "C")
			var c batteryCommand
			require.NoError(t, c.UnmarshalText([]byte(tt.command)))
			b, err := c.asks()(t.Context())
			if tt.err != "" {
				require.ErrorContains(t, err, tt.err)
			} else {
				require.NoError(t, err)
			}
			require.Equal(t, tt.want, b)
		})
	}
	t.Run("hangs, with a child that has the pipe", func(t *testing.T) {
		dir := t.TempDir()
		began := filepath.Join(dir, "began")
		require.NoError(t, unix.Mkfifo(began, 0o600))
		script := filepath.Join(dir, "script")
		require.NoError(t, os.WriteFile(script, []byte("sleep 1h &\necho yes >"+began+"\nwait\n"), 0o600))
		var c batteryCommand
		require.NoError(t, c.UnmarshalText([]byte("sh "+script)))
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			defer cancel()
			_, _ = os.ReadFile(began)
		}()
		_, err := c.ask(ctx)
		require.ErrorContains(t, err, "signal: killed")
	})
	t.Run("apcupsd", func(t *testing.T) {
		script, err := filepath.Abs("../../dist/power/apcupsd-battery")
		require.NoError(t, err)
		bin := t.TempDir()
		t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
		for says, want := range map[string]target.Battery{
			"STATUS   : ONLINE \nTIMELEFT : 47.5 Minutes\n":         {Runtime: 2850 * time.Second, Known: true},
			"STATUS   : ONBATT LOWBATT \nTIMELEFT : 2.0 Minutes\n":  {OnBattery: true, Weak: "LB", Runtime: 2 * time.Minute, Known: true},
			"STATUS   : ONLINE NOBATT \nTIMELEFT : 47.0 Minutes\n":  {Weak: "LB", Runtime: 47 * time.Minute, Known: true},
			"STATUS   : SHUTTING DOWN ONBATT\nNUMXFERS : 1\n":       {OnBattery: true, Weak: "FSD"},
			"STATUS   : COMMLOST ONBATT\nTIMELEFT : 47.0 Minutes\n": {},
		} {
			require.NoError(t, os.WriteFile(filepath.Join(bin, "apcaccess"), []byte("#!/bin/sh\ncat <<'END'\n"+says+"END\n"), 0o700))
			var c batteryCommand
			require.NoError(t, c.UnmarshalText([]byte("sh "+script)))
			b, err := c.ask(t.Context())
			require.Equal(t, want, b, says)
			require.Equal(t, want == target.Battery{}, err != nil, "%s: %v", says, err)
		}
	})
	var none batteryCommand
	require.Nil(t, none.asks())
	require.ErrorContains(t, none.UnmarshalText([]byte("  ")), "it names no command")
}
