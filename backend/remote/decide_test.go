package remote

import (
	"errors"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"pmnbd/persist"
	"pmnbd/persist/wire"
)

// Who and what the situations of these tests are made of.
var (
	me, somebody       = [16]byte{1}, [16]byte{2}
	thisBoot, thatBoot = uuid.UUID{3}, uuid.UUID{4}
	thisUUID, thatUUID = [16]byte{5}, [16]byte{6}
	contents           = [16]byte{7}
	run                = persist.Owner{ID: me, Nonce: [16]byte{8}}
)

// left is a window of this boot that a run left in epoch 5, with mark 2, in a region that is
// as the run left it.
func left(state windowState) situation {
	s := situation{
		id: me, boot: thisBoot, region: "log", windowDir: "/here", path: "/here/it",
		refused: wire.Refused{Code: wire.CodeEpoch, Epoch: 5, Mark: 2, Holder: me, UUID: thisUUID},
		header: header{
			State: state, Opened: 1, Owner: run, Epoch: 5, Mark: 2, UUID: thisUUID, ContentsID: contents,
			Boot: thisBoot, Lineage: [16]byte{9},
		},
	}
	if state == windowLive {
		s.refused.Flags = wire.OpenedUnclean
	}
	return s
}

// A row is one of the table of docs/architecture.md, "What a run leaves to the next".
type row struct {
	name    string
	state   windowState
	changes []func(*situation)
	act     act
	why     string // of actEnd: the loss; "busy" if it is none
}

func rows() []row {
	unclean := func(s *situation) { s.refused.Flags = wire.OpenedUnclean }
	mark := func(s *situation) { s.refused.Mark = 1 }
	later := func(s *situation) { unclean(s); s.refused.Epoch = 7 }
	taken := func(s *situation) { s.refused.Holder, s.refused.Epoch = somebody, 6 }
	busy := func(s *situation) { taken(s); s.refused.Code = wire.CodeBusy }
	noted := func(s *situation) { s.header.Opened = 0 }
	booted := func(s *situation) { s.header.Boot = thatBoot }
	moved := func(s *situation) { s.otherDir = "/there" }
	had := func(s *situation) { s.hadBoot = thisBoot }
	heard := func(s *situation) { s.refused.Seconds = 3 }
	type change = func(*situation)
	return []row{
		{"live", windowLive, nil, actAdopt, ""},
		{"live, resumed without hearing of it", windowLive, []change{later}, actAdopt, ""},
		{"live, another owner since", windowLive, []change{taken}, actAdopt, ""}, // whose refusal is the loss
		{"live, and held by another", windowLive, []change{busy}, actAdopt, ""},
		{"live, restored from a copy", windowLive, []change{mark}, actAdopt, ""},
		{"live, of another boot", windowLive, []change{booted}, actEnd, "from before this host booted"},
		{"live, of another boot, and held by another", windowLive, []change{booted, busy}, actEnd, "busy"},
		{"live, an earlier one", windowLive, []change{later, moved}, actEnd, "in directory /there, and this start looks in /here"},

		{"OPEN was not sent", windowLive, []change{noted, func(s *situation) { s.refused.Flags = 0 }}, actOpen, ""},
		{"OPEN may have been granted", windowLive, []change{noted, later}, actAsk, ""},
		{"OPEN was granted", windowLive, []change{noted, later, func(s *situation) { s.resumed = answerGranted }}, actOpen, ""},
		{"OPEN was not granted", windowLive, []change{noted, later, func(s *situation) { s.resumed = answerRefused }}, actEnd, "in epoch 5: it is in epoch 7"},
		{"OPEN was not sent, and held by another", windowLive, []change{noted, busy}, actEnd, "busy"},
		{"OPEN was not sent, another owner since", windowLive, []change{noted, taken}, actEnd, "in epoch 5: it is in epoch 6"},
		{"OPEN was not sent, restored from a copy", windowLive, []change{noted, mark}, actEnd, "it has mark 1, and had mark 2"},
		{"OPEN was not sent, of another boot", windowLive, []change{noted, booted}, actEnd, "from before this host booted"},

		{"drained", windowDrained, nil, actOpen, ""},
		{"drained, another owner since", windowDrained, []change{taken}, actEnd, "in epoch 5: it is in epoch 6"},
		{"drained, and held by another", windowDrained, []change{busy}, actEnd, "busy"},
		{"drained, resumed without hearing of it", windowDrained, []change{later}, actAdopt, ""},
		{"drained, and again after its replay", windowDrained, []change{later, func(s *situation) { s.adopted = true }}, actEnd, "in epoch 5: it is in epoch 7"},
		{"drained, closed by another run of this id", windowDrained, []change{func(s *situation) { s.refused.Epoch = 6 }}, actEnd, "in epoch 5: it is in epoch 6"},
		{"drained, an earlier one", windowDrained, []change{later, moved}, actEnd, "in directory /there"},
		{"drained, restored from a copy", windowDrained, []change{mark}, actEnd, "it has mark 1, and had mark 2"},
		{"drained, restored, in an older epoch", windowDrained, []change{func(s *situation) { s.refused.Epoch = 4 }}, actEnd, "in epoch 5: it is in epoch 4"},
		{"drained, restored, and had by another", windowDrained, []change{func(s *situation) { s.refused.Holder = somebody }}, actEnd, "came to epoch 5 again"},
		{"drained, of another boot", windowDrained, []change{booted}, actOpen, ""},

		{"failed", windowFailed, nil, actEnd, "the device failed in the previous run: "},
		{"failed, and held by another", windowFailed, []change{busy}, actEnd, "the device failed in the previous run: "},
		{"failed, of another boot", windowFailed, []change{booted}, actOpen, ""},
		{"damaged", windowDamaged, nil, actEnd, "is damaged"},
		{"damaged, of another boot", windowDamaged, []change{booted}, actEnd, "is damaged"},
		{"damaged, and held by another", windowDamaged, []change{busy}, actEnd, "is damaged"},
		{"of another release", windowForeign, nil, actEnd, "Start that release again"},
		{"of another release, and held by another", windowForeign, []change{busy}, actEnd, "Start that release again"},
		{"of another region", windowDrained, []change{func(s *situation) { s.refused.UUID = thatUUID }}, actEnd, "is of region 05"},

		{"no file", 0, nil, actOpen, ""},
		{"no file, another owner since", 0, []change{unclean, taken}, actOpen, ""},
		{"no file, another owner since, in this boot", 0, []change{taken, had}, actEnd, "somebody else had region log since this initiator had it, and its window is not in /here"},
		{"no file, another owner since, in another boot", 0, []change{taken, func(s *situation) { s.hadBoot = thatBoot }}, actOpen, ""},
		{"no file, closed in this boot", 0, []change{had}, actOpen, ""},
		{"no file, and held by another", 0, []change{busy}, actEnd, "busy"},
		{"no file, not closed", 0, []change{unclean}, actEnd, "did not close region log, and its window is not in /here"},
		{"no file, not closed, an earlier directory", 0, []change{unclean, moved}, actEnd, "in directory /there, and this start looks in /here"},
		{"no file, not closed, local clients alone, booted", 0, []change{unclean, func(s *situation) { s.localClients, s.lastBoot = true, thatBoot }}, actOpen, ""},
		{"no file, not closed, local clients alone, booted, and an owner is heard", 0, []change{unclean, heard, func(s *situation) { s.localClients, s.lastBoot = true, thatBoot }}, actWait, ""},
		{"the same with --takeover", 0, []change{unclean, heard, func(s *situation) { s.localClients, s.lastBoot, s.takeover = true, thatBoot, true }}, actOpen, ""},
		{"OPEN was not sent, and the run before is heard", windowLive, []change{noted, heard, func(s *situation) { s.refused.Flags = 0 }}, actOpen, ""},
		{"no file, not closed, local clients now, booted", 0, []change{unclean, func(s *situation) { s.localClients = true }}, actEnd, "did not close"},
		{"no file, not closed, local clients before, booted", 0, []change{unclean, func(s *situation) { s.lastBoot = thatBoot }}, actEnd, "did not close"},
		{"no file, not closed, local clients alone, not booted", 0, []change{unclean, func(s *situation) { s.localClients, s.lastBoot = true, thisBoot }}, actEnd, "did not close"},
	}
}

func TestDecide(t *testing.T) {
	for _, tt := range rows() {
		t.Run(tt.name, func(t *testing.T) {
			s := left(tt.state)
			if tt.state == 0 {
				s.header = header{}
			}
			for _, change := range tt.changes {
				change(&s)
			}
			d := decide(&s)
			require.Equal(t, tt.act, d.act, "%v", d.err)
			var lost *LossError
			switch {
			case tt.act == actOpen && tt.state != 0 && s.header.Boot == thisBoot:
				require.Equal(t, s.header, d.from)
				require.EqualValues(t, 5, d.epoch)
				require.Equal(t, s.resumed == answerGranted, d.owner == run)
			case tt.act == actOpen:
				require.Zero(t, d.from)
				require.Zero(t, d.owner)
				require.Equal(t, s.refused.Epoch, d.epoch)
			case tt.why == "busy":
				require.Equal(t, &RefusedError{Region: "log", said: s.refused}, d.err)
			case tt.act == actEnd:
				require.ErrorAs(t, d.err, &lost)
				require.ErrorContains(t, d.err, tt.why)
			}
			require.Nil(t, d.lost)
		})
	}
}

// situations calls f with the combinations of what a start may know.
func situations(f func(s *situation)) {
	for _, state := range []windowState{0, windowLive, windowDrained, windowFailed, windowDamaged, windowForeign} {
		each(1<<11-1, func(bit func() bool) {
			s := left(state)
			s.refused.Code = pick(bit(), wire.CodeEpoch, wire.CodeBusy)
			s.refused.Flags = pick(bit(), 0, wire.OpenedUnclean)
			s.refused.Mark = pick[uint64](bit(), 2, 1)
			s.localClients = bit()
			s.otherDir = pick(bit(), "", "/there")
			s.adopted = bit()
			s.hadBoot = pick(bit(), uuid.Nil, thisBoot)
			if state == 0 || state == windowDamaged || state == windowForeign {
				s.header = header{State: state}
				for range 4 { // what these choose is the same without a header
					if bit() {
						return
					}
				}
			} else {
				s.header.Boot = pick(bit(), thisBoot, thatBoot)
				s.header.UUID = pick(bit(), thisUUID, thatUUID)
				s.header.ContentsID = pick(bit(), contents, [16]byte{})
				s.header.Opened = pick[uint32](bit(), 1, 0)
			}
			for _, s.refused.Epoch = range []uint64{4, 5, 6} {
				for _, s.refused.Holder = range [][16]byte{me, somebody, {}} {
					for _, s.lastBoot = range []uuid.UUID{uuid.Nil, thisBoot, thatBoot} {
						if s.lastBoot == thisBoot && s.header.State != 0 && s.header.Boot == thisBoot {
							continue // it counts without a window alone
						}
						for _, s.resumed = range []answer{answerNone, answerGranted, answerRefused} {
							f(&s)
						}
					}
				}
			}
		})
	}
}

// each calls f with all values of the bits below most.
func each(most uint, f func(bit func() bool)) {
	for n := range most + 1 {
		f(func() (is bool) {
			is = n&1 != 0
			n >>= 1
			return is
		})
	}
}

func pick[T any](other bool, usual, unusual T) T {
	if other {
		return unusual
	}
	return usual
}

// What holds of every decision.
func TestDecisions(t *testing.T) {
	seen, n := make(map[act]int), 0
	var was situation
	situations(func(s *situation) {
		looked := n%16 == 0 // a situation has kilobytes, and the race detector looks at each of them
		if n++; looked {
			was = *s
		}
		d := decide(s)
		seen[d.act]++
		mine := s.header.State != 0 && s.header.Boot == s.boot // a window of this boot
		live := mine && s.header.State == windowLive
		busy := s.refused.Code == wire.CodeBusy
		var lost *LossError
		var sound bool
		switch d.act {
		case actOpen:
			sound = !busy && d.lost == nil && s.header.State != windowDamaged && s.header.State != windowForeign
			if !mine {
				unclosed := s.refused.Holder == me && s.refused.Flags&wire.OpenedUnclean != 0
				sound = sound && d.from.State == 0 && d.epoch == s.refused.Epoch
				sound = sound && (s.refused.Holder == me || s.hadBoot != thisBoot)
				sound = sound && (!unclosed || s.localClients && s.lastBoot == thatBoot)
			} else {
				asked := live && s.resumed == answerGranted
				sound = sound && d.from == s.header && d.epoch == s.header.Epoch
				sound = sound && s.header.State != windowFailed && s.header.UUID == s.refused.UUID
				sound = sound && (!live || s.header.Opened == 0) // never over acknowledged writes
				sound = sound && s.refused.Mark >= s.header.Mark
				sound = sound && (s.refused.Epoch == s.header.Epoch || asked)
				sound = sound && (s.refused.Epoch != s.header.Epoch || d.owner == persist.Owner{})
			}
		case actAdopt: // never in another boot, nor for another region
			sound = mine && s.header.UUID == s.refused.UUID
			sound = sound && (live && s.header.Opened != 0 || s.header.State == windowDrained && !s.adopted && s.refused.Holder == me)
		case actAsk:
			sound = live && s.header.Opened == 0 && s.resumed == answerNone && s.refused.Holder == me && !busy
		case actEnd:
			refused := &RefusedError{}
			sound = errors.As(d.err, &lost) || busy && errors.As(d.err, &refused) && refused.said == s.refused
		}
		if !sound || looked && *s != was {
			require.Fail(t, "not sound", "%+v\nin %+v", d, s)
		}

		s.acceptLoss = true
		again := decide(s)
		if lost == nil { // the flag counts only where there is a loss
			sound = again.act == d.act && again.owner == d.owner && again.epoch == d.epoch && again.from == d.from && again.lost == nil
		} else {
			sound = again.act == actProbe && again.lost != nil && again.lost.text == lost.text
			s.lost, s.looked = lost, true
			last := decide(s)
			if busy {
				sound = sound && last.act == actEnd && !errors.Is(last.err, lost)
			} else {
				sound = sound && last == decision{act: actOpen, lost: lost, epoch: s.refused.Epoch}
			}
		}
		if !sound {
			require.Fail(t, "not sound where a loss is accepted", "%+v\nafter %+v\nin %+v", again, d, s)
		}
		s.acceptLoss, s.lost, s.looked = false, nil, false
	})
	require.Len(t, seen, 4)
}

// A loss that the replay met ends the start, or is accepted after another look at the region.
func TestDecideOnALossOfTheReplay(t *testing.T) {
	s := left(windowLive)
	s.lost = &LossError{"all of it"}
	require.Equal(t, decision{act: actEnd, err: s.lost}, decide(&s))
	s.acceptLoss = true
	require.Equal(t, decision{act: actProbe, lost: s.lost}, decide(&s))
	s.looked, s.refused.Epoch = true, 8
	require.Equal(t, decision{act: actOpen, lost: s.lost, epoch: 8}, decide(&s))
}

// An accepted loss takes the region from no owner that is heard, unless the window here is of its session.
func TestDecideOnAnAcceptedLossOfTheOwnID(t *testing.T) {
	accepted := func(change func(*situation)) act {
		s := left(windowFailed)
		s.lost, s.looked, s.acceptLoss, s.refused.Seconds = &LossError{"all of it"}, true, true, 3
		change(&s)
		return decide(&s).act
	}
	for _, tt := range []struct {
		name   string
		change func(*situation)
		act    act
	}{
		{"the window here is of that session", func(*situation) {}, actOpen},
		{"a later session", func(s *situation) { s.refused.Epoch++ }, actWait},
		{"a later session, and --takeover", func(s *situation) { s.refused.Epoch++; s.takeover = true }, actOpen},
		{"a later session that is over", func(s *situation) { s.refused.Epoch++; s.refused.Seconds = 0 }, actOpen},
		{"another boot", func(s *situation) { s.header.Boot = thatBoot }, actWait},
		{"no window", func(s *situation) { s.header = header{} }, actWait},
	} {
		t.Run(tt.name, func(t *testing.T) { require.Equal(t, tt.act, accepted(tt.change)) })
	}
}

// A grant is compared with what the previous run left, too.
func TestGrantIsCompared(t *testing.T) {
	g := wire.Opened{ContentsID: contents, Mark: 2}
	h := left(windowDrained).header
	require.Nil(t, h.granted("log", &g))
	require.Nil(t, (&header{}).granted("log", &g))
	g.Mark = 1
	require.ErrorContains(t, h.granted("log", &g), "it has mark 1, and had mark 2")
	g.ContentsID[0]++
	require.ErrorContains(t, h.granted("log", &g), "the contents of region log were lost")
}

// Another region under the name: the old window is not passed over in silence.
func TestDecideName(t *testing.T) {
	here, elsewhere := record{thisBoot, thisUUID}, record{thisBoot, thatUUID}
	window := func(state windowState) oldWindow { return oldWindow{path: "/here/old", header: left(state).header} }
	unused, ofThatBoot := window(windowLive), window(windowLive)
	unused.header.Opened, unused.header.ContentsID = 0, [16]byte{}
	ofThatBoot.header.Boot = thatBoot
	untouched := window(windowLive)
	untouched.header.Opened = 0
	for _, tt := range []struct {
		name string
		was  previousName
		want naming
		why  string // of the loss
	}{
		{"no record", previousName{}, naming{write: true}, ""},
		{"the same region", previousName{known: true, is: here}, naming{}, ""},
		{"another boot", previousName{known: true, is: record{thatBoot, thatUUID}, window: window(windowLive)}, naming{write: true}, ""},
		{"the same region in another boot", previousName{known: true, is: record{thatBoot, thisUUID}}, naming{write: true}, ""},
		{"an unreadable record", previousName{known: true, unreadable: true}, naming{write: true}, "/here/name cannot be read"},
		{"no window", previousName{known: true, is: elsewhere}, naming{write: true, drop: true}, ""},
		{"an unused window", previousName{known: true, is: elsewhere, window: unused}, naming{write: true, drop: true}, ""},
		{"a window of another boot", previousName{known: true, is: elsewhere, window: ofThatBoot}, naming{write: true, drop: true}, ""},
		{"a window in use", previousName{known: true, is: elsewhere, window: oldWindow{inUse: errLocked}}, naming{write: true, drop: true}, "a pmnbd still runs for the old one: " + errLocked.Error()},
		{"a live window", previousName{known: true, is: elsewhere, window: window(windowLive)}, naming{write: true, drop: true}, "The old window /here/old is live"},
		{"a window whose OPEN was not sent", previousName{known: true, is: elsewhere, window: untouched}, naming{write: true, drop: true}, "is of a clean end"},
		{"a drained window", previousName{known: true, is: elsewhere, window: window(windowDrained)}, naming{write: true, drop: true}, "is of a clean end"},
		{"a failed window", previousName{known: true, is: elsewhere, window: window(windowFailed)}, naming{write: true, drop: true}, "is failed"},
		{"a damaged window", previousName{known: true, is: elsewhere, window: oldWindow{path: "/here/old", header: header{State: windowDamaged}}}, naming{write: true, drop: true}, "/here/old is damaged"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := left(0)
			n := decideName(&s, &tt.was, "/here/name", "target:1")
			if tt.why == "" {
				require.Equal(t, tt.want, n)
				s.acceptLoss = true
				require.Equal(t, tt.want, decideName(&s, &tt.was, "/here/name", "target:1"))
				return
			}
			var lost *LossError
			require.ErrorAs(t, n.err, &lost)
			require.ErrorContains(t, n.err, tt.why)
			require.Equal(t, naming{err: lost}, n)
			s.acceptLoss = true
			tt.want.lost = lost
			require.Equal(t, tt.want, decideName(&s, &tt.was, "/here/name", "target:1"))
			s.refused.Code = wire.CodeBusy
			require.Equal(t, naming{err: &RefusedError{Region: "log", said: s.refused}}, decideName(&s, &tt.was, "/here/name", "target:1"))
		})
	}
}
