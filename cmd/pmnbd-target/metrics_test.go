package main

import (
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap/zaptest"

	"pmnbd/cmd/internal/status"
	"pmnbd/persist/target"
)

func TestMetrics(t *testing.T) {
	r := sample()
	r.Regions[1].Failed, r.Regions[1].Suspect = true, true
	r.Regions[0].Fdatasync.Note(2 * time.Second)
	r.Regions[1].WriteBack.Note(time.Second)
	r.Regions[0].DoubtLeft = 4096
	r.Regions[0].Bad = []target.PlaceSnapshot{{Offset: 0, Length: 4096}, {Offset: 12288, Length: 8192}}
	answer := httptest.NewRecorder()
	status.MetricsHandler(zaptest.NewLogger(t), func() status.Document { return r }).ServeHTTP(answer, httptest.NewRequest("GET", status.MetricsPath, nil))
	text := answer.Body.String()
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	require.NoError(t, err)
	require.Empty(t, problems)
	require.Equal(t, `pmnbd_target_barriers_total{region="a"} 10
pmnbd_target_barriers_total{region="b"} 0
pmnbd_target_fdatasync_duration_seconds_sum{region="a"} 2
pmnbd_target_fdatasync_duration_seconds_count{region="a"} 1
pmnbd_target_fdatasync_duration_seconds_sum{region="b"} 0
pmnbd_target_fdatasync_duration_seconds_count{region="b"} 0
pmnbd_target_member_behind_bytes{other="B",region="a"} 0
pmnbd_target_member_behind_bytes{other="C",region="a"} 1.048576e+06
pmnbd_target_member_in_sync{region="a"} 1
pmnbd_target_member_info{member="A",mirror="03000000-0000-0000-0000-000000000000",region="a"} 1
pmnbd_target_member_torn{region="a"} 0
pmnbd_target_region_bad_bytes{region="a"} 12288
pmnbd_target_region_bad_bytes{region="b"} 0
pmnbd_target_region_clean{region="a"} 0
pmnbd_target_region_clean{region="b"} 1
pmnbd_target_region_doubt{region="a"} 1
pmnbd_target_region_doubt{region="b"} 0
pmnbd_target_region_doubt_left_bytes{region="a"} 4096
pmnbd_target_region_doubt_left_bytes{region="b"} 0
pmnbd_target_region_epoch{region="a"} 3
pmnbd_target_region_epoch{region="b"} 1
pmnbd_target_region_failed{region="a"} 0
pmnbd_target_region_failed{region="b"} 1
pmnbd_target_region_held{region="a"} 1
pmnbd_target_region_held{region="b"} 0
pmnbd_target_region_info{class="file",region="a",region_uuid="00000000-0000-0000-0000-000000000000"} 1
pmnbd_target_region_info{class="volatile",region="b",region_uuid="00000000-0000-0000-0000-000000000000"} 1
pmnbd_target_region_lease_left_seconds{region="a"} 9.25
pmnbd_target_region_lease_left_seconds{region="b"} 0
pmnbd_target_region_size_bytes{region="a"} 1.073741824e+09
pmnbd_target_region_size_bytes{region="b"} 4096
pmnbd_target_region_suspect{region="a"} 0
pmnbd_target_region_suspect{region="b"} 1
pmnbd_target_session_info{method="gpspm",owner_id="01000000-0000-0000-0000-000000000000",region="a"} 1
pmnbd_target_session_lanes{region="a"} 2
pmnbd_target_session_lanes{region="b"} 0
pmnbd_target_session_trust_info{cipher="TLS 1.3",key="330b8fefc38ca1ed",region="a"} 1
pmnbd_target_start_time_seconds 1000
pmnbd_target_syncing_seconds{region="a"} 0
pmnbd_target_syncing_seconds{region="b"} 0
pmnbd_target_syncs_total{region="a"} 12
pmnbd_target_syncs_total{region="b"} 0
pmnbd_target_write_back_duration_seconds_sum{region="a"} 0
pmnbd_target_write_back_duration_seconds_count{region="a"} 0
pmnbd_target_write_back_duration_seconds_sum{region="b"} 1
pmnbd_target_write_back_duration_seconds_count{region="b"} 1
`, regexp.MustCompile(`(?m)^(#.*|.*_bucket.*|pmnbd_target_build_info.*)\n`).ReplaceAllString(text, ""))
}
