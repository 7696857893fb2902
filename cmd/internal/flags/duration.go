package flags

import (
	"strconv"
	"time"
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
