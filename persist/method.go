package persist

// A Reason says why a method is not sound for a region. It travels in OPENED.
type Reason uint8

const (
	// ReasonSound: the method is sound.
	ReasonSound Reason = iota
	// ReasonClass: only class pmem is persistent when the adapter has placed it;
	// this region's writes need a CPU, or a sync, at the target.
	ReasonClass
	// ReasonNotServed: this release does not serve the method.
	ReasonNotServed
)

func (r Reason) String() string {
	switch r {
	case ReasonSound:
		return "sound"
	case ReasonClass:
		return "only class pmem is durable without the target's CPU"
	case ReasonNotServed:
		return "not served by this release"
	}
	return "unknown reason"
}

// WhyNot says whether method m is sound for a region of class c, and if not, why
// (design §3.3). gpspm is sound for every class, and the default.
func WhyNot(m Method, c Class) Reason {
	switch {
	case m == MethodGPSPM:
		return ReasonSound
	case c != ClassPMem:
		return ReasonClass
	}
	return ReasonNotServed
}
