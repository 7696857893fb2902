package persist

import "pmnbd/persist/wire"

// Methods are all that there are, best first: what needs no CPU of the target comes
// before what does.
var Methods = []Method{MethodFlush, MethodAPM, MethodGPSPM}

// A Reason says why a method is not sound for a session. It travels in OPENED.
type Reason uint8

const (
	// ReasonSound: the method is sound.
	ReasonSound Reason = iota
	// ReasonClass: only class pmem is persistent when the adapter has placed it;
	// this region's writes need a CPU, or a sync, at the target.
	ReasonClass
	// ReasonDevice: the target's device has no native persistent FLUSH, or could not
	// register the region with it.
	ReasonDevice
	// ReasonCaches: what is placed may stay in CPU caches, which the power takes, and
	// the operator has not declared otherwise.
	ReasonCaches
	// ReasonStores: the adapter places with CPU stores, so the declaration of
	// direct-write-to-pmem does not count, and the caches are not persistent.
	ReasonStores
	// ReasonRelaxed: the platform forces relaxed ordering on PCIe, and a Read does
	// not push relaxed writes.
	ReasonRelaxed
)

func (r Reason) String() string {
	switch r {
	case ReasonSound:
		return "sound"
	case ReasonClass:
		return "only class pmem is durable without the target's CPU"
	case ReasonDevice:
		return "the target's device lacks native persistent FLUSH"
	case ReasonCaches:
		return "the target's CPU caches are not persistent, and direct-write-to-pmem is not declared"
	case ReasonStores:
		return "the target's adapter places with CPU stores, and the CPU caches are not persistent"
	case ReasonRelaxed:
		return "the target's platform forces PCIe relaxed ordering"
	}
	return "unknown reason"
}

// Facts are what decides which methods are sound for a session.
type Facts struct {
	Class Class
	// EADR: the persistence domain of the region's memory includes the CPU caches.
	EADR bool
	// PlacesByDMA: the target's adapter writes memory by itself. Software providers
	// and devices place with CPU stores.
	PlacesByDMA bool
	// PersistentFlush: the target's device has native FLUSH, and the region is
	// registered with it.
	PersistentFlush bool
	// DirectWrite: the operator declared direct-write-to-pmem, that is, that nothing
	// puts what the adapter writes into caches (Intel DDIO, AMD SDCI or TPH off). It
	// is never detected.
	DirectWrite bool
	// RelaxedOrdering: the operator declared that the platform forces it.
	RelaxedOrdering bool
}

// WhyNot says whether method m is sound on these facts, and if not, why (design
// §3.3). gpspm is sound for every class, and the default.
func WhyNot(m Method, f Facts) Reason {
	switch {
	case m == MethodGPSPM:
		return ReasonSound
	case f.Class != ClassPMem:
		return ReasonClass
	case m == MethodFlush && f.PersistentFlush:
		return ReasonSound
	case m == MethodFlush:
		return ReasonDevice
	case f.RelaxedOrdering && f.PlacesByDMA:
		return ReasonRelaxed
	case f.EADR, f.DirectWrite && f.PlacesByDMA:
		return ReasonSound
	case f.DirectWrite:
		return ReasonStores
	}
	return ReasonCaches
}

// Choose picks the best method that is sound on these facts and that the initiator
// has; ok is false if there is none.
func Choose(initiator wire.Methods, f Facts) (m Method, ok bool) {
	for _, m := range Methods {
		if initiator.Has(uint8(m)) && WhyNot(m, f) == ReasonSound {
			return m, true
		}
	}
	return 0, false
}
