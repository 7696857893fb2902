package target

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"pmnbd/persist/region"
)

// A disk watches the disk that a region's saves go to.
type disk struct {
	trouble atomic.Pointer[error] // what the last look found; nil: there was none yet
	began   atomic.Int64          // when the look under way began, by clock, or 0
	cancel  context.CancelFunc
	ended   chan struct{}
}

// watch begins to look at the disk that e is saved to, and logs when that or the battery makes
// the server refuse sessions, and when it no longer does.
func (e *export) watch(every time.Duration) {
	said := ""
	e.disk.start(every, func(ctx context.Context) {
		e.disk.look(e.image)
		e.s.power.await(ctx) // else each start would have this in the log
		why := e.short(false)
		switch {
		case why != "" && said == "":
			e.s.log.Warn("no session is granted: a save could not keep what it would store", slog.String("region", e.r.Name()), slog.String("cause", why))
		case why == "" && said != "":
			e.s.log.Info("sessions are granted again", slog.String("region", e.r.Name()))
		}
		said = why
	})
}

// start begins to call do at once, and then every so often until close.
func (d *disk) start(every time.Duration, do func(context.Context)) {
	ctx, cancel := context.WithCancel(context.Background())
	d.cancel, d.ended = cancel, make(chan struct{})
	go func() {
		defer close(d.ended)
		repeat(ctx, every, func() { do(ctx) })
	}()
}

// look looks once. A disk that hangs holds it up.
func (d *disk) look(image protected) {
	d.began.Store(clock())
	err := image.SaveTrouble()
	d.trouble.Store(&err)
	d.began.Store(0)
}

// close ends the goroutine. It waits for it unless it hangs in the disk, where it touches no memory of
// the region: the other regions must be given up for the save of the shutdown.
func (d *disk) close() {
	if d.cancel == nil {
		return
	}
	d.cancel()
	patience := time.NewTimer(diskAnswers)
	defer patience.Stop()
	select {
	case <-d.ended:
	case <-patience.C:
	}
}

// diskAnswers is how long a look may take, and the sync of a region that is withdrawn.
const diskAnswers = 10 * time.Second

// wrong returns what is wrong with the disk, or nil.
func (d *disk) wrong() error {
	found, began := d.trouble.Load(), d.began.Load()
	switch {
	case began != 0 && time.Duration(clock()-began) > diskAnswers:
		return fmt.Errorf("the disk for saves has not answered for %v", time.Duration(clock()-began).Round(time.Second))
	case found == nil:
		return errors.New("the disk for saves has not been looked at yet")
	}
	return *found
}

// withholds returns why the server grants no session on e now, or "". resume says that it would be
// the owner's, who comes back.
func (e *export) withholds(resume bool) string {
	switch {
	case e.image == nil:
		return ""
	case e.halted():
		return "the target has ended its sessions to save the region: `pmnbd-target resume` there, or its restart, lets initiators in again"
	}
	return e.short(resume)
}

// short returns why a save of e, as it would be after a session, may fail, or "". Memory that has lost a
// place does not keep the owner out: a READ of that place ends a session, and the rest of the device
// goes on. Only if the image is whole, a session would take something away.
func (e *export) short(resume bool) string {
	p, ok := e.image.Protection()
	returns := resume && ok && !p.Whole
	if err := e.disk.wrong(); err != nil && (!returns || !errors.Is(err, region.ErrBadPlace)) {
		return err.Error()
	}
	if !ok {
		return ""
	}
	return e.s.power.tooShort(e.need(p.Longest)) // after most sessions everything is dirty
}

// need returns how long a save of all regions takes, with its own for that of e. It is the sum,
// because they may share a disk. A region that is just being granted counts as if it were: of two grants at a
// time, which the battery lasts for one of, the later one must see the other.
func (e *export) need(own time.Duration) time.Duration {
	for _, other := range e.s.protects() {
		if other == e {
			continue
		}
		begins := other.begins.Load() // first: when it is over, Expected has it
		switch p, ok := other.image.Protection(); {
		case ok && begins:
			own += p.Longest
		case ok:
			own += p.Expected
		}
	}
	return own
}

// A ProtectionSnapshot says how a region of class protected is saved. Its JSON names stay as
// they are once published.
type ProtectionSnapshot struct {
	Image string `json:"image"`
	// Whole: the image has everything. Otherwise a power failure now loses the region.
	Whole bool `json:"whole"`
	// SavedAt is when the last save ended, nil if there was none.
	SavedAt *time.Time `json:"saved_at"`
	// Dirty is how many bytes a save would write now.
	Dirty uint64 `json:"dirty_bytes"`
	// Speed is what the disk was measured to take, in bytes a second; 0: it could not be measured.
	Speed uint64 `json:"disk_bytes_per_second"`
	// Expected is how long a save would take now, Longest how long one of everything would, and
	// Within how long it may take, in seconds.
	Expected float64 `json:"expected_save_seconds"`
	Longest  float64 `json:"longest_save_seconds"`
	Within   float64 `json:"save_within_seconds"`
	// Saving says how far a save is that is under way, or is nil.
	Saving *SavingSnapshot `json:"saving"`
	// Losses counts how often the contents were lost. LostAt is when that was last, or nil.
	Losses uint32     `json:"losses"`
	LostAt *time.Time `json:"lost_at"`
	// Lost is why the present start of the target lost them, or "".
	Lost string `json:"lost,omitempty"`
	// Halted: a save has ended the sessions, and Resume has not been called. Refuses is why no
	// session is granted now, or "".
	Halted  bool   `json:"halted"`
	Refuses string `json:"refuses,omitempty"`
}

// A SavingSnapshot says how far a save is: how many bytes it has written, of how many, and how many
// seconds the rest takes. Its JSON names stay as they are once published.
type SavingSnapshot struct {
	Written uint64  `json:"written_bytes"`
	Of      uint64  `json:"of_bytes"`
	Left    float64 `json:"left_seconds"`
}

// protection returns how e is saved, or nil.
func (e *export) protection() *ProtectionSnapshot {
	if e.image == nil {
		return nil
	}
	p, _ := e.image.Protection()
	var saving *SavingSnapshot
	if p.Saving != nil {
		saving = &SavingSnapshot{Written: p.Saving.Written, Of: p.Saving.Of, Left: p.Saving.Left.Seconds()}
	}
	return &ProtectionSnapshot{
		Image: p.Image, Whole: p.Whole, SavedAt: unlessZero(p.SavedAt), Dirty: p.Dirty, Speed: p.Speed,
		Expected: p.Expected.Seconds(), Longest: p.Longest.Seconds(), Within: p.SaveWithin.Seconds(),
		Losses: p.Losses, LostAt: unlessZero(p.LostAt), Lost: p.Lost,
		Saving: saving, Halted: e.halted(), Refuses: e.withholds(false),
	}
}

func unlessZero(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
