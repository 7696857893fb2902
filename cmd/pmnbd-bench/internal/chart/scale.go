package chart

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// LogAxis returns an axis for values from least to most, both above 0. Its ends are rounded outwards
// to 1, 2 or 5 times a power of ten. Powers of ten have labels, and 2 and 5 times them if the axis is
// short; name writes the label.
func LogAxis(label string, least, most float64, name func(float64) string) Axis {
	a := Axis{Label: label, Log: true, Min: step(least, -1), Max: step(most, +1)}
	if a.Max <= a.Min {
		a.Max = step(a.Min*1.5, +1)
	}
	decades := math.Log10(a.Max / a.Min)
	for e := math.Floor(math.Log10(a.Min)); e <= math.Ceil(math.Log10(a.Max)); e++ {
		for m := 1.0; m < 10; m++ {
			t := Tick{At: m * math.Pow(10, e)}
			if m == 1 || decades < 2.5 && (m == 2 || m == 5) {
				t.Label = name(t.At)
			}
			a.Ticks = append(a.Ticks, t)
		}
	}
	return a
}

// step rounds v to 1, 2 or 5 times a power of ten, down if way is negative.
func step(v float64, way int) float64 {
	const slack = 1e-9
	base := math.Pow(10, math.Floor(math.Log10(v)+slack))
	best := 0.0
	for _, m := range []float64{1, 2, 5, 10} {
		at := m * base
		if way < 0 && at <= v*(1+slack) {
			best = at
		}
		if way > 0 && at >= v*(1-slack) {
			return at
		}
	}
	return best
}

// Duration writes µs with three digits in the unit that people use: "85 µs", "1.2 ms", "3 s".
func Duration(us float64) string {
	switch {
	case us == 0:
		return "0"
	case us < 0.9995:
		return digits(us*1e3) + " ns"
	case us < 999.5:
		return digits(us) + " µs"
	case us < 999.5e3:
		return digits(us/1e3) + " ms"
	}
	return digits(us/1e6) + " s"
}

// Count writes a number with three digits: "950", "12.3k", "1.2M".
func Count(n float64) string {
	switch {
	case n < 999.5:
		return digits(n)
	case n < 999.5e3:
		return digits(n/1e3) + "k"
	case n < 999.5e6:
		return digits(n/1e6) + "M"
	}
	return digits(n/1e9) + "G"
}

// digits writes three significant digits, and no zeros behind a point.
func digits(v float64) string {
	places := 2
	switch {
	case v >= 99.95:
		places = 0
	case v >= 9.995:
		places = 1
	}
	s := strconv.FormatFloat(v, 'f', places, 64)
	if strings.Contains(s, ".") {
		s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	}
	return s
}

// PercentAxis returns an axis of percentiles on which each step is a tenth of what is left: 0, 90,
// 99 and 99.9 % have the same distance. Its values are Nines of a share; it ends at nines.
func PercentAxis(label string, nines float64) Axis {
	a := Axis{Label: label, Max: math.Max(1, nines)}
	for n := range int(a.Max + 1.001) {
		at := 100 * (1 - math.Pow(10, -float64(n)))
		t := Tick{At: float64(n)}
		if n > 0 { // the median's label needs the room
			t.Label = strconv.FormatFloat(at, 'f', max(0, n-2), 64) + " %"
		}
		a.Ticks = append(a.Ticks, t)
	}
	for _, at := range []float64{.5, .75, .95} {
		t := Tick{At: Nines(at)}
		if at == .5 {
			t.Label = fmt.Sprintf("%.0f %%", 100*at)
		}
		a.Ticks = append(a.Ticks, t)
	}
	return a
}

// Nines returns where a share, from 0 to less than 1, is on a PercentAxis.
func Nines(share float64) float64 { return -math.Log10(1 - share) }
