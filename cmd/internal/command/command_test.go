package command

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"pmnbd/cmd/internal/flags"
)

func TestCommands(t *testing.T) {
	echo := func(call *Call) error {
		loud := call.Flags.Bool("loud", false, "say it loudly")
		if err := call.Parse("[…]"); err != nil {
			return err
		}
		_, err := fmt.Fprint(call.Stdout, *loud, call.Flags.Args())
		return err
	}
	tree := Command{Name: "prog", Help: "All of it.\n", Commands: []Command{
		{Name: "echo", Help: "Says it.\n", Run: echo},
		{Name: "quiet", Help: "Says nothing.\n", Run: func(call *Call) error { return call.Parse() }},
		{Name: "more", Help: "More of it.\n", Commands: []Command{
			{Name: "one", Run: echo},
			{Name: "two", Run: func(*Call) error { return WithCode(fmt.Errorf("it: %w", flags.Usagef("odd")), 7) }},
		}},
	}}
	single := Command{Name: "prog", Commands: []Command{{Name: "only", Run: echo}}}
	alone := Command{Name: "prog", Help: "Does it.\n", Run: echo, Commands: []Command{{Name: "quiet"}}}
	const echoHelp = "\nFlags:\n      --loud   say it loudly\n"
	for _, tc := range []struct {
		tree   Command
		args   []string
		code   int
		stdout string
		stderr string
	}{
		{tree, nil, 2, "", "prog: a command is missing: use echo, quiet or more, or --help\n"},
		{tree, []string{"ecko", "x"}, 2, "", `prog: unknown command "ecko": use echo, quiet or more, or --help` + "\n"},
		{tree, []string{"--loud"}, 2, "", `prog: unknown command "--loud": use echo, quiet or more, or --help` + "\n"},
		{tree, []string{"help"}, 0, "All of it.\n", ""},
		{tree, []string{"--help"}, 0, "All of it.\n", ""},
		{tree, []string{"-h"}, 0, "All of it.\n", ""},
		{tree, []string{"echo", "a", "--loud"}, 0, "true [a]", ""},
		{tree, []string{"echo", "help"}, 0, "false [help]", ""},
		{tree, []string{"echo", "version"}, 0, "false [version]", ""},
		{tree, []string{"echo", "--help"}, 0, "Says it.\n" + echoHelp, ""},
		{tree, []string{"quiet", "-h"}, 0, "Says nothing.\n", ""},
		{tree, []string{"quiet", "x"}, 2, "", `prog quiet: "x" is one argument too many: this command takes flags only` + "\n"},
		{tree, []string{"more"}, 2, "", "prog more: a command is missing: use one or two, or --help\n"},
		{tree, []string{"more", "--version"}, 2, "", `prog more: unknown command "--version": use one or two, or --help` + "\n"},
		{tree, []string{"more", "help"}, 0, "More of it.\n", ""},
		{tree, []string{"more", "one", "b"}, 0, "false [b]", ""},
		{tree, []string{"more", "two"}, 7, "", "prog more two: it: odd\n"},
		{tree, []string{"version"}, 0, tree.version(), ""},
		{tree, []string{"-V"}, 0, tree.version(), ""},
		{single, nil, 2, "", "prog: a command is missing: use only, or --help\n"},
		{alone, nil, 0, "false []", ""},
		{alone, []string{"b"}, 0, "false [b]", ""},
		{alone, []string{"help"}, 0, "Does it.\n" + echoHelp, ""},
		{alone, []string{"--help"}, 0, "Does it.\n" + echoHelp, ""},
		{alone, []string{"--version"}, 0, tree.version(), ""},
	} {
		var out, errs bytes.Buffer
		require.Equal(t, tc.code, tc.tree.Main(tc.args, &out, &errs), tc.args)
		require.Equal(t, tc.stdout, out.String(), tc.args)
		require.Equal(t, tc.stderr, errs.String(), tc.args)
	}
}

func TestParse(t *testing.T) {
	call := func(args ...string) *Call { return NewCall(args, io.Discard, io.Discard) }
	for _, c := range []struct {
		name string
		args []string
		err  string
	}{
		{"all", []string{"a", "--size", "4K", "b"}, ""},
		{"missing", []string{"a"}, "PATH is missing: give NAME PATH"},
		{"too many", []string{"a", "b", "c"}, `"c" is one argument too many: give NAME PATH`},
		{"unknown flag", []string{"--sise", "1"}, "unknown flag: --sise (flags here: --size --wait --lanes --file --other --dir --help)"},
		{"no unit", []string{"--wait", "30"}, `--wait: "30" has no unit: use 30s for seconds, or another of ms, s, m and h`},
		{"no number", []string{"--lanes", "two"}, `--lanes: "two" is not a whole number`},
		{"an empty file", []string{"--file="}, "--file is empty: give it a value, or leave the flag out"},
		{"an empty file that may be", []string{"a", "--size", "4K", "b", "--other="}, ""},
		{"an empty directory with a default", []string{"a", "--size", "4K", "b", "--dir="}, ""},
		{"bad value", []string{"--size", "x"}, `--size: "x" is not a size: use bytes, or a whole number and K, M, G or T (binary), such as 64M`},
	} {
		t.Run(c.name, func(t *testing.T) {
			call := call(c.args...)
			var size flags.Size
			call.Flags.Var(&size, "size", "")
			call.Flags.Duration("wait", 0, "")
			call.Flags.Int("lanes", 1, "")
			call.Flags.String("file", "", "")
			call.Flags.String("other", "", "")
			call.Flags.Lookup("other").Annotations = map[string][]string{MayBeEmpty: nil}
			call.Flags.String("dir", "/run", "") // its command looks at it
			err := call.Parse("NAME", "PATH")
			if c.err == "" {
				require.NoError(t, err)
				require.Equal(t, flags.Size(4096), size)
				return
			}
			require.ErrorIs(t, err, flags.ErrUsage)
			require.EqualError(t, err, c.err)
		})
	}
	for n, err := range []string{"", "", `"b" is one argument too many: give [NAME]`} {
		got := call([]string{"a", "b"}[:n]...).Parse("[NAME]")
		if err == "" {
			require.NoError(t, got)
		} else {
			require.ErrorContains(t, got, err)
		}
	}
	for n := range 4 {
		err := call([]string{"a", "b", "c"}[:n]...).Parse("DIR", "[…]")
		require.Equal(t, n == 0, err != nil, "%d of DIR […]: %v", n, err)
	}
	require.Equal(t, pflag.ErrHelp, call("--help").Parse())
	require.ErrorContains(t, call("-x").Parse(), "there are no flags here but --help")
}

func TestExit(t *testing.T) {
	for _, c := range []struct {
		err  error
		code int
		line string
	}{
		{nil, exitOK, ""},
		{errors.New("no room"), exitFailure, "cmd: no room\n"},
		{flags.Usagef("%q is bad", "x"), exitUsage, "cmd: \"x\" is bad\n"},
		{fmt.Errorf("--size: %w", flags.Usagef("bad")), exitUsage, "cmd: --size: bad\n"},
		{errors.Join(WithCode(errors.New("lost"), 3), errors.New("two")), 3, "cmd: lost; two\n"},
		{errors.New("it says: \x1b[2J\u202e\xff"), exitFailure, `cmd: it says: \x1b[2J\u202e\xff` + "\n"},
		{errors.Join(errors.New("one"), errors.New("two")), exitFailure, "cmd: one; two\n"},
	} {
		var out bytes.Buffer
		require.Equal(t, c.code, exit(&out, "cmd", c.err))
		require.Equal(t, c.line, out.String())
	}
}
