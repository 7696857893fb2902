// Package flags is what the command lines of pmnbd and pmnbd-target share: the
// values that both take (sizes, durations, paths, endpoints), the exit codes, and errors of one
// line.
//
// It exists so that the two binaries read and complain alike. It owns no flag;
// each command declares its own. It imports rdma/verbs, for whether this build
// has it, and plain.
package flags

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"pmnbd/plain"
)

// Exit codes of both binaries.
const (
	// ExitOK says that what was asked for was done.
	ExitOK = 0
	// ExitFailure says that it could not be done.
	ExitFailure = 1
	// ExitUsage says that it was not understood.
	ExitUsage = 2
)

// ErrUsage marks errors of a command line. Such an error says what is wrong and
// what would be right.
var ErrUsage = errors.New("usage")

type usageError struct{ text string }

func (e usageError) Error() string { return e.text }

// Is makes every usageError an ErrUsage.
func (e usageError) Is(target error) bool { return target == ErrUsage }

// Usagef makes an error that is ErrUsage.
func Usagef(format string, args ...any) error { return usageError{fmt.Sprintf(format, args...)} }

// Parse parses args into set and wants positional arguments with the given names,
// exactly; those in brackets, at the end, may be missing, and […] stands for any
// number of them. pflag.ErrHelp is returned as it is; every other error is ErrUsage.
func Parse(set *pflag.FlagSet, args []string, positional ...string) error {
	err := set.Parse(args)
	if errors.Is(err, pflag.ErrHelp) {
		return pflag.ErrHelp
	}
	if value := (*pflag.InvalidValueError)(nil); errors.As(err, &value) {
		return Usagef("--%s: %v", value.GetFlag().Name, wrongNumber(errors.Unwrap(value))) // which shows the value
	}
	if err != nil {
		return Usagef("%v (%s)", err, names(set))
	}
	want := "give " + strings.Join(positional, " ")
	if len(positional) == 0 {
		want = "this command takes flags only"
	}
	switch n := set.NArg(); {
	case n < len(positional) && !strings.HasPrefix(positional[n], "["):
		return Usagef("%s is missing: %s", positional[n], want)
	case n > len(positional) && (len(positional) == 0 || positional[len(positional)-1] != "[…]"):
		return Usagef("%q is one argument too many: %s", set.Arg(len(positional)), want)
	}
	return nil
}

// wrongNumber says what is wrong with a value that package strconv refused, which would name a
// function of its own.
func wrongNumber(err error) error {
	number := (*strconv.NumError)(nil)
	switch {
	case !errors.As(err, &number):
		return err
	case number.Func == "ParseBool":
		return fmt.Errorf("%q is neither true nor false", number.Num)
	case errors.Is(err, strconv.ErrRange):
		return fmt.Errorf("%q is too large a number", number.Num)
	}
	return fmt.Errorf("%q is no whole number", number.Num)
}

// Listening adds to an error of listening on a TCP port what can be done about it.
func Listening(err error) error {
	switch {
	case errors.Is(err, unix.EADDRINUSE):
		return fmt.Errorf("%w: another process listens there: end it, or use another port", err)
	case errors.Is(err, unix.EADDRNOTAVAIL):
		return fmt.Errorf("%w: this host has no such address", err)
	}
	return err
}

// names lists the flags that there are, for who used another.
func names(set *pflag.FlagSet) string {
	var all []string
	set.VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			all = append(all, "--"+f.Name)
		}
	})
	if len(all) == 0 {
		return "there are no flags here but --help"
	}
	return "flags here: " + strings.Join(append(all, "--help"), " ")
}

// Exit writes err, if it is one, to stderr on one line after the command's name,
// and returns the exit code that goes with it.
func Exit(stderr io.Writer, command string, err error) int {
	if err == nil {
		return ExitOK
	}
	line := strings.Join(strings.FieldsFunc(err.Error(), func(r rune) bool { return r == '\n' || r == '\r' }), "; ")
	// If standard error is gone, the code is all that is left to tell.
	_, _ = fmt.Fprintf(stderr, "%s: %s\n", command, plain.Text(line))
	if errors.Is(err, ErrUsage) {
		return ExitUsage
	}
	return ExitFailure
}
