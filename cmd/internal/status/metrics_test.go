package status

import (
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap/zaptest"
)

func TestMetrics(t *testing.T) {
	p := directory(t)
	control, err := p.Listen("x")
	require.NoError(t, err)
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	long := strings.Repeat("x", 5000)
	var n atomic.Int64
	s := Serve(control, tcp, zaptest.NewLogger(t), func() Document {
		return document{Answer: int(n.Add(1)), Names: []string{"log", "a\nb\"c\\d}", "", long}}
	})
	defer func() { require.NoError(t, s.Close()) }()
	text := func(answer string) string {
		return `# HELP test_answer What the document says.
# TYPE test_answer gauge
test_answer ` + answer + `
# HELP test_names_total How long a name is.
# TYPE test_names_total counter
test_names_total{name=""} 0
test_names_total{name="a\nb\"c\\d}"} 8
test_names_total{name="log"} 3
test_names_total{name="` + label(long) + `"} 5000
`
	}
	code, body := get(t, control.Addr(), http.MethodGet, MetricsPath)
	require.Equal(t, 200, code)
	require.Equal(t, text("1"), body)
	problems, err := promlint.New(strings.NewReader(body)).Lint()
	require.NoError(t, err)
	require.Empty(t, problems)
	_, body = get(t, tcp.Addr(), http.MethodGet, MetricsPath)
	require.Equal(t, text("2"), body, "one snapshot for each scrape, and none before")
}

// What cannot be said as it is cannot be taken for something else.
func TestLabel(t *testing.T) {
	long := strings.Repeat("é", maxLabel)
	seen := map[string]bool{}
	for name, c := range map[string]struct {
		in   string
		kept bool
	}{
		"empty":              {"", true},
		"a name":             {"log", true},
		"of another script":  {"журнал", true},
		"as long as allowed": {strings.Repeat("x", maxLabel), true},
		"longer":             {strings.Repeat("x", maxLabel+1), false},
		"much longer":        {long, false},
		"different, later":   {long + "x", false},
		"not UTF-8":          {"a\xffb", false},
		"not UTF-8 either":   {"a\xfeb", false},
		"all wrong":          {strings.Repeat("\xff", 5000), false},
	} {
		out := label(c.in)
		require.Equal(t, c.kept, out == c.in, name)
		require.True(t, utf8.ValidString(out), name)
		require.LessOrEqual(t, len(out), maxLabel, name)
		require.False(t, seen[out], name)
		seen[out] = true
	}
}

// A label without a value fails the scrape; it does not panic.
func TestWrongLabels(t *testing.T) {
	p := directory(t)
	l, err := p.Listen("x")
	require.NoError(t, err)
	s := Serve(l, nil, zaptest.NewLogger(t), func() Document { return mislabelled{} })
	defer func() { require.NoError(t, s.Close()) }()
	code, body := get(t, l.Addr(), http.MethodGet, MetricsPath)
	require.Equal(t, 500, code)
	require.Contains(t, body, "inconsistent label cardinality")
}

func TestAddress(t *testing.T) {
	for in, want := range map[string]string{
		"9104":           "127.0.0.1:9104",
		":9104":          "127.0.0.1:9104",
		"0":              "127.0.0.1:0",
		"0.0.0.0:9104":   "0.0.0.0:9104",
		"pm1:9104":       "pm1:9104",
		"[::1]:9104":     "[::1]:9104",
		"":               "",
		"pm1":            "",
		"pm1:":           "",
		"pm1:http":       "",
		"65536":          "",
		"-1":             "",
		"::1":            "",
		"::1:9104":       "",
		"tcp:pm1:9104":   "",
		"http://pm1:900": "",
	} {
		var a Address
		err := a.UnmarshalText([]byte(in))
		require.Equal(t, want == "", err != nil, "%q: %v", in, err)
		require.Equal(t, want, a.String(), in)
		if err == nil {
			var again Address
			require.NoError(t, again.Set(a.String()))
			require.Equal(t, a, again)
		}
	}
}

func TestListenOnAddress(t *testing.T) {
	var a Address
	l, err := a.Listen()
	require.NoError(t, err)
	require.Nil(t, l, "by default nowhere")
	require.NoError(t, a.Set("0"))
	l, err = a.Listen()
	require.NoError(t, err)
	require.True(t, l.Addr().(*net.TCPAddr).IP.IsLoopback())
	every := Address{"0.0.0.0:0"}
	four, err := every.Listen()
	require.NoError(t, err)
	require.Equal(t, "0.0.0.0", four.Addr().(*net.TCPAddr).IP.String(), "IPv4 alone")
	require.NoError(t, four.Close())
	require.NoError(t, a.Set(l.Addr().String()))
	_, err = a.Listen()
	require.ErrorContains(t, err, "--metrics")
	require.NoError(t, l.Close())
}
