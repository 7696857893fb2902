// Package attach makes block devices of exports that pmnbd serves on this machine, replaces
// their connections when those end, and takes the devices away again.
//
// It exists because the kernel's nbd client remembers too little: it would go on with any
// server, and let any program detach any device. So a file remembers of each device what is
// on it and by which identifier we attached it, and every step is taken under the device's
// lock, on what the kernel and the file say together:
//
//	the kernel             the file                  the device is
//	not attached           anything                  free
//	attached with ours     that identifier           ours: Attach and Keep replace connections
//	                       that, and Detached        on its way out: no new connections
//	attached otherwise     anything                  another program's: left alone
//
// The package imports backend/remote, nbd/client, nbd/wire, kernel, status,
// cmd/internal/daemon and cmd/pmnbd/internal/report.
package attach

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"go.uber.org/zap"

	"pmnbd/cmd/internal/daemon"
	"pmnbd/cmd/internal/status"
	"pmnbd/cmd/pmnbd/internal/kernel"
	"pmnbd/nbd/wire"
)

// retryEvery is how often Keep tries again: while the server is away, and until the kernel
// has seen that a connection ended.
const retryEvery = time.Second

// errDetached ends Keep: the device is not ours any more.
var errDetached = errors.New("the device was detached")

// A Config says which device is to be made of which export.
type Config struct {
	Device kernel.Device
	// Want selects the export among those that the processes at Control serve.
	Want    Want
	Control status.Place
	// Connections is how many the device has, at least 1.
	Connections int
	// Timeout is how long I/O waits for a server that is gone, in whole seconds.
	Timeout time.Duration
}

// A Keeper gives a device its connections. Its methods are for one goroutine.
type Keeper struct {
	Config
	host  *host
	socks []sock // one for each connection of the device
	// device is what we attached, or found attached. It is nil before, and never another
	// one afterwards.
	device *Attachment

	// src is the server of the connections that the kernel has not taken. export and sizes
	// are what it offered.
	src    *source
	export wire.Export
	sizes  wire.BlockSizes
}

// A sock is a connection, or the place for one.
type sock struct {
	file  *os.File // nil: not connected
	taken bool     // by the kernel
}

// New returns a keeper that has done nothing yet.
func New(cfg Config) *Keeper { return thisHost.keeper(cfg) }

func (h *host) keeper(cfg Config) *Keeper {
	return &Keeper{Config: cfg, host: h, socks: make([]sock, cfg.Connections)}
}

// Attach attaches the device, or, if it is ours already, gives it the connections that it
// lacks. It returns nil if the device is not attached afterwards. An error beside an
// Attachment says why connections are missing still.
func (k *Keeper) Attach(ctx context.Context) (*Attachment, error) {
	err := k.supply(ctx)
	return k.device, err
}

// Keep replaces connections that end. It returns nil when ctx ends or the device was
// detached, and an error if the only server left is one that must not have the device. log
// may be nil.
func (k *Keeper) Keep(ctx context.Context, log *zap.Logger) error {
	if log == nil {
		log = zap.NewNop()
	}
	daemon.Started(log, fmt.Sprintf("%v is export %s", k.Device, k.device.Export))
	stop, end, err := os.Pipe()
	if err != nil {
		return err
	}
	closing := context.AfterFunc(ctx, func() { _ = end.Close() }) // which wait sees at stop
	defer func() { _, _, _ = closing(), end.Close(), stop.Close() }()
	last := "" // the last error that was logged: a line for each change, not for each try
	for {
		if err := k.wait(stop); err != nil {
			return err
		}
		if ctx.Err() == nil {
			err = k.supply(ctx)
		}
		if ctx.Err() != nil {
			log.Info("ending: the device stays attached, and nobody replaces its connections")
			return nil
		}
		switch {
		case errors.Is(err, errDetached), errors.Is(err, errForeign):
			log.Info("ending", zap.Error(err))
			return nil
		case errors.Is(err, errNotFollowing):
			return err
		case err != nil && err.Error() != last:
			last = err.Error()
			log.Warn("connections are missing", zap.Error(err))
		case err == nil && k.whole():
			last = ""
			log.Info("connections replaced")
		}
	}
}

// wait closes connections that hung up. It waits until there is one, or stop is closed at
// its other end, or, while connections are missing, it is time to try again.
func (k *Keeper) wait(stop *os.File) error {
	var files []*os.File
	var socks []*sock
	timeout := time.Duration(-1)
	for i := range k.socks {
		s := &k.socks[i]
		if s.file != nil {
			files, socks = append(files, s.file), append(socks, s)
		}
		if !s.taken {
			timeout = retryEvery
		}
	}
	hung, _, err := kernel.WaitHangUp(files, stop, timeout)
	for i, gone := range hung {
		if gone {
			socks[i].close()
		}
	}
	return err
}

// whole reports whether the kernel has taken every connection.
func (k *Keeper) whole() bool {
	return !slices.ContainsFunc(k.socks, func(s sock) bool { return !s.taken })
}

// Close closes our descriptors of the connections. The kernel has its own.
func (k *Keeper) Close() {
	for i := range k.socks {
		k.socks[i].close()
	}
}

func (s *sock) close() {
	if s.file != nil {
		_ = s.file.Close()
	}
	*s = sock{}
}
