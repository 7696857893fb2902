// Package source counts the connections of each host that connects, only for this module; it
// promises nothing to other programs. Listeners use it to share few places among many hosts.
package source

import (
	"net/netip"
	"slices"
)

// Of returns the source that a peer at HOST:PORT counts as, where the connections
// of a source are bounded. That is the IPv4 address, or the /64 network of an IPv6
// address, because an IPv6 host has as many addresses as it likes. It is the zero Prefix
// if peer is not an address.
func Of(peer string) netip.Prefix {
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

// Crowded returns the index of the connection that has to make room for a newcomer when
// every place is taken: the oldest one of the source that has the most, so that no source
// keeps others out. places is not empty and has the oldest first.
func Crowded[T any](places []T, source func(T) netip.Prefix) int {
	from := make(map[netip.Prefix]int)
	most := 0
	for _, c := range places {
		from[source(c)]++
		most = max(most, from[source(c)])
	}
	return slices.IndexFunc(places, func(c T) bool { return from[source(c)] == most })
}
