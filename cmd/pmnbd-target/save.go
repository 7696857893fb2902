package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"pmnbd/cmd/internal/command"
	"pmnbd/cmd/internal/flags"
	"pmnbd/cmd/internal/reload"
	"pmnbd/cmd/internal/status"
	"pmnbd/persist/region"
	"pmnbd/persist/target"
)

const saveHelp = `Saves the regions of class protected: ends their sessions, writes what differs from their images, and returns when
all images are whole and durable. Nobody gets such a region any more until "pmnbd-target resume" or a restart.
Shutdown hooks of a UPS call this; SIGPWR has the same effect. With --config no pmnbd-target has to run: the
command opens the regions in FILE that have save, and saves them itself, also those of a FILE with mistakes. A
region without memory has nothing to save, and keeps its image.

Usage:
  pmnbd-target save [--control ADDRESS]
  pmnbd-target save --config FILE
`

const resumeHelp = `Ends what "pmnbd-target save" began: sessions are granted again. Initiators come back by themselves.

Usage:
  pmnbd-target resume [--control ADDRESS]
`

// The URL paths of the commands.
const savePath, resumePath = "/save", "/resume"

// A savedView is what came of the save of a region, in JSON.
type savedView struct {
	Region  string  `json:"region"`
	Bytes   uint64  `json:"bytes"`
	Seconds float64 `json:"seconds"`
	Error   string  `json:"error,omitempty"`
}

func viewOfSaved(s *target.Saved) savedView {
	v := savedView{Region: s.Region, Bytes: s.Bytes, Seconds: s.Took.Seconds()}
	if s.Err != nil {
		v.Error = s.Err.Error()
	}
	return v
}

// String is what the command prints.
func (v *savedView) String() string {
	if v.Error != "" {
		return fmt.Sprintf("region %s NOT SAVED: %s", v.Region, v.Error)
	}
	took := time.Duration(v.Seconds * float64(time.Second))
	line := fmt.Sprintf("region %s saved: wrote %s in %v", v.Region, flags.Size(v.Bytes).Rounded(), took.Round(time.Millisecond))
	if v.Bytes > 0 && v.Seconds > 0 {
		line += fmt.Sprintf(", %s/s", flags.Size(float64(v.Bytes)/v.Seconds).Rounded())
	}
	return line
}

// errNotSaved ends a save some of whose regions, which it has named, are not saved.
var errNotSaved = errors.New("not every region is saved: a power failure now loses those that are not")

// saveRegions runs `pmnbd-target save`.
func saveRegions(call *command.Call) error {
	file := call.Flags.String("config", "", "save the regions of this `FILE` without a running pmnbd-target")
	// An empty variable in the hook of a UPS must not keep regions from being saved.
	call.Flags.Lookup("config").Annotations = map[string][]string{command.MayBeEmpty: nil}
	control := status.DefaultPlace()
	call.Flags.Var(&control, "control", "the control socket to ask, or, with a / at its end, where to look for them")
	if err := call.Parse(); err != nil {
		return err
	}
	if *file != "" {
		return saveOffline(call.Stdout, *file)
	}
	failed, heard := false, false
	asked, err := askAll(&control, savePath, func(line json.RawMessage) error {
		var v savedView
		if err := json.Unmarshal(line, &v); err != nil {
			return err
		}
		failed, heard = failed || v.Error != "", true
		_, err := fmt.Fprintln(call.Stdout, v.String())
		return err
	})
	switch {
	case failed:
		return errors.Join(errNotSaved, err)
	case asked == 0 && err == nil:
		return status.Nobody(&control, program)
	case !heard && err == nil:
		_, err = fmt.Fprintln(call.Stdout, "nothing to save: no region of class protected is served")
	}
	return err
}

// askAll has every pmnbd-target at control run the command at path, all at the same time: a save of
// one takes as long as its disks. It calls heard one at a time.
func askAll(control *status.Place, path string, heard func(json.RawMessage) error) (asked int, err error) {
	ctx := context.Background()
	found, err := status.Find[reload.Document](ctx, control, program)
	var mu sync.Mutex // of heard and err
	var all sync.WaitGroup
	for _, f := range found {
		all.Go(func() {
			failed := status.Do(ctx, f.Socket, path, nil, func(line json.RawMessage) error {
				mu.Lock()
				defer mu.Unlock()
				return heard(line)
			})
			if failed != nil {
				mu.Lock()
				defer mu.Unlock()
				err = errors.Join(err, fmt.Errorf("process %d: %w", f.Document.PID, failed))
			}
		})
	}
	all.Wait()
	return len(found), err
}

// saveOffline saves the regions of a configuration file that no pmnbd-target serves.
func saveOffline(stdout io.Writer, file string) error {
	regions, err := regionsOf(file)
	if err == nil && len(regions) == 0 {
		_, err = fmt.Fprintf(stdout, "nothing to save: no region of %s has save\n", file)
		return err
	}
	return errors.Join(err, saveAll(stdout, regions, (*servedRegion).saveAlone))
}

// regionsOf returns the regions of a file that have save, also of a file with mistakes, beside the error
// that says what these are: the power may be about to go, and a mistake must cost no region that can be
// found all the same.
func regionsOf(file string) ([]servedRegion, error) {
	var c config
	err := c.load(file)
	if err != nil {
		c.Regions = salvage(file)
	}
	var all []servedRegion
	for _, r := range c.Regions {
		if r.Save.string == "" {
			continue
		}
		// What else is wrong with it matters to serve alone.
		plain := servedRegion{Name: r.Name, Path: r.Path, Save: r.Save}
		if plain.check() == nil {
			err = errors.Join(err, r.check())
		}
		twice, same := false, false
		for _, o := range all {
			twice = twice || o.Name == r.Name
			same = same || o.Name == r.Name && o.Path == r.Path && o.Save == r.Save
		}
		if twice {
			err = errors.Join(err, errTwice(r.Name))
		}
		if !same { // two saves of one region would be in each other's way
			all = append(all, plain)
		}
	}
	return all, err
}

// lastChance returns why nobody can save r any more once this process has ended, or "".
func (s *service) lastChance(r *region.Region) string {
	p, ok := r.Protection()
	switch {
	case !ok || p.Whole:
		return ""
	case r.Nameless():
		return "somebody has removed its memory, which ends with this process"
	case s.file == "":
		return ""
	}
	regions, _ := regionsOf(s.file)
	if slices.ContainsFunc(regions, func(n servedRegion) bool {
		return n.Name == r.Name() && n.Path.string == r.Path() && region.ImagePath(n.Save.string, n.Name) == p.Image
	}) {
		return ""
	}
	return s.file + " does not name it as it is, so nobody would save it at the shutdown"
}

// saveAll saves those of regions that have an image, all at the same time: a disk that hangs must
// keep no other region from being saved. It prints a line for each as soon as that is through.
func saveAll(stdout io.Writer, regions []servedRegion, save func(*servedRegion) (string, error)) error {
	var mu sync.Mutex // of what follows
	var failed, unsaid error
	var all sync.WaitGroup
	for i := range regions {
		r := &regions[i]
		if r.Save.string == "" {
			continue
		}
		all.Go(func() {
			line, err := save(r)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed = errNotSaved
				line = (&savedView{Region: r.Name, Error: err.Error()}).String()
			}
			if _, err := fmt.Fprintln(stdout, line); err != nil {
				unsaid = err
			}
		})
	}
	all.Wait()
	return errors.Join(failed, unsaid)
}

// saveAlone opens and saves a region, and says so. It never opens one without memory: that would
// load the image, or lose a region whose image is not whole.
func (r *servedRegion) saveAlone() (line string, err error) {
	if err := r.check(); err != nil {
		return "", err
	}
	if _, err := os.Lstat(r.Path.string); errors.Is(err, fs.ErrNotExist) {
		p, err := region.InspectImage(region.ImagePath(r.Save.string, r.Name))
		if err != nil {
			return "", fmt.Errorf("%s is not there, and nobody knows what the image has: %w", r.Path.string, err)
		}
		if !p.Whole {
			return "", fmt.Errorf("%s is not there, and the image lacks what it had: mount it again, or the region is lost", r.Path.string)
		}
		return fmt.Sprintf("region %s has no memory: its image stays as it is", r.Name), nil
	}
	opened, err := region.Open(r.Path.string, region.OpenOptions{Name: r.Name, Save: r.Save.string, Saving: true})
	if errors.Is(err, region.ErrInUse) {
		return "", fmt.Errorf("%w: `pmnbd-target save` without --config has that save it", err)
	}
	if err != nil {
		return "", err
	}
	saved, err := opened.Save(context.Background())
	if err = errors.Join(err, opened.Close()); err != nil {
		return "", err
	}
	v := viewOfSaved(&target.Saved{Region: r.Name, Bytes: saved.Bytes, Took: saved.Took})
	return v.String(), nil
}

// resumeRegions runs `pmnbd-target resume`.
func resumeRegions(call *command.Call) error {
	control := status.DefaultPlace()
	call.Flags.Var(&control, "control", "the control socket to ask, or, with a / at its end, where to look for them")
	if err := call.Parse(); err != nil {
		return err
	}
	asked, err := askAll(&control, resumePath, func(json.RawMessage) error { return nil })
	if asked == 0 && err == nil {
		return status.Nobody(&control, program)
	}
	if err == nil {
		_, err = fmt.Fprintln(call.Stdout, "resumed: sessions are granted again")
	}
	return err
}

// saveCommands are what the control socket takes. A save goes on when its asker leaves: the power
// may be about to go, and the asker to be killed.
func (s *service) saveCommands() []status.Command {
	return []status.Command{
		{Path: savePath, Run: func(ctx context.Context, _ url.Values, say func(any) error) error {
			var unsaid error
			_, err := s.target.SaveTelling(context.WithoutCancel(ctx), func(saved target.Saved) {
				unsaid = errors.Join(unsaid, say(viewOfSaved(&saved)))
			})
			return errors.Join(err, unsaid)
		}},
		{Path: resumePath, Run: func(context.Context, url.Values, func(any) error) error { return s.target.Resume() }},
	}
}

// onPowerFailure saves at each SIGPWR, which init and UPS software send when the power is about to
// go. stop ends that, and waits for a save under way.
func (s *service) onPowerFailure() (stop func()) {
	return s.power.Take(func() {
		s.log.Warn("SIGPWR: the power is about to go")
		if _, err := s.target.Save(context.Background()); err != nil { // it has logged what came of each region
			s.log.Error("not saved", zap.Error(err))
		}
	})
}
