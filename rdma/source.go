package rdma

import (
	"net/netip"
	"slices"
)

// SourceOf is what counts as one source of connections where they are bounded, for a
// peer's HOST:PORT: an IPv4 address, or the network of an IPv6 address, for a host there
// has as many addresses as it likes.
func SourceOf(peer string) netip.Prefix {
	ap, err := netip.ParseAddrPort(peer)
	if err != nil {
		return netip.Prefix{}
	}
	a := ap.Addr().Unmap().WithZone("")
	bits := a.BitLen()
	if a.Is6() && !a.IsLinkLocalUnicast() {
		bits = 64
	}
	p, _ := a.Prefix(bits) // the length fits the family
	return p
}

// Crowded is the index of the connection that gives its place to a newcomer where all
// are taken: the oldest one of the source that has the most, so that no source keeps
// others out. places has the oldest first, and is not empty.
func Crowded[T any](places []T, source func(T) netip.Prefix) int {
	from := make(map[netip.Prefix]int)
	most := 0
	for _, c := range places {
		from[source(c)]++
		most = max(most, from[source(c)])
	}
	return slices.IndexFunc(places, func(c T) bool { return from[source(c)] == most })
}
