package main

import (
	"context"
	"sync"
	"time"

	"pmnbd/cmd/internal/daemon"
	"pmnbd/persist/region"
)

// lastSaves are the saves of regions that nobody else would save before the host goes down: the file
// does not name them any more, or their memory ends with this process.
type lastSaves struct {
	mu       sync.Mutex // of the rest
	underWay []*region.Region
	ending   bool // the process ends, and systemd kills it after the time that it asked for last
}

// ends notes that the process ends, and tells systemd how long that may take.
func (s *service) ends() {
	s.last.mu.Lock()
	defer s.last.mu.Unlock()
	s.last.ending = true
	s.stoppingLocked()
}

// stoppingLocked tells systemd how long the end may take from now. The target's
// snapshot lacks the regions that a reload removes.
func (s *service) stoppingLocked() {
	var last []region.Protection
	for _, r := range s.last.underWay {
		p, _ := r.Protection()
		last = append(last, p)
	}
	daemon.Stopping(s.log, max(savesFor(s.target.Snapshot()), lastSavesFor(last)))
}

// noteLast notes that regions are to be saved for the last time, and returns those that have an image. If the process
// ends, noteLast tells systemd how long that may take now. A reload calls it before the target gives the regions up,
// because a save that somebody asked for can delay the last saves.
func (s *service) noteLast(regions []*region.Region) (protected []*region.Region) {
	for _, r := range regions {
		if _, ok := r.Protection(); ok {
			protected = append(protected, r)
		}
	}
	s.last.mu.Lock()
	defer s.last.mu.Unlock()
	s.last.underWay = protected
	if s.last.ending && len(protected) > 0 {
		s.stoppingLocked()
	}
	return protected
}

// saveLast saves those of regions that have an image, all at the same time: a disk that hangs must keep no
// other region from being saved. It returns an error for each region that is not saved. One goroutine at a
// time may call it.
func (s *service) saveLast(regions []*region.Region) (failed []error) {
	var mu sync.Mutex // of failed
	var all sync.WaitGroup
	for _, r := range s.noteLast(regions) {
		all.Go(func() {
			if _, err := r.Save(context.Background()); err != nil {
				mu.Lock()
				defer mu.Unlock()
				failed = append(failed, err)
			}
		})
	}
	all.Wait()
	return failed
}

// lastSavesFor returns how long saves of regions like these may take, if they run at the same time.
func lastSavesFor(all []region.Protection) time.Duration {
	if len(all) == 0 {
		return 0
	}
	var within, expected time.Duration
	for _, p := range all {
		within = max(within, p.SaveWithin)
		left := p.Expected
		if p.Saving != nil { // at the speed that the disk has today
			left = max(left, p.Saving.Left)
		}
		expected += left // they may share a disk
	}
	// A disk can hang four times before a save writes the first block: for another holder of the region's lock, for
	// the look whether the image is still in its place, for the same look before the new header, and for the header.
	return 4*region.DiskPatience + max(within, 2*expected)
}
