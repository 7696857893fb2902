package target

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/google/uuid"

	"pmnbd/persist"
	"pmnbd/persist/region"
	"pmnbd/persist/wire"
)

// What a target does for the mirror that a region is a member of. It knows no other member
// and decides nothing. It keeps what the initiator tells it, durably, and keeps older lives
// of the mirror out (mirror §3, §4).

// unfit returns why m, an OPEN that names the right epoch, does not fit a region with
// superblock sb, or 0. A life must be larger than every one before it. So a life that
// another one has followed can open no member any more, whatever it remembers (mirror §4.7).
func unfit(m *wire.Open, sb *region.Superblock) (wire.Code, string) {
	member := sb.Record != persist.Record{}
	switch {
	case member && m.Life == 0 && m.Flags&wire.OpenSingle == 0:
		return wire.CodeMember, fmt.Sprintf("it is member %v of mirror %s, and this would change it alone", persist.Member(int(sb.Record.Slot)), uuid.UUID(sb.Record.Set))
	case !member && m.Life != 0 && m.Flags&wire.OpenJoin == 0:
		return wire.CodeNoMember, "its target knows of no mirror"
	case m.Life != 0 && m.Life <= sb.Life:
		return wire.CodeLife, fmt.Sprintf("life %d has opened it, and this is life %d", sb.Life, m.Life)
	}
	return 0, ""
}

// A fills counts the records of a session that set all bits of a member. A barrier on another lane
// may have been sent before such a record and arrive after it: what it clears would be bits of the
// fill, or of a member that left in the same way.
type fills struct {
	mu   sync.Mutex
	n    uint8
	left persist.Members // slots whose member is another one since the session began, or none
}

// next notes that rec is to replace was, before bits are set. fills: it sets all bits of a member.
func (f *fills) next(was, rec *persist.Record, fills bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if fills {
		f.n++
	}
	for slot := range was.Members {
		if is := was.Members[slot].UUID; is != [16]byte{} && is != rec.Members[slot].UUID {
			f.left |= persist.Member(slot)
		}
	}
}

// clear calls do unless the initiator had counted other fills than there were, or the member in slot has
// left. That of a slot which is used again keeps its bits until it is in F: too many, and never too few.
func (f *fills) clear(slot int, counted uint8, do func() error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if counted != f.n || f.left.Has(slot) {
		return nil
	}
	return do()
}

// An asked counts the requests that one Poll returned. None of them had its answer when the
// last one came, so that many were unanswered at the same time.
type asked struct{ records, bits, digests, bads int }

// mirror handles a message that only members of a mirror get, and DIGEST.
func (c *conn) mirror(t wire.Type, msg []byte) error {
	switch {
	case t == wire.TypeDigest:
		var m wire.Digest
		if err := m.Decode(msg); err != nil {
			return err
		}
		return c.digest(m)
	case c.lane != 0:
		return fmt.Errorf("%w: %v on lane %d", errStranger, t, c.lane)
	case t == wire.TypeBits:
		var m wire.Bits
		if err := m.Decode(msg); err != nil {
			return err
		}
		return c.bits(m)
	}
	job := &recordJob{c: c}
	if err := job.m.Decode(msg); err != nil {
		return err
	}
	return c.record(job)
}

// record keeps a record, or leaves that to the syncer if it may have to wait for a disk: heartbeats
// must go on.
func (c *conn) record(job *recordJob) error {
	e := c.session.export
	if c.asked.records++; c.asked.records > 1 {
		return fmt.Errorf("%w: two unanswered RECORDs", errStranger)
	}
	// No life can begin a generation of a later one. Otherwise a later life could not begin
	// a newer one: its number is above the lives that it finds, not above generations.
	if life := e.r.Superblock().Life; job.m.Record.Life > life {
		return fmt.Errorf("%w: RECORD of generation %v in life %d", errStranger, job.m.Record.Generation, life)
	}
	if e.r.RecordMayBlock() {
		return e.syncer.addRecord(job)
	}
	if err := c.keepRecord(&job.m); err != nil {
		return err
	}
	return c.recorded(&job.m, &c.out)
}

// keepRecord makes the record of m durable. The region refuses what no initiator may ask
// for. An error must end the connection, because RECORDED can only be good news.
func (c *conn) keepRecord(m *wire.Record) error {
	r, rec := c.session.export.r, &m.Record
	was := r.Superblock().Record
	c.session.fills.next(&was, rec, m.Fill != 0)
	err := r.SetRecord(*rec, m.Fill&^rec.F)
	if errors.Is(err, region.ErrRecord) {
		return fmt.Errorf("%w: %w", errStranger, err)
	}
	if err != nil {
		return err
	}
	level := slog.LevelInfo
	if was.Follows = rec.Follows; was == *rec {
		level = slog.LevelDebug // it comes every second
	}
	c.log.LogAttrs(context.Background(), level, "record kept", slog.String("region", r.Name()), slog.String("mirror", uuid.UUID(rec.Set).String()), slog.String("generation", rec.String()),
		slog.String("in_sync", rec.F.String()), slog.Bool("torn", rec.Torn), slog.String("all_bits_of", m.Fill.String()))
	return nil
}

// recorded says that the record of m is durable.
func (c *conn) recorded(m *wire.Record, out *outbox) error {
	answer := wire.Recorded{Seq: m.Seq}
	return out.send(c, answer.Append(out.buf[:0]))
}

// addRecord queues a record. It returns an error if the peer has an unanswered one.
func (y *syncer) addRecord(job *recordJob) error {
	y.mu.Lock()
	busy := y.record != nil || y.recording != nil && !y.recording.kept
	if !busy {
		y.record = job
	}
	y.mu.Unlock()
	if busy {
		return fmt.Errorf("%w: two unanswered RECORDs", errStranger)
	}
	y.signal()
	return nil
}

// keepRecord keeps the record that waits, if there is one. That need not wait until doubt is
// settled.
func (y *syncer) keepRecord(out *outbox) {
	y.mu.Lock()
	job := y.record
	y.record, y.recording = nil, job
	y.mu.Unlock()
	if job == nil {
		return
	}
	err := job.c.keepRecord(&job.m)
	y.mu.Lock()
	job.kept = true // from now on the peer may have its answer, and send the next one
	y.mu.Unlock()
	if err == nil {
		err = job.c.recorded(&job.m, out)
	}
	if err != nil {
		job.c.log.Warn("record not kept, or not acknowledged", slog.String("region", y.e.r.Name()), slog.Any("error", err))
		_ = job.c.interrupt() // the initiator must not wait for its answer for ever
	}
	y.mu.Lock()
	y.recording = nil
	y.idle.Broadcast()
	y.mu.Unlock()
}

// bits reads bits of another member.
func (c *conn) bits(m wire.Bits) error {
	if c.asked.bits++; c.asked.bits > 1 {
		return fmt.Errorf("%w: two unanswered BITS", errStranger)
	}
	r := c.session.export.r
	answer := wire.Bitmap{Seq: m.Seq, From: m.From, Slot: m.Slot, Chunk: uint32(r.ChunkSize()), Bits: make([]byte, wire.MaxBitmap)}
	n, err := r.ReadBits(int(m.Slot), m.From, answer.Bits)
	if errors.Is(err, region.ErrSlot) || err == nil && n == 0 {
		return fmt.Errorf("%w: BITS of slot %d from chunk %d, which are not there", errStranger, m.Slot, m.From)
	}
	if err != nil {
		return err
	}
	answer.Bits = answer.Bits[:n]
	return c.out.send(c, answer.Append(nil))
}

// digest sums bytes on the lane's goroutine, with everything in them that is ahead on the
// lane. If it finds a place that was lost, the connection ends, as for a READ: what differs is written next, and the
// initiator must know of the place before.
func (c *conn) digest(m wire.Digest) error {
	if c.asked.digests++; c.asked.digests > wire.MaxDigests {
		return fmt.Errorf("%w: more than %d unanswered DIGESTs", errStranger, wire.MaxDigests)
	}
	r, g := c.session.export.r, persist.Range{Off: m.Off, Len: m.Len}
	if m.Len > wire.MaxDigest || !inside([]persist.Range{g}, r.Size()) {
		return fmt.Errorf("%w: DIGEST of %d bytes at %d", errStranger, m.Len, m.Off)
	}
	sum, err := r.Digest(g)
	if errors.Is(err, region.ErrBadPlace) { // the initiator comes back, and hears which
		c.log.Error("a digest has found a lost place of the region", slog.String("region", r.Name()), slog.Any("error", err))
	}
	if err != nil {
		return err
	}
	answer := wire.Digested{Seq: m.Seq, Sum: sum}
	return c.out.send(c, answer.Append(c.out.buf[:0]))
}
