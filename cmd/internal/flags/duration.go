package flags

import (
	"strconv"
	"time"

	"github.com/spf13/pflag"
)

// ParseDuration reads a duration such as 30s. It refuses a number without a unit, which could
// mean seconds or milliseconds.
func ParseDuration(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err == nil {
		return d, nil
	}
	if n, err := strconv.ParseUint(s, 10, 31); err == nil {
		return 0, Usagef("%q has no unit: use %ds for seconds, or another of ms, s, m and h", s, n)
	}
	return 0, Usagef("%q is not a duration: use a number and a unit, such as 500ms, 30s, 5m or 1h", s)
}

// DurationVar declares a duration flag whose errors are ParseDuration's.
func DurationVar(set *pflag.FlagSet, p *time.Duration, name string, value time.Duration, usage string) {
	*p = value
	set.Var((*duration)(p), name, usage)
}

type duration time.Duration

// Set reads the flag's argument.
func (d *duration) Set(s string) error {
	t, err := ParseDuration(s)
	if err == nil {
		*d = duration(t)
	}
	return err
}

// String shows the default in help.
func (d *duration) String() string { return time.Duration(*d).String() }

// Type names the flag's argument in help; pflag leaves out the default 0s of this one.
func (d *duration) Type() string { return "duration" }
