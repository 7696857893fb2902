package remote

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/backend"
	"pmnbd/backend/backendtest"
	"pmnbd/persist"
	"pmnbd/persist/wire"
	"pmnbd/rdma"
	"pmnbd/rdma/rdmafake"
)

// Another id waits for the lease; the refusal names the holder.
func TestSecondInitiatorIsRefused(t *testing.T) {
	p := fake(t, rdmafake.Config{})
	d := p.dial(t)
	cfg := p.config(t)
	cfg.ID = [16]byte{2}
	_, err := Dial(context.Background(), cfg)
	var refused *RefusedError
	require.ErrorAs(t, err, &refused)
	require.Equal(t, wire.CodeBusy, refused.said.Code)
	require.Equal(t, [16]byte{1}, refused.said.Holder)
	require.NotZero(t, refused.said.Seconds)

	// The refusal destroyed nothing.
	c := backendtest.NewClient(t, d)
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0), c.Flush()))
	require.NoError(t, d.Close())

	second, err := Dial(context.Background(), cfg)
	require.NoError(t, err, "the lease was given back")
	require.NoError(t, second.Close())
}

func TestRefusal(t *testing.T) {
	for _, tt := range []struct {
		name string
		wire.Refused
		want string
	}{
		{"held by another", wire.Refused{Code: wire.CodeBusy, Holder: [16]byte{15: 1}, Seconds: 7},
			"the target refuses region log: region busy, held by 00000000-0000-0000-0000-000000000001 for 7 more seconds, and longer while that lives"},
		{"being granted", wire.Refused{Code: wire.CodeBusy, Seconds: 1, Text: "try again"},
			"the target refuses region log: region busy: try again"},
		{"failed", wire.Refused{Code: wire.CodeFailed, Holder: [16]byte{15: 1}, Text: "input/output error"},
			"the target refuses region log: region failed: input/output error"},
		{"without more words", wire.Refused{Code: wire.CodeEpoch}, "the target refuses region log: other epoch"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			require.EqualError(t, &RefusedError{Region: "log", said: tt.Refused}, tt.want)
		})
	}
}

// A new run of the same initiator need not wait, and ends the old one for ever:
// its queue pair is destroyed, its key good for nothing, its epoch past.
func TestSameIDTakesItsOwnRegion(t *testing.T) {
	p := fake(t, rdmafake.Config{})
	old := p.dial(t)
	c := backendtest.NewClient(t, old)
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0), c.Flush()))
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 2), 0)), "never flushed")

	cfg := p.config(t)
	cfg.StateDir = t.TempDir()    // as after kill -9: the lock is free
	release := p.sync.blockData() // the target could clear the doubt before it answers
	defer release()
	d, err := Dial(context.Background(), cfg)
	require.NoError(t, err)
	require.Equal(t, old.legs[0].granted.Epoch+1, d.legs[0].granted.Epoch)
	require.NotEqual(t, old.legs[0].granted.Key, d.legs[0].granted.Key)
	require.NotEqual(t, old.legs[0].granted.Token, d.legs[0].granted.Token)
	require.NotZero(t, d.legs[0].granted.Flags&wire.OpenedUnclean, "it is told")

	require.ErrorIs(t, c.Do(c.Flush()), backend.ErrFailed)
	require.Error(t, old.Close())
	n := backendtest.NewClient(t, d)
	r := n.Read(0, block, 0)
	require.NoError(t, n.Do(r))
	require.Equal(t, backendtest.Pattern(block, 1), r.Got)
	before := p.targetBarriers()
	flush := n.Flush()
	n.Submit(flush)
	release()
	require.NoError(t, n.Wait(flush), "nothing is dirty, but what was read may not be durable")
	require.EqualValues(t, 1, p.targetBarriers()-before)
	require.False(t, p.region.Superblock().Doubt)
	require.NoError(t, d.Close())
}

// Two processes of one host and id do not take the region from each other.
func TestClaim(t *testing.T) {
	p := fake(t, rdmafake.Config{})
	d := p.dial(t)
	_, err := Dial(context.Background(), p.config(t))
	require.ErrorContains(t, err, "locked")
	c := backendtest.NewClient(t, d)
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0), c.Flush()), "the first one goes on")
	require.NoError(t, d.Close())
	again := p.dial(t)
	require.NoError(t, again.Close())
}

func TestDialRefusals(t *testing.T) {
	p := fake(t, rdmafake.Config{})
	for name, c := range map[string]struct {
		change func(*Config)
		code   wire.Code
		text   string
		is     error
	}{
		"unknown region":   {change: func(c *Config) { c.Region = "none" }, code: wire.CodeUnknownRegion},
		"long name":        {change: func(c *Config) { c.Region = string(make([]byte, 300)) }, text: "300 bytes"},
		"small window":     {change: func(c *Config) { c.Window = 4096 }, text: "4096 bytes"},
		"nobody listens":   {change: func(c *Config) { c.Addr = "elsewhere" }, is: rdma.ErrLost},
		"no id":            {change: func(c *Config) { c.ID = [16]byte{} }, code: wire.CodeInvalid},
		"no state to lock": {change: func(c *Config) { c.StateDir = "/dev/null/x" }, text: "state directory"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := p.config(t)
			c.change(&cfg)
			_, err := Dial(context.Background(), cfg)
			require.Error(t, err)
			if c.is != nil {
				require.ErrorIs(t, err, c.is)
			}
			require.ErrorContains(t, err, c.text)
			if c.code != 0 {
				var refused *RefusedError
				require.ErrorAs(t, err, &refused)
				require.Equal(t, c.code, refused.said.Code)
			}
		})
	}
}

// What a target grants is hostile too.
func TestCheckGrant(t *testing.T) {
	good := wire.Opened{Size: 4096, Class: 2, Methods: 2, Method: 1, Credits: 8, MaxMessage: 4096, Heartbeat: 1000, Lease: 5000}
	require.NoError(t, check(&good))
	for name, spoil := range map[string]func(*wire.Opened){
		"no size":                    func(g *wire.Opened) { g.Size = 0 },
		"size of a negative":         func(g *wire.Opened) { g.Size = 1 << 63 },
		"base overflows":             func(g *wire.Opened) { g.Base = ^uint64(0) - 10 },
		"unknown class":              func(g *wire.Opened) { g.Class = persist.ClassProtected + 1 },
		"no class":                   func(g *wire.Opened) { g.Class = 0 },
		"no method":                  func(g *wire.Opened) { g.Methods = 1 << 2 },
		"a method that is not sound": func(g *wire.Opened) { g.Method = 2 },
		"no such method":             func(g *wire.Opened) { g.Method = 200 },
		"tiny messages":              func(g *wire.Opened) { g.MaxMessage = 47 },
		"no heartbeat":               func(g *wire.Opened) { g.Heartbeat = 0 },
		"lease too short":            func(g *wire.Opened) { g.Lease = 1000 },
	} {
		t.Run(name, func(t *testing.T) {
			g := good
			spoil(&g)
			require.Error(t, check(&g))
		})
	}
}

// What a Config lacks is an error, and no panic. It needs no logger.
func TestConfigIsIncomplete(t *testing.T) {
	_, err := Dial(t.Context(), Config{})
	require.ErrorContains(t, err, "needs a Provider")
	p := fake(t, rdmafake.Config{})
	for says, without := range map[string]func(c *Config){
		"needs a Provider":    func(c *Config) { c.Provider = nil },
		"name of a Region":    func(c *Config) { c.Region = "" },
		"Addr of the target":  func(c *Config) { c.Addr = "" },
		"needs a StateDir":    func(c *Config) { c.StateDir = "" },
		"-1 lanes":            func(c *Config) { c.Lanes = -1 },
		"-1 connections":      func(c *Config) { c.Connections = -1 },
		"a window of 1 bytes": func(c *Config) { c.Window = 1 },
	} {
		cfg := p.config(t)
		without(&cfg)
		_, err := Dial(t.Context(), cfg)
		require.ErrorContains(t, err, says)
	}
	cfg := p.config(t)
	cfg.Log = nil
	d, err := Dial(t.Context(), cfg)
	require.NoError(t, err)
	require.NoError(t, d.Close())
}

// The reasons have the numbers of the protocol.
func TestReasons(t *testing.T) {
	for reason, code := range map[Reason]wire.Code{
		ReasonUnknownRegion: wire.CodeUnknownRegion, ReasonBusy: wire.CodeBusy, ReasonEpoch: wire.CodeEpoch,
		ReasonFailed: wire.CodeFailed, ReasonSuspect: wire.CodeSuspect, ReasonVolatile: wire.CodeVolatile,
		ReasonNotSupported: wire.CodeNotSupported, ReasonVersion: wire.CodeVersion, ReasonInvalid: wire.CodeInvalid,
		ReasonNotOwner: wire.CodeNotOwner, ReasonMethod: wire.CodeMethod, ReasonNotAllowed: wire.CodeNotAllowed,
		ReasonAuth: wire.CodeAuth, ReasonRestored: wire.CodeRestored,
	} {
		require.Equal(t, Reason(code), reason)
		require.Equal(t, code.String(), reason.String())
	}
}
