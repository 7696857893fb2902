package flags

import (
	"math"
	"math/bits"
	"strconv"
	"strings"
)

// A Size is a number of bytes on a command line: digits, and K, M, G or T for
// binary multiples. It is a pflag.Value.
type Size uint64

const units = "KMGT"

// ParseSize reads a size.
func ParseSize(s string) (Size, error) {
	digits, shift := s, 0
	if s != "" {
		if i := strings.IndexByte(units, s[len(s)-1]); i >= 0 {
			digits, shift = s[:len(s)-1], 10*(i+1)
		}
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	if err != nil || digits[0] == '+' {
		return 0, Usagef("%q is not a size: use bytes, or a whole number and K, M, G or T (binary), such as 64M", s)
	}
	if bits.Len64(n)+shift > 64 || n<<shift > math.MaxInt64 {
		return 0, Usagef("%q is too large a size: at most 8388607T", s)
	}
	return Size(n << shift), nil
}

// String is the size in the largest unit of which it is a whole number.
func (s Size) String() string {
	n, unit := uint64(s), ""
	for i := 0; i < len(units) && n >= 1024 && n%1024 == 0; i++ {
		n, unit = n/1024, units[i:i+1]
	}
	return strconv.FormatUint(n, 10) + unit
}

// Rounded is the size for people, rounded to three or four digits.
func (s Size) Rounded() string {
	n, unit := float64(s), ""
	for i := 0; i < len(units) && n >= 1024; i++ {
		n, unit = n/1024, units[i:i+1]
	}
	if n == math.Trunc(n) {
		return strconv.FormatFloat(n, 'f', 0, 64) + unit
	}
	digits := 2
	if n >= 10 {
		digits = 1
	}
	return strconv.FormatFloat(n, 'f', digits, 64) + unit
}

// Set reads the flag's argument.
func (s *Size) Set(arg string) error {
	n, err := ParseSize(arg)
	if err == nil {
		*s = n
	}
	return err
}

// UnmarshalText reads a size in a configuration file.
func (s *Size) UnmarshalText(text []byte) error { return s.Set(string(text)) }

// Type names the flag's argument in help.
func (s *Size) Type() string { return "SIZE" }
