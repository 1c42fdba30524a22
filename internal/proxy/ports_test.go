package proxy

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// here is a node with two addresses, and another node. The cluster serves on 6443
// and another cluster on 6444.
func here() *localNode {
	return &localNode{
		addresses: map[netip.Addr]bool{netip.MustParseAddr("192.0.2.10"): true, netip.MustParseAddr("172.17.0.1"): true},
		nodes:     &nodeAddresses{netip.MustParseAddr("192.0.2.10"): true, netip.MustParseAddr("192.0.2.11"): true},
		reserved:  []int{6443}, neighbours: []int{6444},
	}
}

func named(name string) PortName {
	return PortName{NamespacedName: types.NamespacedName{Namespace: "tenant", Name: name}, Port: "http", Protocol: v1.ProtocolTCP, Family: v1.IPv4Protocol}
}

func addrs(list ...string) []netip.Addr {
	var result []netip.Addr
	for _, s := range list {
		result = append(result, netip.MustParseAddr(s))
	}
	return result
}

func addrPorts(list ...string) []netip.AddrPort {
	var result []netip.AddrPort
	for _, s := range list {
		result = append(result, netip.MustParseAddrPort(s))
	}
	return result
}

// hostPort is a TCP port that the pod 10.244.0.7:80 wants; an empty address is all.
func hostPort(address string, port uint16) Rules {
	key := LocalPort{Port: port, Protocol: v1.ProtocolTCP, Family: v1.IPv4Protocol}
	if address != "" {
		key.Address = netip.MustParseAddr(address)
	}
	to := HostPort{Pod: types.NamespacedName{Namespace: "tenant", Name: "pod"}, To: netip.MustParseAddrPort("10.244.0.7:80")}
	return Rules{HostPorts: map[LocalPort]HostPort{key: to}}
}

func withService(rules Rules, p ServicePort) Rules {
	p.ClusterIP = netip.MustParseAddr("10.96.0.20")
	rules.Services = rules.Services.With(named("web"), &p)
	return rules
}

// allWants returns the ports of a node that rules want.
func allWants(rules Rules, n *localNode) []*want {
	p := &permitter{}
	p.follow(rules, n)
	return wants(rules, p.outside, n)
}

// TestWants checks which ports of the node rules want, how, and what is known to
// be in the way.
func TestWants(t *testing.T) {
	pods, host := addrPorts("10.244.0.8:80"), addrPorts("192.0.2.10:443", "192.0.2.11:443")
	for _, test := range []struct {
		name  string
		rules Rules
		want  []string
	}{
		{"nothing", withService(Rules{}, ServicePort{Port: 80, Cluster: pods}), nil},
		{"a host port", hostPort("", 8080), []string{"host port 8080/TCP: held, with loopback"}},
		{"at an address of the node", hostPort("172.17.0.1", 8080), []string{"host port 8080/TCP of 172.17.0.1: held, with loopback"}},
		{"at loopback", hostPort("127.0.0.1", 8080), []string{"host port 8080/TCP of 127.0.0.1: held, with loopback"}},
		{"at an address of others", hostPort("192.0.2.11", 8080), []string{"host port 8080/TCP of 192.0.2.11: the node does not have the address"}},
		{"of the cluster", hostPort("", 6443), []string{"host port 6443/TCP: the cluster itself serves on it"}},
		{"of another cluster", hostPort("", 6444), []string{"host port 6444/TCP: another cluster on the node serves on it"}},
		{"a node port", withService(Rules{}, ServicePort{Port: 80, NodePort: 30080, Cluster: pods}), []string{"node port 30080/TCP: held"}},
		{"a node port at some addresses", withService(Rules{NodePortRanges: NodePortRanges{netip.MustParsePrefix("192.0.2.10/32")}}, ServicePort{Port: 80, NodePort: 30080, Cluster: pods, External: addrs("192.0.2.10")}), []string{
			"node port 30080/TCP: held, at [192.0.2.10/32]", "port 80/TCP of 192.0.2.10: held",
		}},
		{"without endpoints", withService(Rules{}, ServicePort{Port: 80, NodePort: 30080}), []string{"node port 30080/TCP: kept"}},
		{"to pods in the host's network", withService(Rules{}, ServicePort{Port: 443, NodePort: 30443, Cluster: host}), []string{"node port 30443/TCP: not held"}},
		{"to pods of both kinds", withService(Rules{}, ServicePort{Port: 443, NodePort: 30443, Cluster: slices.Concat(host, pods)}), []string{"node port 30443/TCP: held"}},
		{"a node port of another cluster", withService(Rules{}, ServicePort{Port: 80, NodePort: 6444, Cluster: pods}), []string{
			"node port 6444/TCP: another cluster on the node serves on it",
		}},
		{"external addresses", withService(Rules{}, ServicePort{Port: 80, Cluster: pods, External: addrs("203.0.113.7", "172.17.0.1"), LoadBalancer: addrs("192.0.2.10")}), []string{
			"port 80/TCP of 172.17.0.1: held", "port 80/TCP of 192.0.2.10: held",
		}},
		{"external addresses and the cluster's port", withService(Rules{}, ServicePort{Port: 6443, Cluster: pods, External: addrs("203.0.113.7", "172.17.0.1")}), []string{
			"port 6443/TCP of 172.17.0.1: the cluster itself serves on it",
		}},
		{"an external address where an endpoint listens", withService(Rules{}, ServicePort{Port: 443, Cluster: host, External: addrs("192.0.2.10")}), []string{
			"port 443/TCP of 192.0.2.10: not held, answered",
		}},
		{"a host port that is a node port", withService(hostPort("192.0.2.10", 30080), ServicePort{Port: 80, NodePort: 30080, Cluster: pods}), []string{
			"host port 30080/TCP of 192.0.2.10: it is the node port of a Service", "node port 30080/TCP: held",
		}},
		{"a host port that is a health check's", withService(hostPort("", 30099), ServicePort{Port: 80, HealthCheckNodePort: 30099, Cluster: pods}), []string{
			"host port 30099/TCP: it is the node port of a Service",
		}},
		{"a host port that is an external address's", withService(hostPort("", 80), ServicePort{Port: 80, External: addrs("192.0.2.10"), Cluster: pods}), []string{
			"host port 80/TCP: held, with loopback", "port 80/TCP of 192.0.2.10: it is the host port of a pod",
		}},
		{"the same at one address", withService(hostPort("192.0.2.10", 80), ServicePort{Port: 80, LoadBalancer: addrs("192.0.2.10", "172.17.0.1"), Cluster: addrPorts("10.244.0.7:80")}), []string{
			"host port 80/TCP of 192.0.2.10: held, with loopback", "port 80/TCP of 172.17.0.1: held",
			"port 80/TCP of 192.0.2.10: it is the host port of a pod, answered",
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var got []string
			list := allWants(test.rules, here())
			for _, w := range list {
				got = append(got, describe(w))
			}
			slices.Sort(got)
			if !slices.Equal(got, test.want) {
				t.Errorf("got\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(test.want, "\n\t"))
			}
			for p := range claimsOf(list) {
				if !slices.ContainsFunc(list, func(w *want) bool { return w.LocalPort == p && w.obstacle == "" }) {
					t.Errorf("claims %v, which is somebody else's", p)
				}
			}
		})
	}
}

func describe(w *want) string {
	text := fmt.Sprintf("%v: %s", w, w.obstacle)
	if w.obstacle == "" {
		text += map[Hold]string{DoNotHold: "not held", HoldIfHeld: "kept", HoldIfVacant: "held"}[w.claim.Hold]
		if w.claim.Loopback {
			text += ", with loopback"
		}
		if w.claim.At != nil {
			text += fmt.Sprintf(", at %v", w.claim.At)
		}
	}
	if w.answered {
		text += ", answered"
	}
	return text
}

// TestWithhold checks that rules lose what has an obstacle and nothing else, and
// that the given rules stay as they are.
func TestWithhold(t *testing.T) {
	rules := withService(hostPort("", 8080), ServicePort{
		Port: 80, NodePort: 30080, External: addrs("203.0.113.7", "192.0.2.10"), LoadBalancer: addrs("192.0.2.10", "172.17.0.1"), Cluster: addrPorts("10.244.0.8:80"),
	})
	other := named("other")
	rules.Services = rules.Services.With(other, &ServicePort{Port: 81, NodePort: 30081})
	for _, test := range []struct {
		taken []string
		want  string
	}{
		{nil, "[8080] 30080 [203.0.113.7 192.0.2.10] [192.0.2.10 172.17.0.1]"},
		{[]string{"host port 8080/TCP"}, "[] 30080 [203.0.113.7 192.0.2.10] [192.0.2.10 172.17.0.1]"},
		{[]string{"node port 30080/TCP"}, "[8080] 0 [203.0.113.7 192.0.2.10] [192.0.2.10 172.17.0.1]"},
		{[]string{"port 80/TCP of 192.0.2.10"}, "[8080] 30080 [203.0.113.7] [172.17.0.1]"},
		{[]string{"host port 8080/TCP", "node port 30080/TCP", "port 80/TCP of 192.0.2.10", "port 80/TCP of 172.17.0.1"}, "[] 0 [203.0.113.7] []"},
	} {
		list := slices.DeleteFunc(allWants(rules, here()), func(w *want) bool { return !slices.Contains(test.taken, w.String()) })
		left, lost := withhold(rules, list, nil)
		var hostPorts []uint16
		for key := range left.HostPorts {
			hostPorts = append(hostPorts, key.Port)
		}
		p := left.Services.Get(named("web"))
		if got := fmt.Sprint(hostPorts, p.NodePort, p.External, p.LoadBalancer); got != test.want {
			t.Errorf("without %q: %s, want %s", test.taken, got, test.want)
		}
		if left.Services.Get(other) != rules.Services.Get(other) || lost[other] != nil {
			t.Errorf("without %q: a Service that loses nothing is another value", test.taken)
		}
		if web := rules.Services.Get(named("web")); web.NodePort != 30080 || len(web.External) != 2 || len(rules.HostPorts) != 1 {
			t.Fatal("the given rules were changed")
		}
	}
}
