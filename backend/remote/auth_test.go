package remote

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/backend/backendtest"
	"pmnbd/persist/region"
	"pmnbd/persist/region/regiontest"
	"pmnbd/persist/target"
	"pmnbd/persist/wire"
	"pmnbd/rdma/rdmafake"
)

var secretKey = wire.Key("a key of thirty-two bytes, or of more")

// only returns a Config.Key for one target.
func only(key wire.Key) func(string) []byte {
	return func(name string) []byte {
		if name != targetName {
			return nil
		}
		return key
	}
}

// keyed gives the target a key of the pair's initiator, and the initiator key.
func keyed(t *testing.T, key wire.Key) (p *pair, cfg Config, keys func(...wire.Key)) {
	id := (&pair{}).config(t).ID
	p = newPair(t, rdmafake.New(rdmafake.Config{}), "", "", target.Config{Keys: target.Keys{id: {secretKey}}})
	cfg = p.config(t)
	cfg.Lanes, cfg.LossTimeout = 3, 0
	if key != nil {
		cfg.Target, cfg.Key = targetName, only(key)
	}
	return p, cfg, func(keys ...wire.Key) {
		require.NoError(t, p.server.Change(target.Offer{Regions: []*region.Region{p.region}, Keys: target.Keys{id: keys}}, func() {}))
	}
}

// Both ends prove that they have the key, on every lane, at the start and when a lost
// session comes back.
func TestKeys(t *testing.T) {
	p, cfg, keys := keyed(t, secretKey)
	key := secretKey
	cfg.Key = func(string) []byte { return key }
	d, err := Dial(context.Background(), cfg)
	require.NoError(t, err)
	require.Zero(t, d.legs[0].granted.Token, "the secret does not cross the wire")
	c := backendtest.NewClient(t, d)
	lose := func() {
		t.Helper()
		epoch := d.Snapshot().Epoch
		p.provider.(*rdmafake.Provider).Cut()
		flush := c.Flush()
		c.Submit(c.Write(2<<20, backendtest.Pattern(block, uint32(epoch)), 0), flush)
		require.NoError(t, c.Wait(flush))
		require.Greater(t, d.Snapshot().Epoch, epoch)
	}
	lose()
	// A rotation: the target takes both, then the initiator has the new one, then the
	// target takes that alone.
	next := wire.Key("the key that takes its place: it is long enough")
	keys(secretKey, next)
	lose()
	key = next
	lose()
	keys(next)
	lose()

	// A key that is wrong for a while: the device waits, and nothing is lost.
	keys(secretKey)
	p.provider.(*rdmafake.Provider).Cut()
	flush := c.Flush()
	c.Submit(c.Write(0, backendtest.Pattern(block, 1), 0), flush)
	require.Eventually(t, func() bool { return d.Snapshot().State == StateWaiting && d.Snapshot().Cause != "" }, patience, tick)
	require.Eventually(t, func() bool { return strings.Contains(d.Snapshot().Cause, "authentication refused") }, patience, tick)
	keys(next)
	require.NoError(t, c.Wait(flush))
	require.Equal(t, backendtest.Pattern(block, 1), p.region.Data()[:block])
	require.NoError(t, d.Close())
}

func TestKeysThatDoNotFit(t *testing.T) {
	t.Run("wrong key", func(t *testing.T) {
		p, cfg, _ := keyed(t, wire.Key("another key of at least 32 bytes."))
		_, err := Dial(context.Background(), cfg)
		var refused *RefusedError
		require.ErrorAs(t, err, &refused)
		require.Equal(t, wire.CodeAuth, refused.said.Code)
		require.EqualValues(t, 1, p.region.Superblock().Epoch)
	})
	t.Run("no key", func(t *testing.T) {
		p, cfg, _ := keyed(t, nil)
		_, err := Dial(context.Background(), cfg)
		require.ErrorIs(t, err, ErrWantsKey)
		require.EqualValues(t, 1, p.region.Superblock().Epoch)
	})
	t.Run("a target without keys", func(t *testing.T) {
		p := fake(t, rdmafake.Config{})
		cfg := p.config(t)
		cfg.Target, cfg.Key = targetName, only(secretKey)
		_, err := Dial(context.Background(), cfg)
		require.ErrorIs(t, err, ErrNoProof)
		require.EqualValues(t, 1, p.region.Superblock().Epoch, "it was granted nothing")
	})
}

// An impostor that takes the target's place has no key: whatever it says, the device
// waits, and goes on when the target is back. It says what would end a session for good.
func TestImpostorEndsNothing(t *testing.T) {
	f := newFarm(t)
	keys := target.Keys{(&pair{}).config(t).ID: {secretKey}}
	f.stop()
	f.keys = keys
	f.start(f.path, regiontest.ADR)
	cfg := (&pair{provider: f.provider, addr: "target", stateDir: t.TempDir()}).config(t)
	cfg.LossTimeout, cfg.Target, cfg.Key = 0, targetName, only(secretKey)
	d, err := Dial(context.Background(), cfg)
	require.NoError(t, err)
	c := backendtest.NewClient(t, d)
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0), c.Flush()))
	f.stop()
	for name, says := range map[string]target.Keys{
		"without key":        nil,
		"with another's key": {(&pair{}).config(t).ID: {wire.Key("another key of at least 32 bytes.")}},
	} {
		t.Run(name, func(t *testing.T) {
			f.t = t
			f.keys = says
			f.start(inMemory(t), regiontest.ADR)
			require.Eventually(t, func() bool {
				cause := d.Snapshot().Cause
				return strings.Contains(cause, "does not prove") || strings.Contains(cause, "authentication refused")
			}, patience, tick)
			require.Equal(t, StateWaiting, d.Snapshot().State)
			f.stop()
		})
	}
	f.t = t
	f.keys = keys
	f.start(f.path, regiontest.ADR)
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 2), 0), c.Flush()))
	require.NoError(t, d.Close())
}

// Another target that answers at the address, because it was moved there or somebody redirects the
// connection, ends nothing and is given nothing. It has a key of the initiator, but that makes it
// no other target than it is. What it refuses with a proof is not taken for a word of this target.
func TestWrongTarget(t *testing.T) {
	f := newFarm(t)
	id := (&pair{}).config(t).ID
	second := wire.Key("the key that target pm2 and this initiator share.")
	f.stop()
	f.keys = target.Keys{id: {secretKey}}
	f.start(f.path, regiontest.ADR)
	cfg := (&pair{provider: f.provider, addr: "target", stateDir: t.TempDir()}).config(t)
	shared := map[string]wire.Key{targetName: secretKey, "pm2": second}
	cfg.LossTimeout, cfg.Target, cfg.Key = 0, targetName, func(name string) []byte { return shared[name] }
	d, err := Dial(context.Background(), cfg)
	require.NoError(t, err)
	c := backendtest.NewClient(t, d)
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0), c.Flush()))
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 2), 0)), "never flushed")
	f.stop()
	for _, tt := range []struct {
		name   string
		called string
		keys   target.Keys
		says   string
	}{
		{"pm2", "pm2", target.Keys{id: {second}}, `the wrong target: at target answers target "pm2", not "pm1", which proves that`},
		{"pm2, by its word", "pm2", target.Keys{id: {secretKey}}, `target "pm2", not "pm1", as it says, but it refuses the key`},
		{"pm2, which says pm1", targetName, target.Keys{id: {second}}, "authentication refused"},
		{"a target without a key of ours", "pm3", target.Keys{id: {second}}, `target "pm3", not "pm1", as it says without a proof`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f.t, f.name, f.keys = t, tt.called, tt.keys
			f.start(inMemory(t), regiontest.ADR)
			require.Eventually(t, func() bool { return strings.Contains(d.Snapshot().Cause, tt.says) }, patience, tick, tt.says)
			require.Equal(t, StateWaiting, d.Snapshot().State)
			require.EqualValues(t, 1, f.region.Superblock().Epoch, "it granted nothing")
			cfg := cfg
			cfg.StateDir = t.TempDir()
			_, err := Dial(context.Background(), cfg)
			require.ErrorContains(t, err, tt.says, "a start ends")
			require.EqualValues(t, 1, f.region.Superblock().Epoch)
			f.stop()
		})
	}
	f.t, f.name, f.keys = t, targetName, target.Keys{id: {secretKey}}
	f.start(f.path, regiontest.ADR)
	require.NoError(t, c.Do(c.Flush()))
	require.Equal(t, backendtest.Pattern(block, 2), f.region.Data()[:block])
	require.NoError(t, d.Close())
}

// What the target answers counts only with its proof.
func TestAnswersAreProven(t *testing.T) {
	secret := wire.NewSecret(secretKey, wire.Ends{}, wire.Nonce{1}, wire.Nonce{2}, nil)
	resume := (&wire.Resume{Region: "log"}).Append(nil)
	secret.SignRequest(resume)
	c := &dialed{secret: &secret}
	gone := &wire.Refused{Code: wire.CodeNotOwner}
	answer := gone.Append(nil)
	require.ErrorIs(t, c.proven(resume, answer, wire.TypeRefused, gone), ErrNoProof)
	require.ErrorIs(t, c.proven(resume, (&wire.Opened{}).Append(nil), wire.TypeOpened, &wire.Refused{Code: wire.CodeAuth}), ErrNoProof)
	secret.SignAnswer(answer, resume)
	require.NoError(t, c.proven(resume, answer, wire.TypeRefused, gone))
	no := &wire.Refused{Code: wire.CodeAuth}
	require.NoError(t, c.proven(resume, no.Append(nil), wire.TypeRefused, no), "who has no key of ours can only say so")
	require.NoError(t, (&dialed{}).proven(resume, answer, wire.TypeRefused, gone), "without a key")
}

// Takeover gets a region whose holder's lease runs; what the holder still has can never
// come back.
func TestTakeover(t *testing.T) {
	p := fake(t, rdmafake.Config{})
	old := p.dialPatient(t, 2)
	c := backendtest.NewClient(t, old)
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 1), 0), c.Flush()))
	require.NoError(t, c.Do(c.Write(0, backendtest.Pattern(block, 2), 0)), "never flushed")

	cfg := p.config(t)
	cfg.ID, cfg.StateDir = [16]byte{99}, t.TempDir()
	_, err := Dial(context.Background(), cfg)
	var refused *RefusedError
	require.ErrorAs(t, err, &refused)
	require.Equal(t, wire.CodeBusy, refused.said.Code)
	cfg.Takeover, cfg.LossTimeout = true, 0
	d, err := Dial(context.Background(), cfg)
	require.NoError(t, err)
	require.NotZero(t, d.legs[0].granted.Flags&wire.OpenedUnclean)
	n := backendtest.NewClient(t, d)
	require.NoError(t, n.Do(n.Write(0, backendtest.Pattern(block, 3), 0), n.Flush()))

	require.ErrorContains(t, c.Do(c.Flush()), "had another owner since")
	requireFailed(t, c)
	require.Error(t, old.Close())
	require.Equal(t, backendtest.Pattern(block, 3), p.region.Data()[:block])
	p.provider.(*rdmafake.Provider).Cut()
	require.NoError(t, n.Do(n.Write(0, backendtest.Pattern(block, 4), 0), n.Flush()), "it resumes as any owner does")
	require.NoError(t, d.Close())
}
