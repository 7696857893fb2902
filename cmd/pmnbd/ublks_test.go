package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"pmnbd/cmd/pmnbd/internal/report"
	"pmnbd/ublk"
)

// TestOneUblkOfAnExport: an export that is a block device does not become another one, which would take the chunks that
// are NBD clients' (docs/rules.md).
func TestOneUblkOfAnExport(t *testing.T) {
	s := &initiator{ordering: make(chan struct{}, 1), all: []*export{{name: "log"}, {name: "data"}}}
	s.shown.fill = func(*report.Document) {}
	s.ublks.devices = []ublkDevice{{Device: &ublk.Device{}, export: "log"}}
	for name, tt := range map[string]struct{ export, device, says string }{
		"a number of the kernel's": {"log", "", `export "log" is /dev/ublkb0 already, and can be one ublk device only: use that one, or detach it first`},
		"another number":           {"log", "/dev/ublkb1", `export "log" is /dev/ublkb0 already, and can be one ublk device only: use that one, or detach it first`},
		"the same":                 {"log", "/dev/ublkb0", "/dev/ublkb0 is export log here already"},
		"that of another export":   {"data", "/dev/ublkb0", "/dev/ublkb0 is export log here already"},
	} {
		t.Run(name, func(t *testing.T) {
			require.EqualError(t, s.attachUblk(t.Context(), url.Values{"export": {tt.export}, "device": {tt.device}}, nil), tt.says)
			require.Len(t, s.ublks.list(), 1)
		})
	}
}

// TestUblkAfterDetach: an attach that follows a detach waits for what that left to end, and then has the place.
func TestUblkAfterDetach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		d := ublkDevice{Device: &ublk.Device{}, export: "log", gone: make(chan struct{})}
		require.Error(t, d.Shutdown(ended), "it has begun to end")
		u := ublks{devices: []ublkDevice{d}}
		require.ErrorIs(t, u.admit(ended, "log", ublk.Any), context.Canceled)
		require.NoError(t, u.admit(ended, "data", 1))
		for export, number := range map[string]int{"log": ublk.Any, "data": 0} {
			admitted := make(chan error)
			go func() { admitted <- u.admit(t.Context(), export, number) }()
			defer func() { require.NoError(t, <-admitted) }()
		}
		synctest.Wait()
		require.Len(t, u.list(), 1)
		u.forget(d)
		require.NoError(t, u.admit(ended, "log", 0))
	})
}

// TestForgottenUblk: a block device whose server the kernel took for ended goes on. Only if it cannot does the process end.
func TestForgottenUblk(t *testing.T) {
	failure := errors.New("for a test")
	for name, tt := range map[string]struct {
		ended, again error
		continued    bool
		failed       error
	}{
		"removed":                       {ended: ublk.ErrRemoved},
		"shut down":                     {},
		"the kernel broke the protocol": {ended: failure, failed: failure},
		"forgotten":                     {ended: fmt.Errorf("ublkb3: %w", ublk.ErrForgotten), continued: true},
		"forgotten, and not continued":  {ended: ublk.ErrForgotten, continued: true, again: failure, failed: failure},
	} {
		t.Run(name, func(t *testing.T) {
			continued := false
			u := ublks{failed: make(chan error, 1), again: func(export string, number int) error {
				require.Equal(t, "log", export)
				require.Equal(t, 3, number)
				continued = true
				return tt.again
			}}
			u.ended("log", 3, tt.ended)
			require.Equal(t, tt.continued, continued)
			require.Equal(t, tt.failed != nil, len(u.failed) == 1)
			if tt.failed != nil {
				require.ErrorIs(t, <-u.failed, tt.failed)
			}
		})
	}
}

// TestForgottenUblkMeanwhile: what happened since the kernel forgot the server decides.
func TestForgottenUblkMeanwhile(t *testing.T) {
	s := &initiator{ordering: make(chan struct{}, 1), all: []*export{{name: "log"}}}
	s.ublks.closing = make(chan struct{})
	require.NoError(t, s.continueUblk("data", 3), "a reload has removed the export")
	s.ublks.devices = []ublkDevice{{Device: &ublk.Device{}, export: "log"}}
	require.NoError(t, s.continueUblk("log", 3), "somebody has attached it again")
	s.ublks.devices[0].export = "data"
	require.EqualError(t, s.continueUblk("log", 0), "/dev/ublkb0 is export data here already")
	s.ordering <- struct{}{}
	close(s.ublks.closing)
	require.ErrorIs(t, s.continueUblk("log", 3), context.Canceled, "pmnbd ends")
}

// TestUblkOpensAtTheEnd: a block device that is being opened when pmnbd ends gives up. The end waits for that, and none
// begins after it.
func TestUblkOpensAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &initiator{}
		s.ublks.closing = make(chan struct{})
		ending, cancel := context.WithCancel(t.Context())
		cancel()
		d := ublkDevice{Device: &ublk.Device{}, export: "log", gone: make(chan struct{})}
		require.Error(t, d.Shutdown(ending), "it has begun to end")
		s.ublks.devices = []ublkDevice{d}
		opened := make(chan error, 1)
		go func() {
			_, err := s.openUblk(t.Context(), &export{name: "log"}, 0)
			opened <- err
		}()
		synctest.Wait() // until it waits for d
		require.Empty(t, opened)
		s.ublks.devices = nil // the end does not wait for d
		require.NoError(t, s.ublks.shutdown(t.Context()))
		require.ErrorIs(t, <-opened, context.Canceled)
		_, err := s.openUblk(t.Context(), &export{name: "log"}, 0)
		require.ErrorIs(t, err, errUblksEnd)
		require.ErrorIs(t, s.continueUblk("log", 0), errUblksEnd)
	})
}
