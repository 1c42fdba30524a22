package nftables

import (
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	v1 "k8s.io/api/core/v1"

	"github.com/coracle-io/coracle/internal/netnstest"
	"github.com/coracle-io/coracle/internal/proxy"
)

// TestHostPortOfAnotherAddress checks that a host port with a hostIP that is not
// an address of the node takes no connection, neither from pods nor from the node,
// and that it does once the node has the address.
func TestHostPortOfAnotherAddress(t *testing.T) {
	l := newLab(t, map[string]string{"client": "10.9.1.2", "thief": "10.9.1.3", "victim": "10.9.1.4", "outside": "198.51.100.7"})
	for _, member := range []string{"thief", "victim", "outside"} {
		l.serve(member, 8080)
	}
	rules := rulesOf(&proxy.ServicePort{ClusterIP: netip.MustParseAddr("10.96.0.20"), Port: 8080})
	for _, address := range []string{"10.9.1.4", "198.51.100.7", "10.96.0.20", "10.9.1.1", "203.0.113.9"} {
		key := proxy.LocalPort{Address: netip.MustParseAddr(address), Port: 8080, Protocol: v1.ProtocolTCP, Family: v1.IPv4Protocol}
		rules.HostPorts[key] = proxy.HostPort{To: netip.MustParseAddrPort("10.9.1.3:8080")}
	}
	if err := l.backend.Apply(rules); err != nil {
		t.Fatal(err)
	}
	check := func(address, want string) {
		t.Helper()
		for from, ns := range map[string]netns.NsHandle{"a pod": l.members["client"], "the node": l.node} {
			if name, _, err := l.ask(ns, address+":8080"); name != want {
				t.Errorf("%s from %s is answered by %q (%v), want %q", address, from, name, err, want)
			}
		}
	}
	check("10.9.1.4", "victim")
	check("198.51.100.7", "outside")
	check("10.96.0.20", "") // a Service without endpoints
	check("10.9.1.1", "thief")
	netnstest.Do(t, l.node, func() error {
		link, err := netlink.LinkByName("up0")
		if err != nil {
			return err
		}
		return netlink.AddrAdd(link, mustAddr("203.0.113.9/32"))
	})
	check("203.0.113.9", "thief")
}
