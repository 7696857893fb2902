package target

import "pmnbd/persist"

// Facts decide which methods are sound for a session.
type Facts struct {
	Class persist.Class
	// EADR: the persistence domain of the region's memory includes the CPU caches. Class
	// protected needs no such domain: a CPU saves it, and reads its caches.
	EADR bool
	// PlacesByDMA: the target's adapter writes memory by DMA. Software providers and
	// devices place with CPU stores.
	PlacesByDMA bool
	// PersistentFlush: the target's device has native FLUSH and has registered the region
	// with it.
	PersistentFlush bool
	// DirectWrite: the operator declared direct-write-to-pmem: adapters do not write into
	// CPU caches, because Intel DDIO, AMD SDCI or TPH are off. Software cannot detect
	// that.
	DirectWrite bool
	// RelaxedOrdering: the operator declared that the platform forces relaxed ordering.
	RelaxedOrdering bool
}

// WhyNot returns ReasonSound if method m is sound, otherwise the reason why not (design
// §3.3). gpspm is sound for every class, and the default.
func WhyNot(m persist.Method, f Facts) persist.Reason {
	switch {
	case m == persist.MethodGPSPM:
		return persist.ReasonSound
	case f.Class != persist.ClassPMem && f.Class != persist.ClassProtected:
		return persist.ReasonClass
	case m == persist.MethodFlush && f.PersistentFlush:
		return persist.ReasonSound
	case m == persist.MethodFlush:
		return persist.ReasonDevice
	case f.RelaxedOrdering && f.PlacesByDMA:
		return persist.ReasonRelaxed
	case f.EADR, f.Class == persist.ClassProtected, f.DirectWrite && f.PlacesByDMA:
		return persist.ReasonSound
	case f.DirectWrite:
		return persist.ReasonStores
	}
	return persist.ReasonCaches
}

// choose returns the best sound method of the initiator. ok is false if there is none.
func choose(initiator persist.Methods, f Facts) (m persist.Method, ok bool) {
	for _, m := range persist.BestFirst {
		if initiator.Has(m) && WhyNot(m, f) == persist.ReasonSound {
			return m, true
		}
	}
	return 0, false
}
