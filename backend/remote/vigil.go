package remote

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"pmnbd/persist/wire"
)

// A vigil is the wait of a start until a target has not heard an owner with this initiator's id for a
// lease. A host that was booted waits for what is left of the lease. If another host lives with a copy
// of the state directory, its heartbeats begin the lease again and again.
type vigil struct {
	left  uint32    // seconds, by the last answer
	until time.Time // when the lease is over if nothing begins it again
	begun int       // how often it was begun
	said  bool      // in the log
}

const (
	// vigilTries is how many times a lease may begin. The grace after a start of the target, which
	// can come in between, begins it too.
	vigilTries = 3
	vigilPause = 500 * time.Millisecond
)

var errHeard = errors.New("a target hears, or heard less than a lease ago, an owner with this initiator's id, and this host has no window of that session: waiting until it is silent")

// hear notes an answer that says how many seconds are left, and reports whether an owner lives.
func (v *vigil) hear(left uint32) bool {
	now := time.Now()
	if v.begun == 0 || left > v.left || now.After(v.until) {
		v.begun++
		v.until = now.Add(time.Duration(left+1) * time.Second) // left is rounded up
	}
	v.left = left
	return v.begun > vigilTries
}

// await waits before the next look at the region.
func (d *Device) await(ctx context.Context, v *vigil) error {
	if !v.said {
		v.said = true
		d.log.Warn("an owner with this initiator's id may live on another host: waiting until its lease is over", slog.String("region", d.cfg.Region), slog.Uint64("lease_left_seconds", uint64(v.left)))
	}
	select {
	case <-time.After(vigilPause):
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", errHeard, context.Cause(ctx))
	}
}

// livesElsewhere is the error of a start that finds an owner with its own id alive: the region is held,
// as by another initiator.
func livesElsewhere(region string, said wire.Refused) error {
	said.Code = wire.CodeBusy
	said.Text = "that is this initiator's own id, and the session is not of this host: was the state directory copied, or does another host use the same --id? Give this host an empty --state-dir"
	return &RefusedError{Region: region, said: said}
}
