package reload

import (
	"context"
	"errors"
	"net/url"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// asked has r reload as the control socket does.
func asked(ctx context.Context, r *Reloader) (said *Changes, err error) {
	c := r.Command()
	err = c.Run(ctx, url.Values{}, func(v any) error {
		said = v.(*Changes)
		return nil
	})
	return said, err
}

// TestOneAtATime: a second reload waits for the first one, and one that somebody has left is ended.
func TestOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		running, began := 0, make(chan struct{}, 2)
		r := New(zap.NewNop(), func(ctx context.Context) (*Changes, error) {
			running++
			defer func() { running-- }()
			require.Equal(t, 1, running)
			began <- struct{}{}
			<-ctx.Done()
			return nil, ctx.Err()
		})
		first, leave := context.WithCancel(t.Context())
		ended := make(chan error, 2)
		go func() { _, err := asked(first, r); ended <- err }()
		<-began
		second, leaveToo := context.WithCancel(t.Context())
		go func() { _, err := asked(second, r); ended <- err }()
		synctest.Wait()
		require.Empty(t, began)
		leave()
		require.ErrorIs(t, <-ended, context.Canceled)
		<-began
		leaveToo()
		require.ErrorIs(t, <-ended, context.Canceled)
		require.Nil(t, r.Close())
	})
}

// TestClose: the end of the process ends the context of a reload, waits for it, and lets no other begin.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, finish := make(chan struct{}), make(chan struct{})
		r := New(zap.NewNop(), func(ctx context.Context) (*Changes, error) {
			close(began)
			<-ctx.Done()
			<-finish // flushes what it has removed
			return &Changes{Removed: []string{"log"}}, nil
		})
		ended := make(chan error, 2)
		go func() { _, err := asked(t.Context(), r); ended <- err }()
		<-began
		late := make(chan error, 1)
		go func() { _, err := asked(t.Context(), r); late <- err }()
		synctest.Wait()
		closed := r.Close()
		require.NotNil(t, closed)
		synctest.Wait()
		require.Empty(t, closed)
		close(finish)
		<-closed
		require.NoError(t, <-ended)
		require.ErrorIs(t, <-late, errEnding)
		_, err := asked(t.Context(), r)
		require.ErrorIs(t, err, errEnding)
		require.Nil(t, r.Close())
	})
}

// TestStarting: a reload during the start does what Starting says. What that leaves is reloaded when the daemon serves,
// also if the start ends meanwhile; Close ends that, too.
func TestStarting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var did []string
		leaves, hold := false, make(chan struct{})
		begin := func() *Reloader {
			did = nil
			r := New(zap.NewNop(), func(context.Context) (*Changes, error) {
				did = append(did, "all")
				return &Changes{}, nil
			})
			r.Starting = func(context.Context) (*Changes, error) {
				did = append(did, "keys")
				<-hold
				return &Changes{Keys: true, Later: leaves}, nil
			}
			return r
		}
		asks := func(r *Reloader) {
			go func() { _, _ = asked(t.Context(), r) }()
			synctest.Wait()
		}

		r := begin()
		asks(r)
		hold <- struct{}{}
		r.Serve()
		synctest.Wait()
		require.Equal(t, []string{"keys"}, did, "nothing is left")
		asks(r)
		require.Equal(t, []string{"keys", "all"}, did)
		require.Nil(t, r.Close())

		r, leaves = begin(), true
		asks(r)
		go r.Serve()
		synctest.Wait()
		require.Equal(t, []string{"keys"}, did)
		hold <- struct{}{}
		synctest.Wait()
		require.Equal(t, []string{"keys", "all"}, did)
		require.Nil(t, r.Close())

		r = begin()
		r.do = func(ctx context.Context) (*Changes, error) {
			<-ctx.Done()
			did = append(did, "ended")
			return nil, ctx.Err()
		}
		asks(r)
		hold <- struct{}{}
		r.Serve()
		synctest.Wait()
		if closed := r.Close(); closed != nil { // else it has ended already
			<-closed
		}
		require.Equal(t, []string{"keys", "ended"}, did)
	})
}

// TestSays: what came of a reload is in the log and in the answer; what went wrong in the end is not lost.
func TestSays(t *testing.T) {
	broken := errors.New("lanez")
	for name, tt := range map[string]struct {
		c    *Changes
		err  error
		text string
		log  []string
	}{
		"nothing": {c: &Changes{}, text: "nothing has changed", log: []string{"read again"}},
		"all": {
			c:    &Changes{Added: []string{"a", "b"}, Removed: []string{"c"}, Changed: []string{"d"}, Keys: true},
			text: "added a, b; removed c; changed d; keys read again: they count from the next handshake", log: []string{"read again"},
		},
		"keys alone":       {c: &Changes{Keys: true, Later: true}, text: "keys read again: they count from the next handshake; " + later, log: []string{"read again; " + later}},
		"wrong in the end": {c: &Changes{Removed: []string{"c"}, Wrong: "not flushed"}, text: "removed c", log: []string{"read again", "reload: what was removed did not end in order"}},
		"wrong":            {err: broken, log: []string{"reload: nothing changed"}},
	} {
		t.Run(name, func(t *testing.T) {
			core, lines := observer.New(zap.InfoLevel)
			r := New(zap.New(core), func(context.Context) (*Changes, error) { return tt.c, tt.err })
			c, err := asked(t.Context(), r)
			require.ErrorIs(t, err, tt.err)
			if tt.err == nil {
				require.Equal(t, tt.text, c.String())
			}
			var log []string
			for _, l := range lines.All() {
				log = append(log, l.Message)
			}
			require.Equal(t, tt.log, log)
			require.Nil(t, r.Close())
		})
	}
	r := New(zap.NewNop(), nil)
	r.Nothing = true
	_, err := asked(t.Context(), r)
	require.ErrorIs(t, err, errNothing)
}
