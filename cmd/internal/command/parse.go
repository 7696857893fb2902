package command

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"pmnbd/cmd/internal/flags"
)

// Parse parses the command line. Besides flags it wants arguments with the names given, and
// no others; those in brackets, at the end, may be missing, and […] stands for any number of
// them. The error is pflag.ErrHelp, which Run returns as it is, or flags.ErrUsage.
func (c *Call) Parse(arguments ...string) error {
	err := c.Flags.Parse(c.Args)
	if errors.Is(err, pflag.ErrHelp) {
		return pflag.ErrHelp
	}
	if value := (*pflag.InvalidValueError)(nil); errors.As(err, &value) {
		return flags.Usagef("--%s: %v", value.GetFlag().Name, reason(value)) // which shows the value
	}
	if err != nil {
		return flags.Usagef("%v (%s)", err, names(c.Flags))
	}
	if err := c.empty(); err != nil {
		return err
	}
	want := "give " + strings.Join(arguments, " ")
	if len(arguments) == 0 {
		want = "this command takes flags only"
	}
	switch n := c.Flags.NArg(); {
	case n < len(arguments) && !strings.HasPrefix(arguments[n], "["):
		return flags.Usagef("%s is missing: %s", arguments[n], want)
	case n > len(arguments) && (len(arguments) == 0 || arguments[len(arguments)-1] != "[…]"):
		return flags.Usagef("%q is one argument too many: %s", c.Flags.Arg(len(arguments)), want)
	}
	return nil
}

// MayBeEmpty is the annotation of a flag for which an empty text is as good as no flag.
const MayBeEmpty = "may be empty"

// empty refuses an empty text for a flag that is off unless it is given. It comes from a variable of a
// script that is not set, and the command would run without what the flag asks for, such as keys.
func (c *Call) empty() (err error) {
	c.Flags.Visit(func(f *pflag.Flag) {
		_, may := f.Annotations[MayBeEmpty]
		if err == nil && !may && f.Value.Type() == "string" && f.Value.String() == "" && f.DefValue == "" {
			err = flags.Usagef("--%s is empty: give it a value, or leave the flag out", f.Name)
		}
	})
	return err
}

// OneOf refuses a command line that has several of these flags.
func (c *Call) OneOf(names ...string) error {
	var given []string
	for _, name := range names {
		if c.Flags.Changed(name) {
			given = append(given, "--"+name)
		}
	}
	if len(given) > 1 {
		return flags.Usagef("%s: use one of them", strings.Join(given, " and "))
	}
	return nil
}

// Set sets a flag as the command line would.
func (c *Call) Set(name, text string) error {
	err := c.Flags.Set(name, text)
	if value := (*pflag.InvalidValueError)(nil); errors.As(err, &value) {
		return flags.Usagef("%s: %v", name, reason(value))
	}
	return err
}

// reason says what is wrong with a value. It rewords the errors of strconv, which name functions
// of that package, and those about durations.
func reason(value *pflag.InvalidValueError) error {
	err, number := errors.Unwrap(value), (*strconv.NumError)(nil)
	switch {
	case value.GetFlag().Value.Type() == "duration":
		_, err = flags.ParseDuration(value.GetValue())
		return err
	case !errors.As(err, &number):
		return err
	case number.Func == "ParseBool":
		return fmt.Errorf("%q is neither true nor false", number.Num)
	case errors.Is(err, strconv.ErrRange):
		return fmt.Errorf("%q is too large a number", number.Num)
	}
	return fmt.Errorf("%q is not a whole number", number.Num)
}

// names lists a command's flags, for a user who tried another one.
func names(set *pflag.FlagSet) string {
	var all []string
	set.VisitAll(func(f *pflag.Flag) { all = append(all, "--"+f.Name) })
	if len(all) == 0 {
		return "there are no flags here but --help"
	}
	return "flags here: " + strings.Join(append(all, "--help"), " ")
}
