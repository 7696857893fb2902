package remote

import (
	"errors"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"pmnbd/backend"
	"pmnbd/internal/logtest"
)

// The table of the package comment: what each event makes of each phase. Where it has none, the event
// is a mistake.
func TestLife(t *testing.T) {
	const none = phaseOpening
	table := map[phase][events]phase{ // opened, lost, back, drain, leave, end
		phaseOpening:   {phaseOpen, phaseWaiting, none, none, phaseDeparting, phaseFailed},
		phaseOpen:      {none, phaseWaiting, none, phaseDraining, phaseLeaving, phaseFailed},
		phaseWaiting:   {none, phaseWaiting, phaseOpen, phaseStranded, phaseDeparting, phaseFailed},
		phaseDraining:  {none, phaseStranded, none, none, phaseLeaving, phaseFailed},
		phaseStranded:  {none, phaseStranded, phaseDraining, none, phaseDeparting, phaseFailed},
		phaseLeaving:   {none, phaseDeparting, none, none, phaseLeaving, phaseClosed},
		phaseDeparting: {none, phaseDeparting, phaseLeaving, none, phaseDeparting, phaseClosed},
		phaseFailed:    {phaseFailed, phaseFailed, phaseFailed, phaseFailed, phaseFailed, phaseFailed},
		phaseClosed:    {phaseClosed, phaseClosed, phaseClosed, phaseClosed, phaseClosed, phaseClosed},
	}
	require.Len(t, table, phases)
	cause := errors.New("the cause")
	for from, row := range table {
		for i, to := range row {
			l := newLife(slog.New(slog.DiscardHandler))
			l.now.Store(&condition{phase: from, cause: errors.New("before"), err: errors.New("kept")})
			if to == none {
				require.Panics(t, func() { l.step(event(i), cause) }, "event %d in %v", i, from)
				require.Equal(t, from, l.phase())
				continue
			}
			tr := l.step(event(i), cause)
			require.Equal(t, to, l.phase(), "event %d in %v", i, from)
			require.Equal(t, from != to, tr.first())
			require.Equal(t, 1, btoi(to.up())+btoi(to.away())+btoi(to.ended()), "%v", to)
		}
	}
}

// What follows from a phase: which ops are refused, why, and what status says.
func TestPhases(t *testing.T) {
	cause, later := errors.New("the cause"), errors.New("later")
	for _, tt := range []struct {
		name    string
		events  []event
		phase   phase
		refuses error // new ops
		fails   error // all ops
		shown   State
		says    string
	}{
		{"open", []event{eventOpened}, phaseOpen, nil, nil, StateOpen, ""},
		{"lost", []event{eventOpened, eventLost}, phaseWaiting, nil, nil, StateWaiting, "the cause"},
		{"back", []event{eventOpened, eventLost, eventBack}, phaseOpen, nil, nil, StateOpen, ""},
		{"adopted", []event{eventLost, eventBack}, phaseOpen, nil, nil, StateOpen, ""},
		{"Close begins", []event{eventOpened, eventDrain}, phaseDraining, backend.ErrClosed, nil, StateOpen, ""},
		{"lost meanwhile", []event{eventOpened, eventDrain, eventLost}, phaseStranded, backend.ErrClosed, nil, StateWaiting, "the cause"},
		{"Close begins without a session", []event{eventOpened, eventLost, eventDrain}, phaseStranded, backend.ErrClosed, nil, StateWaiting, "the cause"},
		{"failed", []event{eventOpened, eventEnd}, phaseFailed, backend.ErrFailed, backend.ErrFailed, StateFailed, "the cause"},
		{"failed before Close has flushed", []event{eventOpened, eventDrain, eventEnd}, phaseFailed, backend.ErrFailed, backend.ErrFailed, StateFailed, "the cause"},
		{"given back", []event{eventOpened, eventDrain, eventLeave}, phaseLeaving, backend.ErrClosed, nil, StateOpen, ""},
		{"closed", []event{eventOpened, eventDrain, eventLeave, eventEnd}, phaseClosed, backend.ErrClosed, backend.ErrClosed, StateClosed, "the cause"},
		{"closed without a session", []event{eventOpened, eventLost, eventDrain, eventLeave, eventEnd}, phaseClosed, backend.ErrClosed, backend.ErrClosed, StateClosed, "the cause"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := newLife(slog.New(slog.DiscardHandler))
			for _, e := range tt.events {
				var why error
				if e == eventLost || e == eventEnd {
					why = cause
				}
				l.step(e, why)
			}
			require.Equal(t, tt.phase, l.phase())
			require.ErrorIs(t, l.refusal(), tt.refuses)
			require.ErrorIs(t, l.failed(), tt.fails)
			state, says := l.now.Load().shown()
			require.Equal(t, tt.shown, state)
			require.Contains(t, says, tt.says)
			if l.phase().ended() {
				require.False(t, l.step(eventEnd, later).first())
				require.NotContains(t, l.failed().Error(), "later", "the first cause stays")
			}
		})
	}
}

// Each transition has its line.
func TestTransitionsSayWhatPeopleRead(t *testing.T) {
	core, lines := observer.New(zapcore.DebugLevel)
	l := newLife(logtest.On(core))
	cause := errors.New("the cause")
	for _, tt := range []struct {
		event event
		cause error
		level zapcore.Level
		says  string
	}{
		{eventOpened, nil, zap.InfoLevel, "session opened"},
		{eventLost, cause, zap.WarnLevel, "the session is interrupted: READ and FLUSH wait, writes are taken while the window has room"},
		{eventLost, cause, zap.WarnLevel, "the session does not come back yet"},
		{eventBack, nil, zap.InfoLevel, "the session goes on"},
		{eventDrain, nil, zap.DebugLevel, "the device is draining"},
		{eventLost, cause, zap.WarnLevel, "the session is interrupted: READ and FLUSH wait, writes are taken while the window has room"},
		{eventBack, nil, zap.InfoLevel, "the session goes on"},
		{eventLeave, nil, zap.DebugLevel, "the device is leaving"},
		{eventEnd, nil, zap.InfoLevel, "session closed"},
	} {
		l.step(tt.event, tt.cause).say()
		line := lines.TakeAll()
		require.Len(t, line, 1)
		require.Equal(t, tt.says, line[0].Message)
		require.Equal(t, tt.level, line[0].Level)
		require.Equal(t, tt.cause != nil, len(line[0].Context) == 1)
	}
	l = newLife(logtest.On(core))
	l.step(eventOpened, nil)
	l.step(eventEnd, cause).say()
	l.step(eventEnd, nil).say()
	said := lines.TakeAll()
	require.Equal(t, "the device failed for good: writes that it acknowledged may be lost", said[0].Message)
	require.Equal(t, zap.ErrorLevel, said[0].Level)
	require.Equal(t, "session closed", said[1].Message)
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
