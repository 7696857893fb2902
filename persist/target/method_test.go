package target

import (
	"testing"

	"github.com/stretchr/testify/require"

	"pmnbd/persist"
)

// TestWhyNot is the conformance table of design §3.3: class, platform, adapter and
// declarations × method.
func TestWhyNot(t *testing.T) {
	for _, c := range []struct {
		name       string
		facts      Facts
		apm, flush persist.Reason
	}{
		{"volatile", Facts{Class: persist.ClassVolatile}, persist.ReasonClass, persist.ReasonClass},
		{"volatile, with everything else", Facts{Class: persist.ClassVolatile, EADR: true, PlacesByDMA: true, PersistentFlush: true, DirectWrite: true}, persist.ReasonClass, persist.ReasonClass},
		{"file", Facts{Class: persist.ClassFile}, persist.ReasonClass, persist.ReasonClass},
		{"file, with everything else", Facts{Class: persist.ClassFile, EADR: true, PlacesByDMA: true, PersistentFlush: true, DirectWrite: true}, persist.ReasonClass, persist.ReasonClass},
		{"protected", Facts{Class: persist.ClassProtected}, persist.ReasonSound, persist.ReasonDevice},
		{"protected, adapter", Facts{Class: persist.ClassProtected, PlacesByDMA: true}, persist.ReasonSound, persist.ReasonDevice},
		{"protected, adapter with FLUSH", Facts{Class: persist.ClassProtected, PlacesByDMA: true, PersistentFlush: true}, persist.ReasonSound, persist.ReasonSound},
		{"protected, adapter, relaxed", Facts{Class: persist.ClassProtected, PlacesByDMA: true, RelaxedOrdering: true}, persist.ReasonRelaxed, persist.ReasonDevice},
		{"protected, software device, relaxed", Facts{Class: persist.ClassProtected, RelaxedOrdering: true}, persist.ReasonSound, persist.ReasonDevice},
		{"software device", Facts{Class: persist.ClassPMem}, persist.ReasonCaches, persist.ReasonDevice},
		{"software device, declared", Facts{Class: persist.ClassPMem, DirectWrite: true}, persist.ReasonStores, persist.ReasonDevice},
		{"software device, eADR", Facts{Class: persist.ClassPMem, EADR: true}, persist.ReasonSound, persist.ReasonDevice},
		{"software device, eADR, relaxed", Facts{Class: persist.ClassPMem, EADR: true, RelaxedOrdering: true}, persist.ReasonSound, persist.ReasonDevice},
		{"software device with FLUSH", Facts{Class: persist.ClassPMem, PersistentFlush: true}, persist.ReasonCaches, persist.ReasonSound},
		{"adapter", Facts{Class: persist.ClassPMem, PlacesByDMA: true}, persist.ReasonCaches, persist.ReasonDevice},
		{"adapter, declared", Facts{Class: persist.ClassPMem, PlacesByDMA: true, DirectWrite: true}, persist.ReasonSound, persist.ReasonDevice},
		{"adapter, eADR", Facts{Class: persist.ClassPMem, PlacesByDMA: true, EADR: true}, persist.ReasonSound, persist.ReasonDevice},
		{"adapter, eADR, relaxed", Facts{Class: persist.ClassPMem, PlacesByDMA: true, EADR: true, RelaxedOrdering: true}, persist.ReasonRelaxed, persist.ReasonDevice},
		{"adapter, declared, relaxed", Facts{Class: persist.ClassPMem, PlacesByDMA: true, DirectWrite: true, RelaxedOrdering: true}, persist.ReasonRelaxed, persist.ReasonDevice},
		{"adapter with FLUSH", Facts{Class: persist.ClassPMem, PlacesByDMA: true, PersistentFlush: true}, persist.ReasonCaches, persist.ReasonSound},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.Equal(t, persist.ReasonSound, WhyNot(persist.MethodGPSPM, c.facts))
			require.Equal(t, c.apm, WhyNot(persist.MethodAPM, c.facts))
			require.Equal(t, c.flush, WhyNot(persist.MethodFlush, c.facts))
		})
	}
}

func TestChoose(t *testing.T) {
	only := func(ms ...persist.Method) (w persist.Methods) {
		for _, m := range ms {
			w = w.With(m)
		}
		return w
	}
	all := only(persist.BestFirst[:]...)
	eADR := Facts{Class: persist.ClassPMem, EADR: true}
	flush := Facts{Class: persist.ClassPMem, PersistentFlush: true}
	for _, c := range []struct {
		name      string
		initiator persist.Methods
		facts     Facts
		want      persist.Method
	}{
		{"what is always sound", all, Facts{Class: persist.ClassFile}, persist.MethodGPSPM},
		{"apm before gpspm", all, eADR, persist.MethodAPM},
		{"flush before gpspm", all, flush, persist.MethodFlush},
		{"flush before apm", all, Facts{Class: persist.ClassPMem, EADR: true, PersistentFlush: true}, persist.MethodFlush},
		{"what the initiator has", only(persist.MethodGPSPM, persist.MethodAPM), flush, persist.MethodGPSPM},
		{"what the initiator insists on", only(persist.MethodGPSPM), eADR, persist.MethodGPSPM},
		{"nothing less than it insists on", only(persist.MethodAPM), flush, 0},
		{"none", 0, eADR, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, ok := choose(c.initiator, c.facts)
			require.Equal(t, c.want, m)
			require.Equal(t, c.want != 0, ok)
		})
	}
}
