package main

import (
	"bytes"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap/zaptest"

	"pmnbd/cmd/internal/status"
)

// An impatient terminal interrupts the process after the second text.
type impatient struct {
	out   bytes.Buffer // no io.StringWriter
	texts int
	t     *testing.T
}

func (w *impatient) Write(b []byte) (int, error) {
	if w.texts++; w.texts == 2 {
		require.NoError(w.t, syscall.Kill(syscall.Getpid(), syscall.SIGINT))
	}
	return w.out.Write(b)
}

// status --watch shows again and again, until a signal ends it as if all were well.
func TestWatch(t *testing.T) {
	place := status.Place{}
	require.NoError(t, place.Set("unix:"+t.TempDir()+"/"))
	var errs bytes.Buffer
	out := impatient{t: t}
	require.Equal(t, 1, run([]string{"status", "--control", place.String(), "--watch"}, &out, &errs), "there is nothing to watch")
	require.Contains(t, errs.String(), "no pmnbd is running")

	l, err := place.Listen("log")
	require.NoError(t, err)
	s := status.Serve(l, nil, zaptest.NewLogger(t), func() status.Document { return sample() })
	defer func() { require.NoError(t, s.Close()) }()
	require.Equal(t, 0, run([]string{"status", "log", "--control", place.String(), "--watch=1ms"}, &out, &errs))
	require.GreaterOrEqual(t, out.texts, 2)
	require.Contains(t, out.out.String(), "export log: serving\n")
	require.NotContains(t, out.out.String(), "export data")
	require.Contains(t, out.out.String(), "p99")
}

// An export may be called like a pause. Without such an export, it is one that --watch does not take.
func TestWatchOfAName(t *testing.T) {
	place := status.Place{}
	require.NoError(t, place.Set("unix:"+t.TempDir()+"/"))
	l, err := place.Listen("log")
	require.NoError(t, err)
	s := status.Serve(l, nil, zaptest.NewLogger(t), func() status.Document {
		d := sample()
		d.Exports[0].Name, d.Exports[1].Name = "5s", "0"
		return d
	})
	defer func() { require.NoError(t, s.Close()) }()
	for name, c := range map[string]struct {
		code int
		says string
	}{
		"5s": {0, ""},
		"0":  {0, ""},
		"6s": {2, `no pmnbd serves export "6s": looked at ` + place.String() + "; if 6s is the pause, use --watch=6s"},
		"0s": {1, `no pmnbd serves export "0s": looked at ` + place.String()},
	} {
		t.Run(name, func(t *testing.T) {
			out, errs := impatient{t: t}, bytes.Buffer{}
			require.Equal(t, c.code, run([]string{"status", "--control", place.String(), "--watch=1ms", name}, &out, &errs), errs.String())
			if c.code != 0 {
				require.Equal(t, "pmnbd status: "+c.says+"\n", errs.String())
				return
			}
			require.Contains(t, out.out.String(), "export "+name+": serving\n")
		})
	}
}
