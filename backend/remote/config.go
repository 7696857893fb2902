package remote

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"pmnbd/persist"
	"pmnbd/persist/wire"
	"pmnbd/rdma"
)

// Config says which region to open, and how. A zero value takes the default named.
type Config struct {
	// Provider and Addr (HOST:PORT) lead to the target, Region is the region's name.
	Provider rdma.Provider
	Addr     string
	Region   string
	// Target is the target's name, if Key is set. No other target will do.
	Target string
	// Encrypted has the device use encrypted connections only, for which it needs Key. The Provider
	// makes them; Encrypted refuses others, whatever the Provider is.
	Encrypted bool
	// Members are the copies of a mirror, by slot, at most persist.MaxMembers. Provider, Addr,
	// Region, Target and Encrypted are then left empty.
	Members []Target
	// ID names this initiator. It survives restarts, and is not zero. InitiatorID makes one.
	ID [16]byte
	// StateDir is the directory of the locks that keep other processes of this id from the
	// region. Only this user may be able to change it and WindowDir.
	StateDir string
	// WindowDir is the directory of window files, on a filesystem in memory. With it the next
	// run of this initiator can go on where this one was killed. If it is empty, the window dies
	// with this process, and so do acknowledged writes that no FLUSH covered.
	WindowDir string
	// AcceptLoss opens the device where Dial would return a LossError. It changes nothing
	// elsewhere.
	AcceptLoss bool
	// LocalClients says that all clients run on this host, so a reboot ends them.
	LocalClients bool
	// Window limits the memory, in bytes, for payloads that no barrier covers yet:
	// DefaultWindow. When half of it is used the device starts a barrier of its own.
	Window uint64
	// Lanes is the number of the session's connections, at most MaxLanes: DefaultLanes.
	Lanes int
	// Connections is how many clients' connections can receive at the same time,
	// each into a chunk of its own: DefaultConnections.
	Connections int
	// Method insists on a durability method: Dial fails, with the reason, where that is not
	// sound. 0 takes the best that is.
	Method persist.Method
	// LossTimeout bounds how long the device tries to bring a lost session back, and how long
	// the target may take for one barrier. Then the device fails. 0 is for ever, as for a
	// disk.
	LossTimeout time.Duration
	// LegTimeout is how long a member of a mirror may be away before the device goes on without it;
	// 0: it goes on at once.
	LegTimeout time.Duration
	// SyncTimeout is how long a member of a mirror may keep the others waiting for what they have
	// acknowledged, without any progress, before the device goes on without it: its disk hangs. It is to
	// be longer than the longest sync of the slowest disk. 0: for ever.
	SyncTimeout time.Duration
	// ResyncRate bounds how many bytes a second are compared, and copied where they differ, to a member
	// that lacks some, for each such member; 0: as fast as clients let it.
	ResyncRate uint64
	// AsyncLag and AsyncLagTime bound how far an asynchronous member may be behind, in flushed bytes and by
	// the age of the oldest FLUSH that it lacks: DefaultAsyncLag, but at most a quarter of Window, and
	// DefaultAsyncLagTime. At the bound FLUSHes wait for it, and so do writes when the window is full. With
	// AsyncDrop the mirror goes on without it instead, and copies to it later what it lacks. A member that
	// is away, or takes nothing, is waited for at the bound no longer than LegTimeout.
	AsyncLag     uint64
	AsyncLagTime time.Duration
	AsyncDrop    bool
	// Degraded begins with a member of a mirror whose others may have newer data: what only those
	// have is lost.
	Degraded bool
	// Arbiter, if not nil, decides which initiator has the mirror, and holds its generation. A mirror
	// that was begun with an arbiter is not begun without one, unless Degraded and WithoutArbiter: then it
	// has none from then on.
	Arbiter        Arbiter
	WithoutArbiter bool
	// Waits, if not nil, is called during Dial of a mirror when that cannot begin yet, and whenever the
	// reason changes. why names the members that it waits for, and says why a target gave no answer.
	Waits func(why string)
	// Single opens a member of a mirror as a region alone, which Dial refuses otherwise. From then on
	// the mirror takes the member for one that lost its contents: its next start needs Degraded, if the
	// member was in sync, and copies all of another member to it.
	Single bool
	// OpenTimeout bounds how long Dial tries to reach the target and waits for an answer, each
	// time that it asks; 0: as long as its context allows. Dial replays the window of the
	// previous run for as long as that makes progress, and gives up when the replay has stood
	// still for this long.
	OpenTimeout time.Duration
	// AllowVolatile permits a region of class volatile.
	AllowVolatile bool
	// Takeover takes the region from another initiator whose lease still runs.
	Takeover bool
	// Key returns the key that ID shares with the target of that name, or nil if it shares none.
	// The device asks for it at each handshake, so that the key can change. If Key itself is nil
	// there are no keys, and the target must ask for none.
	Key func(target string) []byte
	// Log takes one line for each transition of the device's life; nil: none.
	Log *slog.Logger
	// Jitter returns a number in [0, 1): by how much to shorten a pause between two attempts;
	// nil: rand.Float64. Several goroutines call it. A test that has to repeat a run sets it.
	Jitter func() float64
}

// A Target is where one member of a mirror is: Provider and Addr (HOST:PORT) lead to the target, Region
// is the region's name there, Name the target's, as Config.Target, and Encrypted as Config.Encrypted.
type Target struct {
	Provider rdma.Provider
	Addr     string
	Region   string
	Name     string

	Encrypted bool
}

// complete fills in the defaults, and returns what is missing or out of bounds as an error.
func (c *Config) complete() error {
	if c.Window == 0 {
		c.Window = DefaultWindow
	}
	if c.Lanes == 0 {
		c.Lanes = DefaultLanes
	}
	if c.Connections == 0 {
		c.Connections = DefaultConnections
	}
	if c.Jitter == nil {
		c.Jitter = rand.Float64
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.AsyncLag == 0 {
		c.AsyncLag = min(DefaultAsyncLag, c.Window/4)
	}
	if c.AsyncLagTime == 0 {
		c.AsyncLagTime = DefaultAsyncLagTime
	}
	targets := c.Members
	if len(targets) == 0 {
		targets = []Target{{c.Provider, c.Addr, c.Region, c.Target, c.Encrypted}}
	} else if c.Provider != nil || c.Addr != "" || c.Region != "" || c.Target != "" || c.Encrypted {
		return errors.New("a Config of a mirror has Members, and no Provider, Addr, Region, Target or Encrypted beside them")
	}
	for i, t := range targets {
		switch {
		case t.Provider == nil, t.Addr == "", t.Region == "":
			return errors.New("a Config needs a Provider, the Addr of the target and the name of a Region")
		case len(t.Region) > wire.MaxText:
			return fmt.Errorf("the region's name has %d bytes; %d are allowed", len(t.Region), wire.MaxText)
		case t.Encrypted && c.Key == nil:
			return ErrNoKey
		case c.Key != nil:
			if err := wire.CheckTarget(t.Name); err != nil {
				return fmt.Errorf("a Config with keys needs the target's name: %w", err)
			}
		}
		if len(c.Members) > 0 { // for the log
			if i > 0 {
				c.Addr, c.Region = c.Addr+",", c.Region+","
			}
			c.Addr, c.Region = c.Addr+t.Addr, c.Region+t.Region
		}
	}
	switch {
	case len(c.Members) == 0 && c.Arbiter != nil:
		return errors.New("only a Config of a mirror has an Arbiter")
	case c.WithoutArbiter && (c.Arbiter != nil || !c.Degraded):
		return errors.New("a Config with WithoutArbiter is Degraded, and has no Arbiter")
	case len(c.Members) > 0 && c.Single:
		return errors.New("a Config has either Members or Single")
	case len(c.Members) > persist.MaxMembers:
		return fmt.Errorf("%d members: a mirror has at most %d", len(c.Members), persist.MaxMembers)
	case c.StateDir == "":
		return errors.New("a Config needs a StateDir")
	case c.Window < MinWindow || c.Window > MaxWindow:
		return fmt.Errorf("a window of %d bytes: it takes %d to %d", c.Window, MinWindow, uint64(MaxWindow))
	case c.AsyncLag > c.Window/4:
		return fmt.Errorf("an asynchronous member may be %d bytes behind: the window of %d bytes holds what it lacks, and takes at most a quarter for that", c.AsyncLag, c.Window)
	case c.AsyncLagTime < 0:
		return fmt.Errorf("an asynchronous member may be %v behind: use a positive duration", c.AsyncLagTime)
	case c.Lanes < 0 || c.Lanes > MaxLanes:
		return fmt.Errorf("%d lanes: use 1 to %d", c.Lanes, MaxLanes)
	case c.Connections < 0:
		return fmt.Errorf("%d connections: use 1 or more", c.Connections)
	}
	return nil
}

// leadTo makes t the target of a leg's Config.
func (c *Config) leadTo(t Target) {
	c.Provider, c.Addr, c.Region, c.Target, c.Encrypted = t.Provider, t.Addr, t.Region, t.Name, t.Encrypted
}

// ofLegs returns the Config of each leg.
func (c Config) ofLegs() (legs []Config) {
	if len(c.Members) == 0 {
		return []Config{c}
	}
	for _, m := range c.Members {
		cfg := c
		cfg.leadTo(m)
		cfg.LossTimeout = 0 // a leg that is lost does not end a mirror
		legs = append(legs, cfg)
	}
	return legs
}
