package persist

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMakeBad(t *testing.T) {
	const size = 16 * BadBlock
	for name, c := range map[string]struct {
		ranges []Range
		want   BadPlaces
	}{
		"none":                   {nil, nil},
		"a byte is its block":    {[]Range{{5000, 1}}, BadPlaces{{4096, 4096}}},
		"across two blocks":      {[]Range{{8191, 2}}, BadPlaces{{4096, 8192}}},
		"a whole block":          {[]Range{{4096, 4096}}, BadPlaces{{4096, 4096}}},
		"sorted":                 {[]Range{{32768, 512}, {0, 512}}, BadPlaces{{0, 4096}, {32768, 4096}}},
		"merged where they meet": {[]Range{{0, 512}, {4096, 512}, {4608, 512}}, BadPlaces{{0, 8192}}},
		"one in another":         {[]Range{{0, 20480}, {4096, 1}, {16384, 8192}}, BadPlaces{{0, 24576}}},
		"cut at the end":         {[]Range{{size - 1, 4096}, {size, 1}, {size + 5, 1}}, BadPlaces{{size - 4096, 4096}}},
		"an end that overflows":  {[]Range{{4096, math.MaxUint64}, {math.MaxUint64, math.MaxUint64}}, BadPlaces{{4096, size - 4096}}},
		"of no bytes":            {[]Range{{4096, 0}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, len(c.want), len(MakeBad(c.ranges, size)))
			for i, g := range MakeBad(c.ranges, size) {
				require.Equal(t, c.want[i], g)
			}
		})
	}
}

func TestBadPlaces(t *testing.T) {
	b := BadPlaces{{4096, 4096}, {16384, 8192}}
	for name, c := range map[string]struct {
		off, n uint64
		first  Range
		torn   bool
	}{
		"before":                {0, 4096, Range{}, false},
		"between":               {8192, 8192, Range{}, false},
		"behind":                {24576, 100, Range{}, false},
		"nothing":               {4100, 0, Range{}, false},
		"the whole block":       {4096, 4096, Range{4096, 4096}, false},
		"its first byte":        {0, 4097, Range{4096, 4096}, true},
		"its last byte":         {8191, 1, Range{4096, 4096}, true},
		"within":                {5000, 1, Range{4096, 4096}, true},
		"both":                  {0, 65536, Range{4096, 4096}, false},
		"one of two blocks":     {20480, 4096, Range{20480, 4096}, false},
		"one and a half":        {16384, 6000, Range{16384, 8192}, true},
		"a part beside the bad": {1, 4095, Range{}, false},
		"ends in a good one":    {16384, 8193, Range{16384, 8192}, false},
	} {
		t.Run(name, func(t *testing.T) {
			g, ok := b.Touched(c.off, c.n)
			require.Equal(t, c.first, g)
			require.Equal(t, c.first != Range{}, ok)
			require.Equal(t, c.torn, b.Torn(c.off, c.n))
		})
	}
	require.EqualValues(t, 12288, b.Bytes())
	require.Zero(t, BadPlaces(nil).Bytes())
	_, ok := BadPlaces(nil).Touched(0, math.MaxInt64)
	require.False(t, ok)
}

func TestOutsideBadPlaces(t *testing.T) {
	b := BadPlaces{{4096, 4096}, {16384, 8192}}
	for name, c := range map[string]struct {
		g    Range
		want []Range
	}{
		"all":          {Range{0, 32768}, []Range{{0, 4096}, {8192, 8192}, {24576, 8192}}},
		"nothing":      {Range{5000, 0}, nil},
		"within one":   {Range{5000, 100}, nil},
		"ends in one":  {Range{0, 5000}, []Range{{0, 4096}}},
		"begins in it": {Range{5000, 5000}, []Range{{8192, 1808}}},
		"between":      {Range{8192, 8192}, []Range{{8192, 8192}}},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.want, b.Outside(c.g)) })
	}
	require.Equal(t, []Range{{1, 2}}, BadPlaces(nil).Outside(Range{1, 2}))
}

// Without leaves every block that was not overwritten as a whole.
func TestBadPlacesWithout(t *testing.T) {
	const blocks = 32
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		var bad [blocks]bool
		var ranges []Range
		for i := range bad {
			if bad[i] = random.IntN(3) == 0; bad[i] {
				ranges = append(ranges, Range{uint64(i) * BadBlock, BadBlock})
			}
		}
		b := MakeBad(ranges, blocks*BadBlock)
		g := Range{Off: random.Uint64N(blocks * BadBlock)}
		g.Len = random.Uint64N(blocks*BadBlock - g.Off)
		left := b.Without(g)
		for i := range bad {
			at := uint64(i) * BadBlock
			_, still := left.Touched(at, BadBlock)
			require.Equal(t, bad[i] && (at < g.Off || at+BadBlock > g.End()), still, "block %d of %v without %v", i, b, g)
		}
	}
}
