package remote

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"pmnbd/persist"
	"pmnbd/rdma"
)

const (
	// verifyAhead is how many chunks of each member a Verify compares at the same time.
	verifyAhead = 4
	// verifyChunk is what a Verify compares, and tells of, at a time, in bytes.
	verifyChunk = pieceSize
	// maxDifferences is how many chunks that differ a Verify names. It counts all.
	maxDifferences = 1000
)

// A Difference is a chunk that members in sync do not have alike.
type Difference struct {
	// Offset and Length are in bytes of the device.
	Offset uint64 `json:"offset"`
	Length uint64 `json:"length"`
	// Digests are the SHA-256 of what members have there, in hexadecimal, by letter of the member. Members
	// that are equal to the first one are not all named.
	Digests map[string]string `json:"digests"`
	// Copied: all members have it now as VerifyOptions.From had it, durably.
	Copied bool `json:"copied,omitempty"`

	lost bool // the member to copy from has it not
}

// A Verification is what a Verify has found.
type Verification struct {
	// Members are the letters of those that were compared, such as "AB".
	Members string `json:"members"`
	// Compared is how many bytes were compared, Total how many there are; of each member but one.
	Compared uint64 `json:"compared_bytes"`
	Total    uint64 `json:"total_bytes"`
	// Different counts the chunks that differ. Differences are the first of them, by offset.
	Different   int          `json:"different"`
	Differences []Difference `json:"differences"`
}

// VerifyOptions say what a Verify does beside comparing.
type VerifyOptions struct {
	// From is the letter of the member from which chunks that differ are copied to the others; empty:
	// none is.
	From string
	// Progress, if not nil, is called about once a second with what was found so far, without Differences.
	Progress func(Verification)
}

// Errors of Verify.
var (
	// ErrNoMirror: the device has a region alone.
	ErrNoMirror = errors.New("the export is no mirror")
	// ErrNotVerified: members left F, or the device ended, before everything was compared.
	ErrNotVerified = errors.New("not everything was compared")
)

// Verify compares the members in sync with each other, by digests that their targets make (mirror §5.7),
// while clients go on. Config.ResyncRate bounds how much a second. Chunks that differ are reported; nobody
// knows which member is right, so nothing is copied unless an option says from where. If a member is away it
// waits until that one is back or let go. Beside an error Verify returns what it has found so far. One Verify
// can run at a time.
func (d *Device) Verify(ctx context.Context, o VerifyOptions) (*Verification, error) {
	k := d.core.copies
	if k == nil {
		return nil, ErrNoMirror
	}
	v, err := k.beginVerify(ctx, d.info.Size, o.From)
	if err != nil {
		return nil, err
	}
	d.log.Info("a verification of the mirror begins", slog.String("region", d.cfg.Region), slog.String("members", v.members.String()), slog.String("copies_from", o.From))
	defer context.AfterFunc(ctx, v.end)()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for running := true; running; {
		select {
		case <-v.done:
			running = false
		case <-tick.C:
			if o.Progress != nil {
				o.Progress(v.sofar(false))
			}
		}
	}
	k.core.commit.mu.Lock()
	k.checks = false
	k.core.commit.mu.Unlock()
	result := v.sofar(true)
	cut := result.Compared < result.Total || v.incomplete()
	level, message := slog.LevelInfo, "a verification of the mirror is through"
	if result.Different > 0 {
		level = slog.LevelError
	}
	if cut {
		message = "a verification of the mirror was cut short"
	}
	d.log.Log(context.Background(), level, message, slog.String("region", d.cfg.Region), slog.String("members", result.Members),
		slog.Uint64("compared_bytes", result.Compared), slog.Int("chunks_that_differ", result.Different), slog.String("copied_from", o.From))
	if cut {
		return &result, errors.Join(ErrNotVerified, context.Cause(ctx))
	}
	return &result, nil
}

// A verification is a Verify under way. For each member but one it has a part: a resync whose source is
// that one, and which copies only if it is told to. The parts end with the first session that is lost, and
// others go on where they were (verify_rounds.go).
type verification struct {
	copies  *copies
	from    *leg // the source; set once, like what follows
	copying bool
	size    uint64
	members persist.Members
	regions [persist.MaxMembers]persist.Membership // what the members are, by slot
	done    chan struct{}                          // closed once the last parts have ended

	// Set while no part runs.
	session uint64      // of the source: see bindLocked
	conns   []rdma.Conn // its lanes'

	mu      sync.Mutex
	parts   []*resync
	found   map[uint64]*Difference // by offset
	differs []byte                 // a bit for each chunk that differs
	count   int                    // of those bits
	broken  bool                   // one of parts has ended early
}

// beginVerify starts the parts. ctx ends the verification.
func (k *copies) beginVerify(ctx context.Context, size uint64, from string) (*verification, error) {
	c := &k.core.commit
	c.mu.Lock()
	defer c.mu.Unlock()
	f := k.view.Record.F
	switch {
	case k.checks:
		return nil, errors.New("another verification of this mirror is under way")
	case k.core.failed() != nil:
		return nil, k.core.failed()
	case k.life.Err() != nil:
		return nil, errStopped
	case !k.view.Flushes():
		return nil, errors.New("the mirror changes, or compares its members already: try again when pmnbd mirror status shows them in sync")
	case f.Count() < 2:
		return nil, fmt.Errorf("only member %v is in sync: there is nothing to compare it with", f)
	}
	v := &verification{
		copies: k, size: size, members: f, regions: k.view.Record.Members, copying: from != "",
		done: make(chan struct{}), found: make(map[uint64]*Difference), differs: make([]byte, chunkBits(size)),
	}
	var legs []*leg
	for _, g := range k.core.legs {
		if !f.Has(g.slot) {
			continue
		}
		if !g.up.Load() {
			return nil, fmt.Errorf("member %v is away", persist.Member(g.slot))
		}
		legs = append(legs, g)
	}
	slices.SortFunc(legs, func(a, b *leg) int { return a.slot - b.slot })
	source := 0
	if from != "" {
		if source = slices.IndexFunc(legs, func(g *leg) bool { return persist.Member(g.slot).String() == from }); source < 0 {
			return nil, fmt.Errorf("member %q is not in sync, or does not exist: those in sync are %v", from, f)
		}
	}
	v.from = legs[source]
	pieces := k.pieces[len(k.core.legs)*copiesAhead:]
	for _, g := range slices.Delete(legs, source, source+1) {
		v.parts = append(v.parts, v.newPart(g, pieces[:verifyAhead]))
		pieces = pieces[verifyAhead:]
	}
	k.checks = true
	k.ended.Add(1)
	go v.drive(ctx, v.startLocked())
	return v, nil
}

// chunkBits is how many bytes have a bit for each chunk of size bytes.
func chunkBits(size uint64) uint64 { return (size + verifyChunk*8 - 1) / (verifyChunk * 8) }

// newPart makes the part that compares g with the source.
func (v *verification) newPart(g *leg, pieces []piece) *resync {
	r := &resync{
		copies: v.copies, leg: g, pieces: pieces, verify: v,
		wake: make(chan struct{}, 1), lost: make(chan struct{}), shares: make([]settlement, len(v.copies.core.streams)),
	}
	r.todo = chunks{size: v.size, each: verifyChunk, bits: make([]byte, chunkBits(v.size))}
	r.todo.fill()
	r.todo.count()
	return r
}

// bindLocked has v ask only the session that its source has now. The caller holds commit.mu.
func (v *verification) bindLocked() {
	v.session, v.conns = v.from.generation.Load(), nil
	for _, l := range v.from.lanes {
		l.mu.Lock()
		v.conns = append(v.conns, l.conn)
		l.mu.Unlock()
	}
}

// sourceLocked is the lane of stream s that v compares with; nil if the source's session is another one by now.
// That one may be of a member that left F meanwhile, and lacks what the others have. The caller holds the
// stream's mutex.
func (v *verification) sourceLocked(s *stream) *lane {
	l := v.from.lanes[s.index]
	if l.conn != v.conns[s.index] {
		return nil
	}
	return l
}

// startLocked starts the parts' goroutines, which copies.end waits for. The caller holds commit.mu.
func (v *verification) startLocked() (running *sync.WaitGroup) {
	running = new(sync.WaitGroup)
	v.bindLocked()
	for _, r := range v.parts {
		for _, l := range r.leg.lanes { // it is equal, so no resync has them
			l.mu.Lock()
			l.copying = r
			l.mu.Unlock()
		}
		v.copies.ended.Add(1)
		running.Go(func() {
			defer v.copies.ended.Done()
			v.run(r)
		})
	}
	return running
}

// run drives a part until it is through, or has to end.
func (v *verification) run(r *resync) {
	for {
		pause, through := r.step()
		if through {
			break
		}
		if pause == 0 || pause > time.Second {
			pause = time.Second // to see whether the source is still there
		}
		if !v.holds() || r.wait(pause) != nil {
			v.mu.Lock()
			v.broken = true
			v.mu.Unlock()
			v.end() // the others, too
			break
		}
	}
	r.drain()
	r.detach()
	r.reclaim()
}

// end ends all parts.
func (v *verification) end() {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, r := range v.parts {
		r.end()
	}
}

// holds reports whether the members are those that are compared, and all there.
func (v *verification) holds() bool {
	c := &v.copies.core.commit
	c.mu.Lock()
	defer c.mu.Unlock()
	view := &v.copies.view
	return view.Flushes() && view.Record.F&v.members == v.members && v.from.up.Load() && v.from.generation.Load() == v.session
}

// differsLocked reports whether p is to go on, to what next says, because its sums differ. The stream's
// mutex is held. A Verify sums twice: what comes behind a DIGEST may be stored while the target sums, and
// at different moments at the two targets. The second time nothing passes.
func (r *resync) differsLocked(p *piece) bool {
	if p.sums[0] == p.sums[1] || p.state != pieceCompare && p.state != pieceConfirm {
		return false
	}
	if r.verify == nil || p.state == pieceCompare {
		return true
	}
	r.verify.differ(r, p)
	return r.verify.copying && !r.verify.from.lacks(p)
}

// next is what follows state for a piece whose sums differ.
func (v *verification) next(state pieceState) pieceState {
	if v != nil && state == pieceCompare {
		return pieceConfirm
	}
	return pieceCopy
}

// differ notes that the members of r have p not alike.
func (v *verification) differ(r *resync, p *piece) {
	v.mu.Lock()
	defer v.mu.Unlock()
	chunk := p.off / verifyChunk
	if bit := byte(1) << (chunk % 8); v.differs[chunk/8]&bit == 0 {
		v.differs[chunk/8] |= bit
		v.count++
	}
	d := v.found[p.off]
	if d == nil {
		if len(v.found) == maxDifferences {
			return
		}
		d = &Difference{Offset: p.off, Length: uint64(p.len()), Digests: make(map[string]string)}
		v.found[p.off] = d
	}
	d.lost = v.from.lacks(p)
	d.Digests[persist.Member(v.from.slot).String()] = hex.EncodeToString(p.sums[0][:])
	d.Digests[persist.Member(r.leg.slot).String()] = hex.EncodeToString(p.sums[1][:])
}

func (v *verification) incomplete() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.broken
}

// sofar is what was found, with the differences if all has ended.
func (v *verification) sofar(ended bool) Verification {
	v.mu.Lock()
	defer v.mu.Unlock()
	s := Verification{Members: v.members.String(), Total: v.size * uint64(len(v.parts))}
	for _, r := range v.parts {
		s.Compared += r.compared.Load()
	}
	s.Different, s.Differences = v.count, []Difference{}
	if !ended {
		return s
	}
	for _, d := range v.found {
		d.Copied = v.copying && !v.broken && !d.lost
		s.Differences = append(s.Differences, *d)
	}
	slices.SortFunc(s.Differences, func(a, b Difference) int {
		if a.Offset < b.Offset {
			return -1
		}
		return 1
	})
	return s
}
