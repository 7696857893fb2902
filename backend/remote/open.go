package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/google/uuid"

	"pmnbd/internal/endpoint"
	"pmnbd/rdma"
	"pmnbd/rdma/iwarp"
)

// An Option changes the Config of Open. A field that has no option here takes one of the program's
// own: func(c *remote.Config) { c.Takeover = true }.
type Option func(*Config)

// WithStateDir names the directory in which the program keeps what outlives it: the lock that keeps
// other processes from its regions, and the initiator's id. Open needs it.
func WithStateDir(dir string) Option { return func(c *Config) { c.StateDir = dir } }

// WithWindowDir keeps the window in a file in dir, on a filesystem in memory such as /dev/shm. The
// next start then adopts what a program that was killed had not flushed.
func WithWindowDir(dir string) Option { return func(c *Config) { c.WindowDir = dir } }

// WithID sets the id of this initiator, in place of the one in the state directory.
func WithID(id [16]byte) Option { return func(c *Config) { c.ID = id } }

// WithKey has the initiator and the target prove to each other that they have the key that they
// share. The device asks key for it at each handshake, with the target's name, which is what the URI
// has before an @, or else its host. A key has 32 bytes or more.
func WithKey(key func(target string) []byte) Option { return func(c *Config) { c.Key = key } }

// WithWindow bounds the memory for writes that are not durable yet, in bytes.
func WithWindow(bytes uint64) Option { return func(c *Config) { c.Window = bytes } }

// WithLanes sets how many connections the session has.
func WithLanes(n int) Option { return func(c *Config) { c.Lanes = n } }

// WithLossTimeout has the device fail when its target has been away for so long. Without it the
// device waits for as long as it takes.
func WithLossTimeout(d time.Duration) Option { return func(c *Config) { c.LossTimeout = d } }

// WithLogger sets who takes the device's log.
func WithLogger(log *slog.Logger) Option { return func(c *Config) { c.Log = log } }

// WithProvider sets the transport. Open uses package rdma/iwarp without it, for iwarp:// and iwarps://. It needs
// one of package rdma/verbs for rdma://.
func WithProvider(p rdma.Provider) Option { return func(c *Config) { c.Provider = p } }

// AllowVolatile permits a region of class volatile, whose contents are lost with the target's power.
func AllowVolatile() Option { return func(c *Config) { c.AllowVolatile = true } }

// Open opens the region at uri, iwarp://HOST:PORT/REGION, iwarps:// for the same encrypted (which needs
// WithKey), or rdma://, with NAME@ before HOST if the target's name is not HOST. The port is 7204, or 7205
// if the URI has none. It returns a device that is ready; ctx bounds the opening alone. The
// initiator's id is InitiatorID's unless an option sets one. Its errors are those of Dial.
func Open(ctx context.Context, uri string, options ...Option) (*Device, error) {
	at, err := endpoint.ParseTarget(uri)
	if err != nil {
		return nil, err
	}
	cfg := Config{Addr: at.Address(), Region: at.Region, Target: at.Target(), Encrypted: at.Encrypted()}
	if at.Provider != "rdma" {
		cfg.Provider = iwarp.New(iwarp.Config{Encrypt: at.Encrypted()})
	}
	for _, o := range options {
		o(&cfg)
	}
	if cfg.Provider == nil {
		return nil, fmt.Errorf("%s needs a provider of package rdma/verbs: use WithProvider", uri)
	}
	if cfg.ID == [16]byte{} && cfg.StateDir != "" {
		if cfg.ID, err = InitiatorID(cfg.StateDir); err != nil {
			return nil, err
		}
	}
	return Dial(ctx, cfg)
}

// InitiatorID returns the id of the initiator whose Config.StateDir is dir. It is in the file
// initiator-id. The first process that asks draws it at random, and makes the directory if there is
// none.
func InitiatorID(dir string) (id [16]byte, err error) {
	state, err := openDirectory(dir)
	if err != nil {
		return id, fmt.Errorf("the state directory: %w", err)
	}
	defer func() { err = errors.Join(err, state.Close()) }()
	const name = "initiator-id"
	b, err := state.Read(name)
	if errors.Is(err, fs.ErrNotExist) {
		if err := state.Write(name, []byte(uuid.NewString()+"\n"), true); err != nil { // a second process keeps the id of the first
			return id, fmt.Errorf("make the initiator's id: %w", err)
		}
		b, err = state.Read(name)
	}
	if err != nil {
		return id, fmt.Errorf("read the initiator's id: %w", err)
	}
	id, err = uuid.ParseBytes(bytes.TrimSpace(b))
	if err != nil || id == [16]byte{} {
		return id, fmt.Errorf("%s holds no UUID: remove it, and a new one is made", filepath.Join(dir, name))
	}
	return id, nil
}
