package report

import (
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap/zaptest"

	"pmnbd/backend/remote"
	"pmnbd/cmd/internal/status"
)

// sampleMirror has a leg in sync, one that is away, and one that is being copied to.
func sampleMirror() *remote.MirrorSnapshot {
	away, none, some := time.Unix(1000, 0), uint64(0), uint64(3<<20)
	return &remote.MirrorSnapshot{
		Set: uuid.MustParse("6ba7b810-9dad-41d1-80b4-00c04fd430c8"), Generation: "3.2", Members: "ABC", F: "A", MinCopies: 1, Copies: 1,
		Legs: []remote.LegSnapshot{
			{Target: "pm1:7204", Region: "log", Slot: "A", Class: "pmem", Method: "gpspm", Epoch: 7, State: remote.LegInSync, Behind: &none, Late: 12.4},
			{Target: "pm2:7204", Region: "log", State: remote.LegAway, Since: &away, Cause: "connection lost"},
			{Target: "pm3:7204", Region: "log", Slot: "C", Class: "file", Method: "gpspm", Epoch: 9, State: remote.LegResync, Cause: "what it lacks is copied to it", Behind: &some},
		},
	}
}

func TestTextOfMirror(t *testing.T) {
	rows := `  mirror  6ba7b810-9dad-41d1-80b4-00c04fd430c8, 1 of 3 copies in sync, at least 1
          generation 3.2 on A
  leg A   log at pm1:7204: in sync, the others have waited for its disk for 12s, class pmem, method gpspm, epoch 7
  leg ?   log at pm2:7204: away for 1m1s: connection lost
  leg C   log at pm3:7204: resync, 3M behind, class file, method gpspm, epoch 9: what it lacks is copied to it
`
	m := Mirror{Export: "log", PID: 4242, MirrorSnapshot: sampleMirror()}
	require.Equal(t, "mirror log: process 4242\n"+rows, m.Text(time.Unix(1061, 0)))
	m.Export, m.PID = "", 0
	require.Equal(t, "mirror: its targets were asked, because no pmnbd here serves it\n"+rows, m.Text(time.Unix(1061, 0)))

	require.Equal(t, `created mirror 6ba7b810-9dad-41d1-80b4-00c04fd430c8: FLUSH waits for 1 of 3 copies
  A  log at pm1:7204, class pmem: has all data
  ?  log at pm2:7204, class file: is copied to first
serve it with: pmnbd serve --target X,Y --listen unix:/PATH
`, (&Mirror{MirrorSnapshot: &remote.MirrorSnapshot{
		Set: m.Set, MinCopies: 1, Members: "ABC", Legs: []remote.LegSnapshot{
			{Target: "pm1:7204", Region: "log", Slot: "A", Class: "pmem", State: remote.LegInSync},
			{Target: "pm2:7204", Region: "log", Slot: "?", Class: "file", State: remote.LegTorn},
		},
	}}).Created("X,Y"))

	follows := sampleMirror()
	follows.Async, follows.Members = "D", "ABCD"
	lag := uint64(1 << 20)
	follows.Legs = []remote.LegSnapshot{{
		Target: "far:7204", Region: "log", Slot: "D", State: remote.LegFollows, Behind: &lag,
		Follows: &remote.FollowsSnapshot{Barrier: 42, Until: time.Unix(1000, 0), LagSeconds: 1.25},
	}}
	text := (&Mirror{MirrorSnapshot: follows}).Text(time.Unix(1061, 0))
	require.Contains(t, text, "1 of 3 copies in sync")
	require.Contains(t, text, "leg D   log at far:7204: follows, 1M behind, has all until 1970-01-01 00:16:40.000 UTC (barrier 42), lag 1.2 s\n")

	h, e := sample().Header, sampleExport("log")
	e.Device.Mirror = sampleMirror()
	text = e.Text(&h, time.Unix(1061, 0))
	require.Contains(t, text, "  leg ?     log at pm2:7204: away for 1m1s: connection lost\n")
	require.NotContains(t, text, "  region")
}

func TestMetricsOfMirror(t *testing.T) {
	r := sample()
	r.Exports = r.Exports[:1]
	r.Exports[0].Device.Mirror = sampleMirror()
	answer := httptest.NewRecorder()
	status.MetricsHandler(zaptest.NewLogger(t), func() status.Document { return r }).ServeHTTP(answer, httptest.NewRequest("GET", status.MetricsPath, nil))
	text := answer.Body.String()
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	require.NoError(t, err)
	require.Empty(t, problems)
	require.Equal(t, `pmnbd_mirror_async_members{export="log"} 0
pmnbd_mirror_copies{export="log"} 1
pmnbd_mirror_leg_behind_bytes{export="log",region="log",target="pm1:7204"} 0
pmnbd_mirror_leg_behind_bytes{export="log",region="log",target="pm3:7204"} 3.145728e+06
pmnbd_mirror_leg_lag_seconds{export="log",region="log",target="pm1:7204"} 0
pmnbd_mirror_leg_lag_seconds{export="log",region="log",target="pm2:7204"} 0
pmnbd_mirror_leg_lag_seconds{export="log",region="log",target="pm3:7204"} 0
pmnbd_mirror_leg_late_seconds{export="log",region="log",target="pm1:7204"} 12.4
pmnbd_mirror_leg_late_seconds{export="log",region="log",target="pm2:7204"} 0
pmnbd_mirror_leg_late_seconds{export="log",region="log",target="pm3:7204"} 0
pmnbd_mirror_leg_state{export="log",region="log",state="in sync",target="pm1:7204"} 1
pmnbd_mirror_leg_state{export="log",region="log",state="away",target="pm2:7204"} 1
pmnbd_mirror_leg_state{export="log",region="log",state="resync",target="pm3:7204"} 1
pmnbd_mirror_members{export="log"} 3
pmnbd_mirror_min_copies{export="log"} 1
`, sorted(regexp.MustCompile(`(?m)^pmnbd_mirror(_leg_state.* 1|_leg_[bl].*|_[acm].*)$`).FindAllString(text, -1)))
	require.Len(t, regexp.MustCompile(`(?m)^pmnbd_mirror_leg_state.*$`).FindAllString(text, -1), 3*len(remote.LegStates()))
}

// sorted puts lines in an order that does not depend on that of the labels' values.
func sorted(lines []string) string {
	target := regexp.MustCompile(`target="([^"]*)"`)
	key := func(s string) string {
		name, _, _ := strings.Cut(s, "{")
		return name + target.FindString(s)
	}
	slices.SortFunc(lines, func(a, b string) int { return strings.Compare(key(a), key(b)) })
	return strings.Join(lines, "\n") + "\n"
}
