package nodeaddress

import (
	"net/netip"
	"testing"
)

// on returns an address of an interface, which lasts.
func on(name, prefix string) Address {
	return Address{Prefix: netip.MustParsePrefix(prefix), Interface: name, Lasting: true}
}

// passing returns an address of an interface that does not last, such as a temporary one.
func passing(name, prefix string) Address {
	return Address{Prefix: netip.MustParsePrefix(prefix), Interface: name}
}

// by returns a default route by a gateway, or without one.
func by(name, gateway string) Route {
	r := Route{Interface: name}
	if gateway != "" {
		r.Gateway = netip.MustParseAddr(gateway)
	}
	return r
}

// TestChoose checks which address takes the place of one that the machine has lost.
func TestChoose(t *testing.T) {
	const lost4, lost6 = "192.0.2.2", "2001:db8:1::2"
	sourced := by("eth0", "")
	sourced.Source = netip.MustParseAddr("198.51.100.8")
	for name, c := range map[string]struct {
		lost, had string
		known     string // one address
		here      []Address
		defaults  []Route
		want      string // "" for none
	}{
		"nothing is there":                     {lost4, "eth0", "", nil, nil, ""},
		"of the default route":                 {lost4, "eth0", "", []Address{on("eth0", "198.51.100.7/24")}, []Route{by("eth0", "198.51.100.1")}, "198.51.100.7"},
		"without a default route":              {lost4, "eth0", "", []Address{on("eth0", "198.51.100.7/24")}, nil, "198.51.100.7"},
		"one that was there before":            {lost4, "eth0", "203.0.113.5", []Address{on("eth0", "203.0.113.5/24")}, nil, ""},
		"beside one that was there before":     {lost4, "eth0", "203.0.113.5", []Address{on("eth0", "203.0.113.5/24"), on("eth0", "198.51.100.7/24")}, nil, "198.51.100.7"},
		"in the subnet of the gateway":         {lost4, "eth0", "", []Address{on("eth0", "203.0.113.5/24"), on("eth0", "198.51.100.7/24")}, []Route{by("eth0", "198.51.100.1")}, "198.51.100.7"},
		"the source of the route":              {lost4, "eth0", "", []Address{on("eth0", "198.51.100.7/24"), on("eth0", "198.51.100.8/24")}, []Route{sourced}, "198.51.100.8"},
		"the same interface first":             {lost4, "eth0", "", []Address{on("wlan0", "203.0.113.5/24"), on("eth0", "198.51.100.7/24")}, []Route{by("wlan0", "203.0.113.1"), by("eth0", "198.51.100.1")}, "198.51.100.7"},
		"a new one of it before another route": {lost4, "eth0", "", []Address{on("wlan0", "203.0.113.5/24"), on("eth0", "198.51.100.7/24")}, []Route{by("wlan0", "203.0.113.1")}, "198.51.100.7"},
		"another interface":                    {lost4, "eth0", "", []Address{on("wlan0", "203.0.113.5/24")}, []Route{by("wlan0", "203.0.113.1")}, "203.0.113.5"},
		"not without a route":                  {lost4, "eth0", "", []Address{on("wlan0", "203.0.113.5/24")}, nil, ""},
		"the best route":                       {lost4, "eth0", "", []Address{on("wlan0", "203.0.113.5/24"), on("eth1", "198.51.100.7/24")}, []Route{by("eth1", "198.51.100.1"), by("wlan0", "203.0.113.1")}, "198.51.100.7"},
		"not where it was is unknown":          {lost4, "", "", []Address{on("eth0", "198.51.100.7/24")}, nil, ""},
		"of no other family":                   {lost4, "eth0", "", []Address{on("eth0", "2001:db8:2::7/64")}, nil, ""},
		"of IPv6":                              {lost6, "eth0", "", []Address{on("eth0", "198.51.100.7/24"), on("eth0", "2001:db8:2::7/64")}, []Route{by("eth0", "fe80::1")}, "2001:db8:2::7"},
		"none that passes":                     {lost6, "eth0", "", []Address{passing("eth0", "2001:db8:2::8/64"), on("eth0", "2001:db8:2::7/64")}, []Route{by("eth0", "fe80::1")}, "2001:db8:2::7"},
	} {
		known := map[netip.Addr]bool{}
		if c.known != "" {
			known[netip.MustParseAddr(c.known)] = true
		}
		got := ""
		if a := choose(netip.MustParseAddr(c.lost), c.had, known, c.here, c.defaults); a.IsValid() {
			got = a.String()
		}
		if got != c.want {
			t.Errorf("%s: the next address is %q, want %q", name, got, c.want)
		}
	}
}
