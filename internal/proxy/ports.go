package proxy

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Whatever a pod or a Service declares, the rules take no port of this node that
// somebody else has: the cluster itself, another cluster of the machine, or any
// program in the node's network namespace.
//
//	Rules ──wants──► ports that they would take ──Ports.Claim──► which are taken
//	  └──────────────────withhold─────────────────────────────────────┘
//	                         └► Rules without those, and events

// Ports knows the node's addresses and which of its ports programs have, and
// reserves ports for the rules. One goroutine uses it.
type Ports interface {
	// Addresses returns the node's own addresses.
	Addresses() ([]netip.Addr, error)
	// Claim reserves ports, releases all others that it has reserved, and returns
	// the ports that others have. The result counts even with an error, which says
	// what could not be found out.
	Claim(wanted map[LocalPort]Claim) (map[LocalPort]Obstacle, error)
	// Release releases all ports.
	Release()
}

// Claim says how a rule needs a port.
type Claim struct {
	Hold Hold
	// Loopback says that the rule takes connections to loopback addresses, too, if
	// the port is one of all addresses.
	Loopback bool
	// At is where the rule takes connections, if the port is one of all addresses. The
	// zero value is everywhere.
	At NodePortRanges
}

// Hold says whether a port is to be reserved, so that no program can listen on it
// and then get no connections.
type Hold int

// The values of Hold. A port whose endpoints are in the host's network is not
// reserved: they may have to listen on it themselves.
const (
	DoNotHold    Hold = iota
	HoldIfHeld        // keep it reserved if it is
	HoldIfVacant      // reserve it
)

// Obstacle is why a rule cannot have a port.
type Obstacle string

// The obstacles.
const (
	InUse         Obstacle = "another program on the node, or another cluster there, has it"
	RecentlyInUse Obstacle = "another program on the node had it a moment ago, and may only be restarting"

	ofCluster   Obstacle = "the cluster itself serves on it"
	ofNeighbour Obstacle = "another cluster on the node serves on it"
	ofNodePort  Obstacle = "it is the node port of a Service"
	ofHostPort  Obstacle = "it is the host port of a pod"
	notLocal    Obstacle = "the node does not have the address"
)

// localNode is what decides about the ports of this node beside the programs there.
type localNode struct {
	addresses    map[netip.Addr]bool // of this node
	nodes        *nodeAddresses
	clusterCIDRs []netip.Prefix // see Config
	reserved     []int          // see Config
	neighbours   []int          // see Config.NeighbourPorts
}

// nodeAddresses are the addresses of all nodes. It is a new one when they have changed.
type nodeAddresses map[netip.Addr]bool

func (l *nodeAddresses) has(a netip.Addr) bool { return l != nil && (*l)[a] }

// equal reports whether two nodes decide alike. o may be nil.
func (n *localNode) equal(o *localNode) bool {
	return o != nil && n.nodes == o.nodes && maps.Equal(n.addresses, o.addresses) && slices.Equal(n.clusterCIDRs, o.clusterCIDRs) &&
		slices.Equal(n.reserved, o.reserved) && slices.Equal(n.neighbours, o.neighbours)
}

// isLocal reports whether the node has an address.
func (n *localNode) isLocal(a netip.Addr) bool { return a.IsLoopback() || n.addresses[a] }

// ofOthers reports whether an address is a pod's or another node's.
func (n *localNode) ofOthers(a netip.Addr) bool {
	return !n.isLocal(a) && (n.nodes.has(a) || slices.ContainsFunc(n.clusterCIDRs, func(p netip.Prefix) bool { return p.Contains(a) }))
}

// served returns who serves on a port apart from programs that can be found.
func (n *localNode) served(port uint16) Obstacle {
	switch {
	case slices.Contains(n.reserved, int(port)):
		return ofCluster
	case slices.Contains(n.neighbours, int(port)):
		return ofNeighbour
	}
	return ""
}

// withObstacles returns the wants that have an obstacle, with those that were found on the
// node.
func withObstacles(list []*want, found map[LocalPort]Obstacle) (some []*want) {
	for _, w := range list {
		if o := cmp.Or(w.obstacle, found[w.LocalPort]); o != "" {
			blocked := *w
			blocked.obstacle = o
			some = append(some, &blocked)
		}
	}
	return some
}

// equal reports whether two wants of one owner are the same.
func (w *want) equal(o *want) bool {
	return w.LocalPort == o.LocalPort && w.obstacle == o.obstacle && w.answered == o.answered &&
		w.claim.Hold == o.claim.Hold && w.claim.Loopback == o.claim.Loopback && slices.Equal(w.claim.At, o.claim.At)
}

// want is a port of this node that the rules would take.
type want struct {
	LocalPort
	claim    Claim
	obstacle Obstacle // why it cannot be taken; "" if it can

	pod     types.NamespacedName // of a host port
	service PortName             // of any other
	// answered says that what has the port is an endpoint of the Service.
	answered bool
}

// ofPod reports whether a pod wants the port, and not a Service.
func (w *want) ofPod() bool { return w.pod.Name != "" }

func (w *want) String() string {
	number := fmt.Sprintf("%d/%s", w.Port, w.Protocol)
	switch {
	case w.ofPod() && w.Address.IsValid():
		return "host port " + number + " of " + w.Address.String()
	case w.ofPod():
		return "host port " + number
	case w.Address.IsValid():
		return "port " + number + " of " + w.Address.String()
	}
	return "node port " + number
}

// wants returns the ports of this node that the rules would take, with the obstacles
// that are known without looking at the node. outside are the ports of Services that have
// frontends outside. An external address is not among the wants if it is not local: what
// arrives there is for nobody on this node.
func wants(rules Rules, outside map[PortName]*ServicePort, n *localNode) []*want {
	var list []*want
	nodePorts := map[LocalPort]bool{}
	for name, p := range outside {
		if p.NodePort != 0 {
			nodePorts[LocalPort{Port: p.NodePort, Protocol: name.Protocol, Family: name.Family}] = true
		}
		if p.HealthCheckNodePort != 0 {
			nodePorts[LocalPort{Port: p.HealthCheckNodePort, Protocol: v1.ProtocolTCP, Family: name.Family}] = true
		}
	}
	for key, to := range rules.HostPorts {
		w := &want{LocalPort: key, pod: to.Pod, obstacle: n.served(key.Port), claim: Claim{Hold: HoldIfVacant, Loopback: true}}
		switch {
		case key.Address.IsValid() && !n.isLocal(key.Address):
			w.obstacle = notLocal
		case !key.Address.IsLoopback() && nodePorts[LocalPort{Port: key.Port, Protocol: key.Protocol, Family: key.Family}]:
			w.obstacle = ofNodePort
		}
		list = append(list, w)
	}
	for name, p := range outside {
		list = append(list, serviceWants(name, p, rules, n)...)
	}
	return list
}

// isReachedOutside reports whether a port of a Service has more than its cluster IP.
func isReachedOutside(p *ServicePort) bool {
	return p.NodePort != 0 || len(p.External)+len(p.LoadBalancer) > 0
}

// hasFrontendsOutside reports whether a port of a Service is reached from outside, or has
// a port of the node for health checks.
func hasFrontendsOutside(p *ServicePort) bool {
	return isReachedOutside(p) || p.HealthCheckNodePort != 0
}

// serviceWants returns the ports of this node that the rules of a Service would
// take.
func serviceWants(name PortName, p *ServicePort, rules Rules, n *localNode) []*want {
	var list []*want
	hold := holdFor(p, n)
	add := func(key LocalPort) *want {
		w := &want{LocalPort: key, service: name, obstacle: n.served(key.Port), claim: Claim{Hold: hold}}
		w.answered = slices.ContainsFunc(p.Cluster, func(e netip.AddrPort) bool { return e.Port() == key.Port && n.isLocal(e.Addr()) })
		list = append(list, w)
		return w
	}
	if p.NodePort != 0 {
		w := add(LocalPort{Port: p.NodePort, Protocol: name.Protocol, Family: name.Family})
		w.claim.At, w.claim.Loopback = rules.NodePortRanges, rules.LoopbackNodePorts
	}
	for _, a := range slices.Concat(p.External, p.LoadBalancer) {
		if !n.isLocal(a) {
			continue
		}
		key := LocalPort{Address: a, Port: p.Port, Protocol: name.Protocol, Family: name.Family}
		w := add(key)
		for _, at := range []netip.Addr{{}, a} {
			key.Address = at
			if to, taken := rules.HostPorts[key]; taken {
				w.obstacle, w.answered = ofHostPort, slices.Contains(p.Cluster, to.To)
			}
		}
	}
	return list
}

// holdFor returns whether a port that leads to the endpoints of a Service is
// reserved.
func holdFor(p *ServicePort, n *localNode) Hold {
	switch {
	case slices.ContainsFunc(p.Cluster, func(e netip.AddrPort) bool { return !n.nodes.has(e.Addr()) }):
		return HoldIfVacant
	case len(p.Cluster) == 0:
		return HoldIfHeld
	}
	return DoNotHold
}

// claimsOf returns the claims to the ports that nothing known keeps the rules from.
func claimsOf(list []*want) map[LocalPort]Claim {
	all := map[LocalPort]Claim{}
	for _, w := range list {
		if w.obstacle == "" {
			all[w.LocalPort] = w.claim
		}
	}
	return all
}

// withhold returns the rules without ports, which have an obstacle. A port of a Service
// that is without one is a copy, or the value in before if that is the same. They are
// returned in lost, too.
func withhold(rules Rules, list []*want, before map[PortName]*ServicePort) (left Rules, lost map[PortName]*ServicePort) {
	if len(list) == 0 {
		return rules, nil
	}
	left = rules
	left.HostPorts = maps.Clone(rules.HostPorts)
	lost = map[PortName]*ServicePort{}
	for _, w := range list {
		if w.ofPod() {
			delete(left.HostPorts, w.LocalPort)
			continue
		}
		p := lost[w.service]
		if p == nil {
			p = new(*rules.Services.Get(w.service))
			lost[w.service] = p
		}
		if !w.Address.IsValid() {
			p.NodePort = 0
			continue
		}
		taken := func(a netip.Addr) bool { return a == w.Address }
		p.External = slices.DeleteFunc(slices.Clone(p.External), taken)
		p.LoadBalancer = slices.DeleteFunc(slices.Clone(p.LoadBalancer), taken)
	}
	for name, p := range lost {
		lost[name] = reused(before[name], p)
		left.Services = left.Services.With(name, lost[name])
	}
	return left, lost
}

// unknownPorts is a Ports that knows nothing.
type unknownPorts struct{}

// Addresses implements Ports.
func (unknownPorts) Addresses() ([]netip.Addr, error) { return nil, nil }

// Claim implements Ports.
func (unknownPorts) Claim(map[LocalPort]Claim) (map[LocalPort]Obstacle, error) { return nil, nil }

// Release implements Ports.
func (unknownPorts) Release() {}
