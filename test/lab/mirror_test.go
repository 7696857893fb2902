package lab_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/test/lab"
)

// TestMirrorFsync writes and syncs files, record by record, on a mirror of two other machines. Each
// of them loses its power, is let go, and comes back. No call may fail, the filesystem must be whole
// after each run of pmnbd, and each member alone must have every synced record.
func TestMirrorFsync(t *testing.T) {
	for _, tt := range filesystems {
		t.Run(tt.name, func(t *testing.T) {
			lab.Need(t)
			p := newMirrored(t, 320<<20)
			if !lab.Inside() {
				p.powerCuts(t)
				return
			}
			sh(t, "pmnbd mirror create --id "+initiatorID+" --target "+p.a.listen+"/disk --target "+p.b.listen+"/disk")
			initiator := p.initiate(t)
			sh(t, plug+tt.mkfs+disk+mount)
			synced := syncRecords(t, records{})
			// B is off, and stays off: all of it comes from A.
			sh(t, umount+tt.fsck+disk+unplug)
			initiator.stop()

			// This guest has nothing of what was written.
			initiator = p.initiate(t)
			sh(t, holds("A")+plug+mount)
			checkRecords(t, synced)
			synced = syncRecords(t, synced)
			// A is off, and stays off. B has what was written before it came back, and since then.
			sh(t, umount+tt.fsck+disk+unplug)
			initiator.stop()

			p.initiate(t)
			sh(t, holds("B")+plug+mount)
			checkRecords(t, synced)
			sh(t, umount+unplug+noErrors)
		})
	}
}

// A mirrored disk is two targets, and the machine of the initiator of their mirror.
type mirrored struct {
	a, b      *site
	initiator lab.Guest
}

// newMirrored links an initiator's machine with two targets', which have an NVDIMM of size bytes each.
func newMirrored(t *testing.T, size int64) *mirrored {
	a, b := newSite(t, 0, "iwarp://10.0.0.1:7204", size), newSite(t, 1, "iwarp://10.0.1.1:7204", size)
	g := a.initiator
	g.Wires = append(g.Wires, b.initiator.Wires...)
	return &mirrored{a, b, g}
}

// initiate starts an initiator of the mirror. It must begin with what the members' records say,
// without --degraded.
func (p *mirrored) initiate(t *testing.T) *server {
	return initiate(t, p.a.listen+"/disk,"+p.b.listen, "--leg-timeout", "2s")
}

// holds is a script that checks that only the given member has every flushed write.
func holds(member string) string {
	return "pmnbd mirror status disk --json | jq -e '.f == \"" + member + "\" and .copies == 1'\n"
}

// powerCuts runs the test in the initiator's machine. While records are written, it cuts the power
// of A and boots it again, then that of B; after the initiator's first restart it boots B again, and
// cuts the power of A.
func (p *mirrored) powerCuts(t *testing.T) {
	a, b := p.a.serve(t, true), p.b.serve(t, true)
	s := &story{t: t, m: lab.Start(t, p.initiator)}
	s.record()
	a.Kill()
	s.generation("B")
	s.record()
	a = p.a.serve(t, false)
	s.generation("AB")
	s.record()
	b.Kill()
	s.generation("A")
	s.record()
	s.enough()

	s.generation("A")
	s.record()
	p.b.serve(t, false)
	s.generation("AB")
	s.record()
	a.Kill()
	s.generation("B")
	s.record()
	s.enough()
	lab.Finish(t, s.m)
}

// A story is what a machine says, read in order.
type story struct {
	t  *testing.T
	m  *lab.Machine
	at int // in its log
}

// await reads on to text.
func (s *story) await(text string) {
	s.t.Helper()
	end, err := s.m.WaitBehind(s.t.Context(), s.at, text)
	if err != nil {
		lab.Finish(s.t, s.m) // it has ended: this prints why
	}
	require.NoError(s.t, err)
	s.at = end
}

// record reads on until another hundred records are synced.
func (s *story) record() {
	s.t.Helper()
	n, _ := strconv.Atoi(last(s.m.Log(), "synced ")) // 0: none yet
	s.await(fmt.Sprintf("synced %d\n", n+100))
}

// generation reads on until the given members are those that have every flushed write.
func (s *story) generation(members string) {
	s.t.Helper()
	s.await(fmt.Sprintf(`"members":%q`, members))
}

// enough stops the writers.
func (s *story) enough() {
	require.NoError(s.t, os.WriteFile(filepath.Join(s.m.Out, enough), nil, 0o600))
}
