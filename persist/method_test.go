package persist

import (
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/persist/wire"
)

// TestWhyNot is the conformance table of design §3.3: class, platform, adapter,
// declarations × method.
func TestWhyNot(t *testing.T) {
	for _, c := range []struct {
		name       string
		facts      Facts
		apm, flush Reason
	}{
		{"volatile", Facts{Class: ClassVolatile}, ReasonClass, ReasonClass},
		{"volatile, all the rest is there", Facts{Class: ClassVolatile, EADR: true, PlacesByDMA: true, PersistentFlush: true, DirectWrite: true}, ReasonClass, ReasonClass},
		{"file", Facts{Class: ClassFile}, ReasonClass, ReasonClass},
		{"file, all the rest is there", Facts{Class: ClassFile, EADR: true, PlacesByDMA: true, PersistentFlush: true, DirectWrite: true}, ReasonClass, ReasonClass},
		{"software device", Facts{Class: ClassPMem}, ReasonCaches, ReasonDevice},
		{"software device, declared", Facts{Class: ClassPMem, DirectWrite: true}, ReasonStores, ReasonDevice},
		{"software device, eADR", Facts{Class: ClassPMem, EADR: true}, ReasonSound, ReasonDevice},
		{"software device, eADR, relaxed", Facts{Class: ClassPMem, EADR: true, RelaxedOrdering: true}, ReasonSound, ReasonDevice},
		{"software device with FLUSH", Facts{Class: ClassPMem, PersistentFlush: true}, ReasonCaches, ReasonSound},
		{"adapter", Facts{Class: ClassPMem, PlacesByDMA: true}, ReasonCaches, ReasonDevice},
		{"adapter, declared", Facts{Class: ClassPMem, PlacesByDMA: true, DirectWrite: true}, ReasonSound, ReasonDevice},
		{"adapter, eADR", Facts{Class: ClassPMem, PlacesByDMA: true, EADR: true}, ReasonSound, ReasonDevice},
		{"adapter, eADR, relaxed", Facts{Class: ClassPMem, PlacesByDMA: true, EADR: true, RelaxedOrdering: true}, ReasonRelaxed, ReasonDevice},
		{"adapter, declared, relaxed", Facts{Class: ClassPMem, PlacesByDMA: true, DirectWrite: true, RelaxedOrdering: true}, ReasonRelaxed, ReasonDevice},
		{"adapter with FLUSH", Facts{Class: ClassPMem, PlacesByDMA: true, PersistentFlush: true}, ReasonCaches, ReasonSound},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.Equal(t, ReasonSound, WhyNot(MethodGPSPM, c.facts))
			require.Equal(t, c.apm, WhyNot(MethodAPM, c.facts))
			require.Equal(t, c.flush, WhyNot(MethodFlush, c.facts))
		})
	}
}

func TestChoose(t *testing.T) {
	only := func(ms ...Method) (w wire.Methods) {
		for _, m := range ms {
			w = w.With(uint8(m))
		}
		return w
	}
	all := only(Methods...)
	eADR := Facts{Class: ClassPMem, EADR: true}
	flush := Facts{Class: ClassPMem, PersistentFlush: true}
	for _, c := range []struct {
		name      string
		initiator wire.Methods
		facts     Facts
		want      Method
	}{
		{"what is always sound", all, Facts{Class: ClassFile}, MethodGPSPM},
		{"apm before gpspm", all, eADR, MethodAPM},
		{"flush before gpspm", all, flush, MethodFlush},
		{"flush before apm", all, Facts{Class: ClassPMem, EADR: true, PersistentFlush: true}, MethodFlush},
		{"what the initiator has", only(MethodGPSPM, MethodAPM), flush, MethodGPSPM},
		{"what the initiator insists on", only(MethodGPSPM), eADR, MethodGPSPM},
		{"nothing less than it insists on", only(MethodAPM), flush, 0},
		{"none", 0, eADR, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, ok := Choose(c.initiator, c.facts)
			require.Equal(t, c.want, m)
			require.Equal(t, c.want != 0, ok)
		})
	}
}
