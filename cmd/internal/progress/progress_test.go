package progress

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// What takes less than a second shows nothing. What takes longer has a line: on a terminal one that
// is written again, elsewhere one every few seconds.
func TestMeter(t *testing.T) {
	for name, c := range map[string]struct {
		terminal bool
		lasts    time.Duration
		want     string
	}{
		"short":             {false, 900 * time.Millisecond, ""},
		"short, a terminal": {true, 900 * time.Millisecond, ""},
		"a log": {false, 11500 * time.Millisecond, `clear a: rewrite 95M of 1G, 9 %, 100M/s, 9s left
clear a: rewrite 595M of 1G, 58 %, 100M/s, 4s left
clear a: sync for 1s
`},
		"a terminal": {true, 1500 * time.Millisecond, "|clear a: rewrite 95M of 1G, 9 %, 100M/s, 9s left|clear a: rewrite 115M of 1G, 11 %, 100M/s, 9s left|clear a: rewrite 135M of 1G, 13 %, 100M/s, 9s left|"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out bytes.Buffer
				m := Start(&out, "clear a")
				m.terminal = c.terminal
				began := time.Now()
				<-time.After(50 * time.Millisecond) // not at the moments in which it is shown
				tick := time.NewTicker(100 * time.Millisecond)
				defer tick.Stop()
				m.Set("rewrite", 0, 1<<30)
				for time.Since(began) < c.lasts {
					<-tick.C
					if n := uint64(time.Since(began) / (10 * time.Millisecond)); n < 1000 {
						m.Set("rewrite", n<<20, 1<<30)
					} else {
						m.Set("sync", 0, 0)
					}
					synctest.Wait()
				}
				m.Stop()
				require.Equal(t, c.want, strings.ReplaceAll(out.String(), "\r\x1b[K", "|"))
			})
		})
	}
}

// Work whose end is known has a bar on a terminal, and its line does not wrap there.
func TestShare(t *testing.T) {
	for name, c := range map[string]struct {
		terminal bool
		share    float64
		step     string
		want     string
	}{
		"a log":       {false, .25, "round 1 of 4", "compare 25 %, 12s left: round 1 of 4\n"},
		"nothing yet": {false, 0, "fill", "compare 0 %: fill\n"},
		"too much":    {false, 1.5, "round 4 of 4", "compare 100 %, 0s left: round 4 of 4\n"},
		"a terminal":  {true, .25, "round 1 of 4", "|compare [######------------------] 25 %, 12s left: round 1 of 4"},
		"a long line": {true, 1, strings.Repeat("x", 99), "|compare [########################] 100 %, 0s left: xxxxxxxxxxxxxxxxxxxxxxxxxxxx"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out bytes.Buffer
				m := Start(&out, "compare")
				m.terminal = c.terminal
				m.Share(c.step, c.share)
				m.show(m.started.Add(4 * time.Second))
				m.shown = false // or Stop would remove it
				m.Stop()
				require.Equal(t, c.want, strings.ReplaceAll(out.String(), "\r\x1b[K", "|"))
				require.LessOrEqual(t, len([]rune(strings.TrimPrefix(out.String(), "\r\x1b[K"))), 79)
			})
		})
	}
}
