package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"pmnbd/cmd/internal/reload"
)

// A starting initiator has a configuration file and a key file, and serves nothing yet.
type starting struct {
	*initiator
	t          *testing.T
	file, keys string
}

func newStarting(t *testing.T, id uuid.UUID, config string, targets ...string) *starting {
	t.Helper()
	dir := t.TempDir()
	s := &starting{t: t, file: filepath.Join(dir, "conf"), keys: filepath.Join(dir, "keys")}
	s.says(config)
	s.has(id, "0123456789abcdef", targets...)
	c := call("--config", s.file)
	cfg, err := parse(c)
	require.NoError(t, err)
	s.initiator = &initiator{cfg: cfg, log: zap.NewNop(), id: id, ordering: make(chan struct{}, 1), args: c.Args, said: settings(c.Flags)}
	s.reloader = reload.New(s.log, s.reload)
	s.reloader.Starting = s.reloadKeys
	return s
}

// says writes the configuration file.
func (s *starting) says(config string) {
	require.NoError(s.t, os.WriteFile(s.file, []byte("key-file = \""+s.keys+"\"\n"+config), 0o600))
}

// has writes keys that begin with fill.
func (s *starting) has(id uuid.UUID, fill string, targets ...string) {
	text := ""
	for i, name := range targets {
		text += id.String() + " " + name + " " + strings.Repeat(fill, 4)[:63] + string('0'+rune(i)) + "\n"
	}
	require.NoError(s.t, os.WriteFile(s.keys, []byte(text), 0o600))
}

// TestReloadDuringTheStart: devices that are being opened have the keys of the newest reload from then on. A reload that
// fails changes none. What else has changed is left for later, or refused.
func TestReloadDuringTheStart(t *testing.T) {
	const (
		one  = "[[export]]\ntarget = \"iwarp://pm1/log\"\n"
		two  = "[[export]]\ntarget = \"iwarp://pm2/data\"\n"
		bare = "[[export]]\ntarget = \"iwarp://192.0.2.1/log\"\n" // with a single key this is its target
	)
	for name, tt := range map[string]struct {
		was, is    string
		keys, next []string
		later      bool
		refuses    string
	}{
		"keys alone":             {was: one, is: one, keys: []string{"pm1"}, next: []string{"pm1"}},
		"more keys":              {was: one, is: one, keys: []string{"pm1"}, next: []string{"pm1", "pm2"}},
		"fewer keys":             {was: one + two, is: one + two, keys: []string{"pm1", "pm2"}, next: []string{"pm1"}, refuses: "has no key of this initiator and target pm2"},
		"a key that was missing": {was: one + two, is: one + two, keys: []string{"pm1", "pm3"}, next: []string{"pm1", "pm2"}},
		"another name":           {was: bare, is: bare, keys: []string{"pm1"}, next: []string{"pm2"}, refuses: "has no key of this initiator and target pm1"},
		"no name":                {was: bare, is: bare, keys: []string{"pm1"}, next: []string{"pm1", "pm2"}, refuses: "has no key of this initiator and target 192.0.2.1"},
		"a name of its own":      {was: two, is: two, keys: []string{"pm1"}, next: []string{"pm1", "pm2"}, refuses: `has target iwarp://pm2:7204/data as "pm2", and pmnbd has begun to open it as "pm1"`},
		"no keys":                {was: one, is: one, keys: []string{"pm1"}, refuses: "key file: "},
		"an export":              {was: one, is: one + two, keys: []string{"pm1"}, next: []string{"pm1", "pm2"}, later: true},
		"an export less":         {was: one + two, is: one, keys: []string{"pm1", "pm2"}, next: []string{"pm1", "pm2"}, later: true},
		"another target":         {was: one, is: strings.Replace(one, "pm1", "pm3", 1), keys: []string{"pm1"}, next: []string{"pm1", "pm3"}, later: true},
		"the log level":          {was: one, is: "log-level = \"debug\"\n" + one, keys: []string{"pm1"}, next: []string{"pm1"}, later: true},
		"a setting":              {was: one, is: "lanes = 2\n" + one, keys: []string{"pm1"}, next: []string{"pm1"}, refuses: "a change of lanes takes a restart"},
	} {
		t.Run(name, func(t *testing.T) {
			id := uuid.New()
			s := newStarting(t, id, tt.was, tt.keys...)
			require.NoError(t, s.firstKeys())
			key := s.initiator.keys.of(s.initiator.keys.latest()) // as dial gives it to a device
			before := key("pm1")
			require.NotEmpty(t, before)
			s.says(tt.is)
			s.has(id, "fedcba9876543210", tt.next...)
			c, err := s.reloadKeys(t.Context())
			if tt.refuses == "" {
				require.NoError(t, err)
				require.Equal(t, &reload.Changes{Keys: true, Later: tt.later}, c)
				require.NotEmpty(t, key("pm1"))
				require.NotEqual(t, before, key("pm1"))
			} else {
				require.ErrorContains(t, err, tt.refuses)
				require.Equal(t, before, key("pm1"))
			}
			require.Nil(t, s.reloader.Close())
		})
	}
}

// TestHangUpDuringTheStart: no SIGHUP is lost once the keys have been read. One that comes while they are read waits,
// and if they cannot be read it ends with the start.
func TestHangUpDuringTheStart(t *testing.T) {
	id := uuid.New()
	begin := func() (s *starting, came chan struct{}, ended chan error) {
		s = newStarting(t, id, "[[export]]\ntarget = \"iwarp://pm1/log\"\n", "pm1")
		came, ended = make(chan struct{}), make(chan error)
		s.reloader.Starting = func(ctx context.Context) (*reload.Changes, error) {
			came <- struct{}{}
			c, err := s.reloadKeys(ctx)
			ended <- err
			return c, err
		}
		return s, came, ended
	}
	s, came, ended := begin()
	require.NoError(t, s.firstKeys())
	before := s.initiator.keys.latest().get("pm1")
	s.has(id, "fedcba9876543210", "pm1")
	require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGHUP))
	<-came
	require.NoError(t, <-ended)
	require.NotEqual(t, before, s.initiator.keys.latest().get("pm1"))
	if closed := s.reloader.Close(); closed != nil { // the reload is just ending
		<-closed
	}

	s, came, ended = begin()
	s.has(uuid.New(), "0123456789abcdef", "pm1")
	require.ErrorContains(t, s.firstKeys(), "has no key of this initiator")
	require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGHUP))
	<-came
	closed := s.reloader.Close()
	require.NotNil(t, closed)
	require.ErrorIs(t, <-ended, context.Canceled)
	<-closed
}
