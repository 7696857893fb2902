package report

import (
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap/zaptest"

	"pmnbd/backend/remote"
	"pmnbd/cmd/internal/status"
)

func TestMetrics(t *testing.T) {
	r := sample()
	r.Exports = r.Exports[:1]
	d := &r.Exports[0].Device
	since := time.Unix(2000, 0)
	d.State, d.Doubt, d.Recoveries, d.WaitingSince = remote.StateWaiting, true, 2, &since
	r.Exports[0].Latency.Write.Note(1500 * time.Millisecond)
	d.Targets[0].Barriers.Note(time.Second)
	d.Targets[0].Outages.Note(time.Minute)
	d.Targets[0].DoubtLeft, d.Targets[0].Bad, d.BadRequests = 4096, 8192, 2
	r.TLSHandshakes.Note(time.Millisecond)
	answer := httptest.NewRecorder()
	status.MetricsHandler(zaptest.NewLogger(t), func() status.Document { return r }).ServeHTTP(answer, httptest.NewRequest("GET", status.MetricsPath, nil))
	text := answer.Body.String()
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	require.NoError(t, err)
	require.Empty(t, problems)
	require.Equal(t, `pmnbd_bad_requests_total{export="log"} 2
pmnbd_barrier_at_target_seconds{export="log"} 0
pmnbd_barrier_duration_seconds_sum{export="log",region="log",target="10.0.0.2:7204"} 1
pmnbd_barrier_duration_seconds_count{export="log",region="log",target="10.0.0.2:7204"} 1
pmnbd_barrier_requests_total{export="log"} 407
pmnbd_barrier_waiting_requests{export="log"} 3
pmnbd_barriers_answering_total{export="log"} 100
pmnbd_barriers_in_flight{export="log"} 1
pmnbd_barriers_total{export="log"} 120
pmnbd_clients{export="log"} 2
pmnbd_clients_entered_total{export="log"} 5
pmnbd_command_bytes_total{command="WRITE",export="log"} 4.096e+06
pmnbd_command_duration_seconds_sum{command="WRITE",export="log"} 1.5
pmnbd_command_duration_seconds_count{command="WRITE",export="log"} 1
pmnbd_command_errors_total{command="WRITE",export="log"} 0
pmnbd_command_fua_total{command="WRITE",export="log"} 7
pmnbd_commands_total{command="WRITE",export="log"} 1000
pmnbd_device_size_bytes{export="log"} 1.073741824e+09
pmnbd_lane_outstanding_work_requests{export="log",lane="0"} 5
pmnbd_lane_work_requests_total{export="log",lane="0"} 1234
pmnbd_session_bad_bytes{export="log",region="log",target="10.0.0.2:7204"} 8192
pmnbd_session_doubt{export="log"} 1
pmnbd_session_doubt_left_bytes{export="log",region="log",target="10.0.0.2:7204"} 4096
pmnbd_session_epoch{export="log"} 3
pmnbd_session_info{class="file",export="log",method="gpspm",region="log",region_uuid="00000000-0000-0000-0000-000000000000",target="10.0.0.2:7204"} 1
pmnbd_session_outage_seconds_sum{export="log",region="log",target="10.0.0.2:7204"} 60
pmnbd_session_outage_seconds_count{export="log",region="log",target="10.0.0.2:7204"} 1
pmnbd_session_recoveries_total{export="log"} 2
pmnbd_session_state{export="log",state="closed"} 0
pmnbd_session_state{export="log",state="failed"} 0
pmnbd_session_state{export="log",state="open"} 0
pmnbd_session_state{export="log",state="waiting"} 1
pmnbd_session_trust_info{cipher="TLS 1.3",export="log",key="330b8fefc38ca1ed",region="log",target="10.0.0.2:7204"} 1
pmnbd_session_unclean{export="log"} 0
pmnbd_session_waiting_since_seconds{export="log"} 2000
pmnbd_start_time_seconds 1000
pmnbd_tls_handshake_duration_seconds_sum 0.001
pmnbd_tls_handshake_duration_seconds_count 1
pmnbd_window_limit_bytes{export="log"} 8.388608e+07
pmnbd_window_limit_entries{export="log"} 32768
pmnbd_window_unflushed_bytes{export="log"} 49152
pmnbd_window_used_bytes{export="log"} 3.145728e+06
pmnbd_window_used_entries{export="log"} 12
`, regexp.MustCompile(`(?m)^(#.*|.*command="([^WB]|WRITE_|B).*|.*_bucket.*|pmnbd_build_info.*)\n`).ReplaceAllString(text, ""))
}
