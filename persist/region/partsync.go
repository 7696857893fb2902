package region

// The files of a region of several parts are synced at the same time: a barrier that names several disks takes as long
// as the slowest. The caller holds the region's lock until all are synced. It syncs the first file itself. Each further
// part has a goroutine of its own, from its first such sync until Close:
//
//	caller ──begin──► goroutine of part 2 ──┐
//	   │  └─begin──► goroutine of part 3 ──┤
//	   └─ syncs part 1                      ended ──► all are durable, or the region fails

// A partSyncer is such a goroutine, as the region's lock guards it.
type partSyncer struct {
	begin  chan struct{}
	ended  chan error
	number uint64 // of its sync, as begun counts them
}

// syncPartsLocked syncs files, a bit for each part.
func (r *Region) syncPartsLocked(files uint32) (err error) {
	var first *part
	for i := range r.parts {
		switch p := &r.parts[i]; {
		case files&(1<<i) == 0:
		case first == nil:
			first = p
		default:
			r.beginSyncLocked(p)
		}
	}
	if first == nil {
		return nil
	}
	err = r.syncPartLocked(first)
	for i := range r.parts {
		p := &r.parts[i]
		if files&(1<<i) == 0 || p == first {
			continue
		}
		if failed := <-p.syncer.ended; failed == nil {
			p.done = p.syncer.number
		} else if err == nil {
			err = failed
		}
	}
	return err
}

// beginSyncLocked has p's goroutine sync it.
func (r *Region) beginSyncLocked(p *part) {
	y := &p.syncer
	if y.begin == nil {
		y.begin, y.ended = make(chan struct{}, 1), make(chan error, 1)
		go func() {
			defer close(y.ended)
			for range y.begin {
				y.ended <- r.syncFile(p.file, p.path)
			}
		}()
	}
	y.number = r.begun.Add(1)
	y.begin <- struct{}{}
}

// endSyncersLocked ends the goroutines. None of them syncs.
func (r *Region) endSyncersLocked() {
	for i := range r.parts {
		if y := &r.parts[i].syncer; y.begin != nil {
			close(y.begin)
			for range y.ended { // until it is closed
			}
			y.begin = nil
		}
	}
}
