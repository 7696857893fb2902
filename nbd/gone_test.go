package nbd

import (
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/backend"
	"pmnbd/backend/backendtest"
	"pmnbd/nbd/client"
	"pmnbd/nbd/wire"
)

// TestGone: when a client hangs up, its writes without a reply must not land any more if it
// may have sent them again on another connection; see conn.Gone.
func TestGone(t *testing.T) {
	now := backendtest.Pattern(4096, 1)
	tests := []struct {
		name   string
		first  func(f *fixture) // before the client comes
		before func(f *fixture) // while the client lives
		disc   bool
		after  func(f *fixture) // once it has hung up
		lands  bool
	}{
		{name: "another entered after", after: func(f *fixture) { f.entered() }},
		{name: "another entered before", before: func(f *fixture) { f.entered() }},
		{name: "another entered and left before", before: func(f *fixture) { f.comeAndGo() }},
		{name: "another entered and left after", after: func(f *fixture) { f.comeAndGo() }},
		{name: "another was there", first: func(f *fixture) { f.entered() }},
		{name: "another was there by another export", first: func(f *fixture) { f.enteredBy("alias") }},
		{name: "another had left", first: func(f *fixture) { f.comeAndGo() }, lands: true},
		{name: "another entered by another export before", before: func(f *fixture) { f.enteredBy("alias") }},
		{name: "another entered by another export after", after: func(f *fixture) { f.enteredBy("alias") }},
		{name: "a DISC was behind", disc: true, after: func(f *fixture) { f.entered() }, lands: true},
		{name: "alone all along", lands: true}, // nobody can have sent it again
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dev := newGated(t, 1<<20)
			f := serveExports(t, Config{}, Export{Name: "disk", Device: dev}, Export{Name: "alias", Device: dev})
			if tt.first != nil {
				tt.first(f)
			}
			c := f.entered()
			if tt.before != nil {
				tt.before(f)
			}
			c.Write(0, 0, now, 0)
			if tt.disc {
				require.NoError(t, c.Disc())
			} else {
				require.NoError(t, c.Send())
			}
			<-dev.arrived
			require.NoError(t, c.Close())
			if tt.after != nil {
				tt.after(f)
			}
			dev.through <- struct{}{}
			f.shutdown()
			want := make([]byte, 4096)
			if tt.lands {
				want = now
			}
			require.Equal(t, want, dev.contents(t, 4096))
		})
	}
}

// entered makes a connection that the server counts. It sends one request, which the server
// refuses, so the device sees none.
func (f *fixture) entered() *client.Client { return f.enteredBy("disk") }

// enteredBy is entered by that export.
func (f *fixture) enteredBy(export string) *client.Client {
	f.t.Helper()
	c, err := client.New(f.raw(), client.Config{Export: export, Depth: 256})
	require.NoError(f.t, err)
	f.t.Cleanup(func() { _ = c.Close() })
	c.Request(wire.Request{Command: wire.CmdRead})
	do(f.t, c, backend.EINVAL)
	return c
}

// comeAndGo makes a connection that enters and leaves.
func (f *fixture) comeAndGo() {
	c := f.entered()
	require.NoError(f.t, c.Disc())
	_, _, err := c.Recv()
	require.ErrorIs(f.t, err, io.EOF)
}

// contents returns the beginning of the device.
func (d *gated) contents(t testing.TB, n int) []byte {
	c := backendtest.NewClient(t, d.Device)
	r := c.Read(0, n, 0)
	require.NoError(t, c.Do(r))
	return r.Got
}
