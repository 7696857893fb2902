// Package command is the frame of a command line: a tree of commands, their help and
// version, and one line of text and an exit code for every error.
//
// It exists so that the three binaries answer alike. Each command declares its own flags
// and says what it does with them. The package imports cmd/internal/flags, plain,
// internal/release and persist/wire, for the numbers in --version.
package command

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/pflag"

	"pmnbd/cmd/internal/flags"
	"pmnbd/internal/plain"
)

// The exit codes of all binaries. exitUsage means a mistake on the command line or in the
// configuration file.
const exitOK, exitFailure, exitUsage = 0, 1, 2

// A Command is a binary, or a command below one.
type Command struct {
	// Name is the word that selects the command.
	Name string
	// Formats are the versions of the files that a binary keeps, for --version: "window file 5".
	Formats string
	// Help is the text that --help prints above the flags. It ends with one newline.
	Help string
	// Run declares the command's flags, calls Call.Parse, and does the work. It is nil if
	// the command does nothing without one of Commands.
	Run func(*Call) error
	// Commands are those below this one, in the order of its help.
	Commands []Command
}

// A Call is one command line for one command.
type Call struct {
	// Args follow the command's name.
	Args []string
	// Flags is where the command declares its flags.
	Flags *pflag.FlagSet
	// Stdout and Stderr are the process's.
	Stdout, Stderr io.Writer
}

// NewCall returns a call without flags.
func NewCall(args []string, stdout, stderr io.Writer) *Call {
	c := &Call{Args: args, Stdout: stdout, Stderr: stderr}
	c.Reset()
	return c
}

// Reset removes all flags, so that the command can declare them anew and parse again.
func (c *Call) Reset() {
	c.Flags = pflag.NewFlagSet("", pflag.ContinueOnError)
	c.Flags.SortFlags = false
	c.Flags.Usage = func() {} // pflag would print help to standard error
}

// Main runs the command line args of a binary and returns its exit code.
func (c *Command) Main(args []string, stdout, stderr io.Writer) int {
	return c.main(c.Name, NewCall(args, stdout, stderr))
}

// main is Main for a command whose full name, with those of the commands above it, is
// name.
func (c *Command) main(name string, call *Call) int {
	first := ""
	if len(call.Args) > 0 {
		first = call.Args[0]
	}
	for i := range c.Commands {
		if sub := &c.Commands[i]; sub.Name == first {
			call.Args = call.Args[1:]
			return sub.main(name+" "+first, call)
		}
	}
	return exit(call.Stderr, name, c.run(name, first, call))
}

func (c *Command) run(name, first string, call *Call) error {
	switch first {
	case "version", "--version", "-V":
		if name == c.Name { // the binary itself
			_, err := io.WriteString(call.Stdout, c.version())
			return err
		}
	case "man", "completion":
		if name == c.Name && len(c.Commands) > 0 {
			return c.generate(first, call.Stdout)
		}
	case "help":
		if len(c.Commands) > 0 { // to other commands it is an argument
			call.Args = []string{"--help"}
		}
	}
	run := c.Run
	if run == nil {
		run = c.missing
	}
	err := run(call)
	if !errors.Is(err, pflag.ErrHelp) {
		return err
	}
	text := c.Help
	if call.Flags.HasFlags() {
		text += "\nFlags:\n" + call.Flags.FlagUsages()
	}
	_, err = io.WriteString(call.Stdout, text)
	return err
}

// missing is Run of a command that needs one of its Commands.
func (c *Command) missing(call *Call) error {
	names := make([]string, 0, len(c.Commands))
	for _, sub := range c.Commands {
		names = append(names, sub.Name)
	}
	use := names[len(names)-1] + ", or --help"
	if more := names[:len(names)-1]; len(more) > 0 {
		use = strings.Join(more, ", ") + " or " + use
	}
	if len(call.Args) == 0 {
		return flags.Usagef("a command is missing: use %s", use)
	}
	if first := call.Args[0]; first != "--help" && first != "-h" {
		return flags.Usagef("unknown command %q: use %s", first, use)
	}
	return pflag.ErrHelp
}

// withCode is an error with an exit code of its own.
type withCode struct {
	error
	code int
}

func (e withCode) Unwrap() error { return e.error }

// WithCode returns err with the exit code that Main returns for it.
func WithCode(err error, code int) error { return withCode{err, code} }

// errSaid has no text: what is to be said was printed.
var errSaid = errors.New("")

// Exit returns an error for which Main prints nothing and returns code.
func Exit(code int) error { return withCode{errSaid, code} }

// Verdict prints text, which says all, and ends with code. If err is not nil Main prints that, too.
func Verdict(stdout io.Writer, text string, code int, err error) error {
	if _, failed := io.WriteString(stdout, text); failed != nil {
		return failed
	}
	switch {
	case err != nil:
		return WithCode(err, code)
	case code == exitOK:
		return nil
	}
	return Exit(code)
}

// Problems prints what is wrong with a configuration, a line for each error in err, and ends with
// the code of a mistake.
func Problems(call *Call, err error) error {
	var all strings.Builder
	var add func(error)
	add = func(err error) {
		if several, ok := err.(interface{ Unwrap() []error }); ok {
			for _, e := range several.Unwrap() {
				add(e)
			}
			return
		}
		all.WriteString(line(err) + "\n")
	}
	add(err)
	if _, failed := io.WriteString(call.Stderr, all.String()); failed != nil {
		return failed
	}
	return Exit(exitUsage)
}

// line is an error for people, in one line.
func line(err error) string {
	parts := strings.FieldsFunc(err.Error(), func(r rune) bool { return r == '\n' || r == '\r' })
	return plain.Text(strings.Join(parts, "; "))
}

// exit writes err, if there is one, to stderr as one line that starts with the command's
// name, and returns the exit code.
func exit(stderr io.Writer, name string, err error) int {
	if err == nil {
		return exitOK
	}
	if !errors.Is(err, errSaid) {
		_, _ = fmt.Fprintf(stderr, "%s: %s\n", name, line(err)) // without standard error the code has to do
	}
	own := withCode{code: exitFailure}
	if !errors.As(err, &own) && errors.Is(err, flags.ErrUsage) {
		return exitUsage
	}
	return own.code
}
