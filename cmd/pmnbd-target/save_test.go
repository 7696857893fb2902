package main

import (
	"bytes"
	"context"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap/zaptest"

	"pmnbd/cmd/internal/status"
	"pmnbd/internal/testhost"
)

// The command save prints a line for each region, and fails if one of them is not saved.
func TestSaveCommand(t *testing.T) {
	place := status.Place{}
	require.NoError(t, place.Set("unix:"+t.TempDir()+"/"))
	code, out, errs := ran("save", "--control", place.String())
	require.Equal(t, 1, code)
	require.Empty(t, out)
	require.Equal(t, "pmnbd-target save: no pmnbd-target is running: looked at "+place.String()+"\n", errs)

	var views []savedView
	var fails, resumes error
	l, err := place.Listen("target")
	require.NoError(t, err)
	s := status.Serve(l, nil, zaptest.NewLogger(t), func() status.Document { return sample() },
		status.Command{Path: savePath, Run: func(_ context.Context, _ url.Values, say func(any) error) error {
			for _, v := range views {
				require.NoError(t, say(v))
			}
			return fails
		}},
		status.Command{Path: resumePath, Run: func(context.Context, url.Values, func(any) error) error { return resumes }})
	defer func() { require.NoError(t, s.Close()) }()
	for name, tt := range map[string]struct {
		command   string
		views     []savedView
		fails     error
		resumes   error
		code      int
		out, errs string
	}{
		"nothing to save": {command: "save", out: "nothing to save: no region of class protected is served\n"},
		"saved": {
			command: "save", views: []savedView{{Region: "a", Bytes: 3 << 30, Seconds: 1.5}, {Region: "b", Seconds: 0.002}},
			out: "region a saved: wrote 3G in 1.5s, 2G/s\nregion b saved: wrote 0 in 2ms\n",
		},
		"not all": {
			command: "save", views: []savedView{{Region: "a", Bytes: 1 << 20, Seconds: 1}, {Region: "b", Error: "input/output error"}}, code: 1,
			out:  "region a saved: wrote 1M in 1s, 1M/s\nregion b NOT SAVED: input/output error\n",
			errs: "pmnbd-target save: not every region is saved: a power failure now loses those that are not\n",
		},
		"ending":            {command: "save", fails: errors.New("the target is ending"), code: 1, errs: "pmnbd-target save: process 4242: the target is ending\n"},
		"resumed":           {command: "resume", out: "resumed: sessions are granted again\n"},
		"nothing to resume": {command: "resume", resumes: errors.New("nothing to resume"), code: 1, errs: "pmnbd-target resume: process 4242: nothing to resume\n"},
	} {
		t.Run(name, func(t *testing.T) {
			views, fails, resumes = tt.views, tt.fails, tt.resumes
			code, out, errs := ran(tt.command, "--control", place.String())
			require.Equal(t, tt.code, code)
			require.Equal(t, tt.out, out)
			require.Equal(t, tt.errs, errs)
		})
	}
}

// Of several targets on a host, one whose disk hangs holds up no other one.
func TestSaveAsksAllAtOnce(t *testing.T) {
	dir := t.TempDir()
	slow := make(chan struct{})
	for name, save := range map[string]func(){"a": func() { <-slow }, "b": func() { close(slow) }} {
		place := status.Place{}
		require.NoError(t, place.Set("unix:"+filepath.Join(dir, "target-"+name+".sock")))
		l, err := place.Listen("target")
		require.NoError(t, err)
		s := status.Serve(l, nil, zaptest.NewLogger(t), func() status.Document { return sample() },
			status.Command{Path: savePath, Run: func(_ context.Context, _ url.Values, say func(any) error) error {
				save()
				return say(savedView{Region: name})
			}})
		defer func() { require.NoError(t, s.Close()) }()
	}
	code, out, errs := ran("save", "--control", "unix:"+dir+"/")
	require.Zero(t, code, errs)
	require.Equal(t, "region a saved: wrote 0 in 0s\nregion b saved: wrote 0 in 0s\n", sorted(out))
}

func sorted(lines string) string {
	all := strings.SplitAfter(lines, "\n")
	slices.Sort(all)
	return strings.Join(all, "")
}

// Without a running target the command reads the file. It must never make a region of what is not there.
func TestSaveOffline(t *testing.T) {
	dir := testhost.Memory(t)
	file := filepath.Join(t.TempDir(), "target.toml")
	write := func(text string) {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	}
	write("[[region]]\nname = \"plain\"\npath = \"" + filepath.Join(dir, "plain") + "\"\n")
	code, out, errs := ran("save", "--config", file)
	require.Zero(t, code, errs)
	require.Equal(t, "nothing to save: no region of "+file+" has save\n", out)

	path := filepath.Join(dir, "fast")
	write("[[region]]\nname = \"fast\"\npath = \"" + path + "\"\nsave = \"" + t.TempDir() + "\"\n")
	code, out, _ = ran("save", "--config", file)
	require.Equal(t, 1, code)
	require.Regexp(t, `^region fast NOT SAVED: .* is not there, and nobody knows what the image has: .*\n$`, out)
	require.NoFileExists(t, path)

	code, _, errs = ran("region", "create", "fast", path, "--size", "1M")
	require.Zero(t, code, errs)
	code, out, errs = ran("save", "--config", file)
	require.Equal(t, 1, code)
	require.Regexp(t, `^region fast NOT SAVED: .*\n$`, out)
	require.Contains(t, errs, "not every region is saved")
	code, _, errs = ran("save", "--config", file+".gone")
	require.Equal(t, 1, code)
	require.Contains(t, errs, "no such file")
}

// A disk that hangs keeps no other region from being saved.
func TestSaveOfflineAtOnce(t *testing.T) {
	regions := []servedRegion{{Name: "hangs"}, {Name: "plain"}, {Name: "well"}}
	regions[0].Save.string, regions[2].Save.string = "/hangs", "/well"
	mends := make(chan struct{})
	var out bytes.Buffer
	err := saveAll(&out, regions, func(r *servedRegion) (string, error) {
		if r.Name == "hangs" {
			<-mends
			return "", errors.New("input/output error")
		}
		close(mends)
		return "region " + r.Name + " saved", nil
	})
	require.ErrorIs(t, err, errNotSaved)
	require.ElementsMatch(t, []string{"region well saved", "region hangs NOT SAVED: input/output error"}, strings.Split(strings.TrimSpace(out.String()), "\n"))
}
