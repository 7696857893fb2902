package status

import (
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap/zaptest"
)

func (d document) Health() Health  { return d.health }
func (mislabelled) Health() Health { return nil }
func (measured) Health() Health    { return nil }

var (
	wellA  = Condition{Name: "export a", Since: time.Unix(1000, 0).UTC()}
	wellB  = Condition{Name: "export b", Why: "but slowly"}
	waits  = Condition{Name: "export c", Level: Waiting, Since: time.Unix(2000, 0).UTC(), Why: "gone\nfar", Next: "Look for it"}
	asks   = Condition{Name: "export e", Level: Waiting, Why: "is it there?", Next: "Look for it"}
	failed = Condition{Name: "export d", Level: Failed, Why: "broken"}
)

func TestHealth(t *testing.T) {
	for name, c := range map[string]struct {
		health Health
		level  Level
		line   string
		text   string
	}{
		"starting": {nil, Waiting, "waiting: it is starting, and serves nothing yet", "waiting: it is starting, and serves nothing yet\n"},
		"one":      {Health{wellA}, Serving, "export a: serving since 1970-01-01T00:16:40Z", "export a: serving since 1970-01-01T00:16:40Z\n"},
		"all well": {Health{wellA, wellB}, Serving, "serving export a, export b", "export a: serving since 1970-01-01T00:16:40Z\nexport b: serving: but slowly\n"},
		"one waits": {
			Health{wellA, waits}, Waiting, "export c: waiting since 1970-01-01T00:33:20Z: gone; far. Look for it",
			"export c: waiting since 1970-01-01T00:33:20Z: gone; far. Look for it\nexport a: serving since 1970-01-01T00:16:40Z\n",
		},
		"a question": {Health{asks}, Waiting, "export e: waiting: is it there? Look for it", "export e: waiting: is it there? Look for it\n"},
		"one failed": {
			Health{waits, failed, wellB}, Failed, "export d: failed: broken (and 1 more)",
			"export d: failed: broken\nexport c: waiting since 1970-01-01T00:33:20Z: gone; far. Look for it\nexport b: serving: but slowly\n",
		},
	} {
		require.Equal(t, c.level, c.health.Level(), name)
		require.Equal(t, c.line, c.health.Line(), name)
		require.Equal(t, c.text, c.health.Text(), name)
	}
	text, worst := Checked([]Found[document]{{Document: document{health: Health{wellA}}}, {Document: document{health: Health{failed}}}})
	require.Equal(t, Failed, worst)
	require.Equal(t, "export a: serving since 1970-01-01T00:16:40Z\nexport d: failed: broken\n", text)
	_, worst = Checked[document](nil)
	require.Equal(t, Failed, worst)
}

// The process is live as long as it answers, and ready while it serves.
func TestHealthOverHTTP(t *testing.T) {
	p := directory(t)
	l, err := p.Listen("x")
	require.NoError(t, err)
	tcp, err := new(Address{"127.0.0.1:0"}).Listen()
	require.NoError(t, err)
	now := make(chan Health, 1)
	s := Serve(l, tcp, zaptest.NewLogger(t), func() Document { return document{health: <-now} })
	defer func() { require.NoError(t, s.Close()) }()
	for _, c := range []struct {
		health Health
		ready  int
		says   string
	}{
		{Health{wellA}, 200, "export a: serving"},
		{Health{wellA, waits}, 503, "export c: waiting"},
		{Health{failed}, 503, "export d: failed"},
		{nil, 503, "starting"},
	} {
		for path, want := range map[string]int{LivePath: 200, ReadyPath: c.ready} {
			for _, at := range []net.Addr{l.Addr(), tcp.Addr()} {
				now <- c.health
				code, body := get(t, at, http.MethodGet, path)
				require.Equal(t, want, code, "%s: %s", path, body)
				require.Contains(t, body, c.says)
			}
		}
	}
}
