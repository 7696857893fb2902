package remote

import (
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"pmnbd/internal/mirror"
	"pmnbd/persist"
)

// generation is number life.count, begun by the life that drew nonce.
func generation(life, count uint64, nonce byte) persist.Generation {
	return persist.Generation{Life: life, Count: count, Nonce: [16]byte{nonce}}
}

// leftMirror is a window of this boot that life 3 left in its generation 3.2, in a mirror that is as
// the life left it, with all its members there.
func leftMirror(state windowState) legacy {
	s := legacy{situation: left(state), ours: true, closed: state == windowDrained}
	s.mirror = "the mirror on log at target:1"
	s.decision = mirror.Decision{Outcome: mirror.Open}
	s.decision.Newest.Generation = generation(3, 2, 1)
	s.header.Mirror = mirror.View{Record: s.decision.Newest, Life: 3, Nonce: [16]byte{1}, Active: 3, Equal: 3}
	s.header.Mirror.Record.F = 3
	return s
}

func mirrorRows() []struct {
	name    string
	state   windowState
	changes []func(*legacy)
	act     act
	why     string
} {
	type change = func(*legacy)
	waits := func(s *legacy) { s.decision.Outcome, s.decision.Why = mirror.Wait, "waits for B" }
	refuses := func(s *legacy) { s.decision.Outcome, s.decision.Why = mirror.Refuse, "split brain" }
	unclosed := func(s *legacy) { s.closed = false }
	taken := func(s *legacy) { s.ours, s.decision.Newest.Generation = false, generation(4, 1, 2) }
	older := func(s *legacy) { s.decision.Newest.Generation = generation(3, 1, 1) }
	split := func(s *legacy) { s.decision.Newest.Generation = generation(3, 2, 2) }
	booted := func(s *legacy) { s.header.Boot = thatBoot }
	moved := func(s *legacy) { s.otherDir = "/there" }
	had := func(s *legacy) { s.hadBoot = thisBoot }
	pending := func(s *legacy) { s.header.Mirror.Pending = true }
	first := func(s *legacy) { s.header.Mirror.Pending, s.header.Mirror.Active = true, 0 }
	prepared := func(s *legacy) { s.header.Mirror = mirror.View{Record: s.header.Mirror.Record} }
	unserved := func(s *legacy) { s.header.Opened = 0 }
	hears := func(s *legacy) { s.left = 5 }
	adopted := func(s *legacy) { s.adopted = true }
	local := func(s *legacy) { s.localClients = true }
	localBefore := func(s *legacy) { s.lastBoot = thatBoot }
	return []struct {
		name    string
		state   windowState
		changes []change
		act     act
		why     string
	}{
		{"live", windowLive, nil, actAdopt, ""},
		{"live, a member away", windowLive, []change{waits}, actAdopt, ""},
		{"live, in a change", windowLive, []change{pending}, actAdopt, ""},
		{"live, in the first change of its life", windowLive, []change{first}, actAdopt, ""},
		{"live, in the first change, and nobody was served before", windowLive, []change{first, unserved}, actAdopt, ""},
		{"live, another life since", windowLive, []change{taken}, actAdopt, ""}, // whose refusal is the loss
		{"live, split brain since", windowLive, []change{refuses}, actAdopt, ""},
		{"live, an earlier one", windowLive, []change{taken, moved}, actEnd, "in directory /there, and this start looks in /here"},
		{"live, of another boot", windowLive, []change{booted, unclosed}, actEnd, "from before this host booted"},
		{"live, of another boot, a member away", windowLive, []change{booted, unclosed, waits}, actProbe, ""},
		{"live, of another boot, closed by another since", windowLive, []change{booted, taken}, actOpen, ""},

		{"prepared", windowLive, []change{prepared, unclosed}, actOpen, ""},
		{"prepared, a member away", windowLive, []change{prepared, waits}, actProbe, ""},
		{"prepared, another life since", windowLive, []change{prepared, taken}, actEnd, "it is in generation 4.1"},
		{"prepared, and nobody was served before", windowLive, []change{prepared, unserved, taken}, actOpen, ""},
		{"prepared, nobody was served before, and a target hears an owner with this id", windowLive, []change{prepared, unserved, hears}, actWait, ""},

		{"drained", windowDrained, nil, actOpen, ""},
		{"drained, a member away", windowDrained, []change{waits}, actProbe, ""},
		{"drained, split brain", windowDrained, []change{refuses}, actEnd, "refused"},
		{"drained, not closed", windowDrained, []change{unclosed}, actAdopt, ""},
		{"drained, not closed, and again after its adoption", windowDrained, []change{unclosed, adopted}, actOpen, ""},
		{"drained in a change", windowDrained, []change{pending}, actAdopt, ""},
		{"drained, another life since", windowDrained, []change{taken}, actEnd, "somebody else had the mirror on log at target:1 since this initiator left it in generation 3.2: it is in generation 4.1"},
		{"drained, another life since, not closed", windowDrained, []change{taken, unclosed}, actEnd, "somebody else had"},
		{"drained, another life of the same number", windowDrained, []change{split}, actEnd, "somebody else had"},
		{"drained, an earlier one", windowDrained, []change{taken, moved}, actEnd, "in directory /there"},
		{"drained, and only older members are there", windowDrained, []change{older}, actEnd, "and is in generation 3.1: members that have newer data are away"},
		{"drained, of another boot", windowDrained, []change{booted}, actOpen, ""},

		{"failed", windowFailed, nil, actEnd, "the device failed in the previous run: "},
		{"failed, of another boot", windowFailed, []change{booted, func(s *legacy) { s.closed = true }}, actOpen, ""},
		{"damaged", windowDamaged, nil, actEnd, "is damaged"},
		{"damaged, of another boot", windowDamaged, []change{booted}, actEnd, "is damaged"},
		{"of another release", windowForeign, nil, actEnd, "Start that release again"},
		{"of another mirror", windowDrained, []change{func(s *legacy) { s.refused.UUID = thatUUID }}, actEnd, "is of mirror 05"},

		{"no file, closed", 0, []change{func(s *legacy) { s.closed = true }}, actOpen, ""},
		{"no file, a member away", 0, []change{waits}, actProbe, ""},
		{"no file, the data are gone", 0, []change{refuses}, actEnd, "refused"},
		{"no file, another life since", 0, []change{taken}, actOpen, ""},
		{"no file, another life since, in this boot", 0, []change{taken, had}, actEnd, "somebody else had the mirror on log at target:1 since this initiator had it, and its window is not in /here"},
		{"no file, not closed", 0, nil, actEnd, "did not close the mirror on log at target:1, and its window is not in /here"},
		{"no file, not closed, an earlier directory", 0, []change{moved}, actEnd, "in directory /there"},
		{"no file, not closed, local clients alone, booted", 0, []change{local, localBefore}, actOpen, ""},
		{"no file, not closed, local clients now, booted", 0, []change{local}, actEnd, "did not close"},
		{"no file, not closed, local clients before, booted", 0, []change{localBefore}, actEnd, "did not close"},
		{"no file, not closed, local clients alone, not booted", 0, []change{local, func(s *legacy) { s.lastBoot = thisBoot }}, actEnd, "did not close"},
	}
}

// TestDecideMirror is the table of docs/architecture.md, "What a mirror's run leaves to the next".
func TestDecideMirror(t *testing.T) {
	for _, tt := range mirrorRows() {
		t.Run(tt.name, func(t *testing.T) {
			s := leftMirror(tt.state)
			if tt.state == 0 {
				s.header = header{}
			}
			for _, change := range tt.changes {
				change(&s)
			}
			was := s
			d := decideMirror(&s)
			require.Equal(t, was, s)
			require.Equal(t, tt.act, d.act, "%v", d.err)
			require.Nil(t, d.lost)
			var lost *LossError
			var no *MirrorError
			switch {
			case tt.act == actOpen && tt.state != 0 && s.header.Boot == thisBoot && s.header.Opened != 0:
				require.Equal(t, s.header, d.from)
			case tt.act == actOpen:
				require.Zero(t, d.from)
			case tt.why == "refused":
				require.ErrorAs(t, d.err, &no)
			case tt.act == actEnd:
				require.ErrorAs(t, d.err, &lost)
				require.ErrorContains(t, d.err, tt.why)
			}

			// The flag counts only where there is a loss.
			s.acceptLoss = true
			again := decideMirror(&s)
			if lost == nil {
				require.Equal(t, d, again)
				return
			}
			require.Equal(t, decision{act: actOpen, lost: lost}, again)
			s.decision.Outcome = mirror.Wait
			require.Equal(t, actProbe, decideMirror(&s).act, "the window stays as it is until the mirror can begin")
		})
	}
}

// Config.Degraded gives up what only members that are away have, and nothing else.
func TestDecideMirrorDegraded(t *testing.T) {
	for name, c := range map[string]struct {
		state windowState
		life  uint64 // of the newest generation that is there
		act   act
	}{
		"older members, drained":           {windowDrained, 2, actOpen},
		"older members, live":              {windowLive, 2, actAdopt},
		"older members, the window failed": {windowFailed, 2, actEnd},
		"newer members, drained":           {windowDrained, 4, actEnd},
	} {
		t.Run(name, func(t *testing.T) {
			s := leftMirror(c.state)
			s.degraded, s.decision.Newest.Generation = true, generation(c.life, 1, 1)
			d := decideMirror(&s)
			require.Equal(t, c.act, d.act)
			require.Equal(t, c.act == actOpen, d.lost != nil, "the log says what is lost")
			require.Zero(t, d.from)
		})
	}
}

// A life that was adopted may be about to take a member in when its replay is through. No member has that
// generation yet, and nothing is lost without it.
func TestDecideMirrorAfterAnAdoptionInAChange(t *testing.T) {
	s := leftMirror(windowDrained)
	s.closed = false
	found := s.decision.Newest
	found.F = 3
	s.decision.Newest = found
	s.header.Mirror.Record = mirror.Descend(&found, generation(3, 3, 1), 7)
	s.header.Mirror.Pending = true
	require.Equal(t, actAdopt, decideMirror(&s).act)
	s.adopted = true
	d := decideMirror(&s)
	require.Equal(t, actOpen, d.act, "%v", d.err)
	require.Equal(t, found, d.from.Mirror.Record, "a start that is killed now leaves what the members have")
	s.header.Mirror.Active = 1
	require.Equal(t, actEnd, decideMirror(&s).act, "it was active with other members")
	s.header.Mirror.Active, s.header.Mirror.Pending = 3, false
	require.Equal(t, actEnd, decideMirror(&s).act, "the newer one was active")
}

// A loss that the replay met ends the start, or is accepted once the members can be opened.
func TestDecideMirrorOnALossOfTheReplay(t *testing.T) {
	s := leftMirror(windowLive)
	s.lost = &LossError{"all of it"}
	require.Equal(t, decision{act: actEnd, err: s.lost}, decideMirror(&s))
	s.acceptLoss = true
	require.Equal(t, decision{act: actOpen, lost: s.lost}, decideMirror(&s))
	s.decision.Outcome = mirror.Wait
	require.Equal(t, actProbe, decideMirror(&s).act)
}

// Each target gets the seat of its member, as far as anybody knows it.
func TestSeats(t *testing.T) {
	h := header{Mirror: mirror.View{Record: persist.Record{Set: [16]byte{9}, MinCopies: 1}, Active: 3}}
	h.Mirror.Record.F, h.Mirror.Record.Generation = 3, generation(1, 1, 1)
	configs := make([]Config, persist.MaxMembers)
	for i := range configs {
		configs[i] = Config{Addr: string(rune('a' + i)), Region: "log"}
		if i < 3 {
			h.Mirror.Record.Members[i].UUID = uuid.UUID{byte(i + 1)}
			h.Sessions[i] = session{Epoch: 1, Target: configs[i].targetSum()}
		}
	}
	a, b, c, d := configs[0], configs[1], configs[2], configs[3]
	reached := func(slot uint8) mirror.Leg {
		r := h.Mirror.Record
		r.Slot = slot
		return mirror.Leg{Reach: mirror.Probed, Record: r}
	}
	away, stranger := mirror.Leg{}, mirror.Leg{Reach: mirror.Probed}
	for _, tt := range []struct {
		name  string
		legs  []Config
		found []mirror.Leg
		want  []int // nil: a member is missing
	}{
		{"as they were", []Config{a, b, c}, []mirror.Leg{reached(0), reached(1), reached(2)}, []int{0, 1, 2}},
		{"in another order", []Config{c, a, b}, []mirror.Leg{reached(2), reached(0), reached(1)}, []int{2, 0, 1}},
		{"in another order, and away", []Config{c, b, a}, []mirror.Leg{away, away, away}, []int{2, 1, 0}},
		{"at other addresses", []Config{d, b}, []mirror.Leg{reached(0), reached(1)}, []int{0, 1}},
		{"at another address, and away", []Config{d, a}, []mirror.Leg{away, away}, []int{1, 0}},
		{"at the address of another", []Config{a, b}, []mirror.Leg{away, reached(0)}, []int{1, 0}},
		{"one that it does without is missing", []Config{b, a}, []mirror.Leg{reached(1), reached(0)}, []int{1, 0}},
		{"one that it relies on is missing", []Config{a, c}, []mirror.Leg{reached(0), reached(2)}, nil},
		{"another region at the address", []Config{a, b}, []mirror.Leg{reached(0), stranger}, nil},
		{"another region beside them", []Config{d, a, b}, []mirror.Leg{stranger, reached(0), away}, []int{2, 0, 1}},
		{"one region twice", []Config{a, b, d}, []mirror.Leg{reached(0), reached(0), away}, []int{0, 2, 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := h.seats(tt.legs, tt.found)
			if tt.want == nil {
				require.ErrorIs(t, err, errNotListed)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tt.want, got)
		})
	}
}
