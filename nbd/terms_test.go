package nbd

import (
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/backend"
	"pmnbd/nbd/wire"
)

// TestOffer: the server offers what it serves, and no more.
func TestOffer(t *testing.T) {
	const always = wire.FlagHasFlags | wire.FlagSendFlush | wire.FlagSendFUA | wire.FlagCanMultiConn | wire.FlagSendCache
	const zeroes = wire.FlagSendWriteZeroes | wire.FlagSendFastZero
	can, cannot := &export{info: backend.Info{Size: 512, CanZero: true}}, &export{}
	readOnly := &export{info: can.info, readOnly: true}
	for _, tt := range []struct {
		name  string
		terms terms
		of    *export
		want  wire.TransmissionFlags
	}{
		{"simple", terms{}, can, always | wire.FlagSendTrim | zeroes},
		{"without zeroes", terms{}, cannot, always | wire.FlagSendTrim},
		{"read-only", terms{}, readOnly, always | wire.FlagReadOnly},
		{"structured", terms{replies: structured}, can, always | wire.FlagSendTrim | zeroes | wire.FlagSendDF},
		{"structured, with a context", terms{replies: structured, status: can}, can, always | wire.FlagSendTrim | zeroes | wire.FlagSendDF},
		{"extended", terms{replies: extended}, cannot, always | wire.FlagSendTrim | wire.FlagSendDF},
		{"extended, with a context", terms{replies: extended, status: readOnly}, readOnly, always | wire.FlagReadOnly | wire.FlagSendDF | wire.FlagBlockStatusPayload},
		{"extended, with another export's context", terms{replies: extended, status: can}, readOnly, always | wire.FlagReadOnly | wire.FlagSendDF},
	} {
		t.Run(tt.name, func(t *testing.T) {
			require.Equal(t, wire.Export{Size: tt.of.info.Size, Flags: tt.want}, tt.terms.offer(tt.of))
		})
	}
}
