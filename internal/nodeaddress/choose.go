package nodeaddress

import (
	"net/netip"
	"slices"
)

// Address is an address of an interface of this machine.
type Address struct {
	Prefix    netip.Prefix // the address, with the length of its subnet
	Interface string
	// Lasting says that it can be the address of a node: it is one for any
	// destination, it is neither temporary (RFC 8981) nor deprecated nor still being
	// checked for duplicates, and its interface is not one of a cluster.
	Lasting bool
}

// Route is a default route of this machine. What its interface is connected to
// directly has no gateway.
type Route struct {
	Interface string
	Gateway   netip.Addr // invalid: none
	Source    netip.Addr // from which packets are sent, if the route says it
}

// choose returns the address that takes the place of one that this machine has lost,
// an invalid one if there is none. had is the interface with the lost address, known
// are the addresses that were here when the node got it, and defaults are the default
// routes of its family, the best one first. Of addresses of its family, choose
// takes, in this order:
//
//   - that by which packets go out by a default route of the same interface,
//   - one on the same interface that was not known,
//   - that by which packets go out by another default route.
func choose(lost netip.Addr, had string, known map[netip.Addr]bool, here []Address, defaults []Route) netip.Addr {
	here = slices.DeleteFunc(slices.Clone(here), func(a Address) bool { return !a.Lasting || a.Prefix.Addr().Is4() != lost.Is4() })
	for _, r := range defaults {
		if a := sourceOf(r, here); r.Interface == had && a.IsValid() {
			return a
		}
	}
	for _, a := range here {
		if a.Interface == had && !known[a.Prefix.Addr()] {
			return a.Prefix.Addr()
		}
	}
	for _, r := range defaults {
		if a := sourceOf(r, here); a.IsValid() {
			return a
		}
	}
	return netip.Addr{}
}

// sourceOf returns the address from which packets go out by a route: the one that the
// route says, or else one in the subnet of the gateway, or else the first one of the
// interface. It is invalid if there is none.
func sourceOf(r Route, here []Address) netip.Addr {
	for _, fits := range []func(Address) bool{
		func(a Address) bool { return a.Prefix.Addr() == r.Source },
		func(a Address) bool { return r.Gateway.IsValid() && a.Prefix.Contains(r.Gateway) },
		func(Address) bool { return true },
	} {
		if i := slices.IndexFunc(here, func(a Address) bool { return a.Interface == r.Interface && fits(a) }); i >= 0 {
			return here[i].Prefix.Addr()
		}
	}
	return netip.Addr{}
}
