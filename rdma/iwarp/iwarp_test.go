package iwarp

import (
	"testing"

	"go.uber.org/goleak"

	"pmnbd/rdma/rdmatest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) {
	for name, cfg := range map[string]Config{"revision 2": {}, "revision 1": {Revision: 1}, "no CRC": {NoCRC: true}, "encrypted": {Encrypt: true}, "encrypted, revision 1": {Revision: 1, Encrypt: true}} {
		t.Run(name, func(t *testing.T) { rdmatest.Run(t, New(cfg), "127.0.0.1:0") })
	}
}
